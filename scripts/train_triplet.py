"""Train sentence vectors on triplets, with negatives from the batch or mined ones from a file.

accelerate launch scripts/train_triplet.py --model_name_or_path DIR_OR_ID --train_file groups.tsv \
    --mining semi_hard --sentences_per_group 4 --output_dir out     (or one YAML file of these)
accelerate launch scripts/train_triplet.py --model_name_or_path DIR_OR_ID --train_file mined.csv \
    --examples triplets --validation_file groups.tsv --output_dir out
"""

from __future__ import annotations

from collections.abc import Sequence

from simbert_hf.arguments import DataArguments, ModelArguments, SimilarityTrainingArguments
from simbert_hf.trainer import SimilarityTrainer
from simbert_hf.training.base_models import EncoderArguments, load_vector_encoder
from simbert_hf.training.run import begin, run
from simbert_hf.triplet.objective import CLASSIFIER, add_pair_classifier
from simbert_hf.triplet.training import (
    TRIPLET_PRESETS,
    TripletArguments,
    load_triplet_data,
    make_collator,
    training_texts,
)
from simbert_hf.utils.parsing import parse_arguments
from simbert_hf.utils.script import run_script


def main(argv: Sequence[str] | None = None) -> SimilarityTrainer:
    """Train and save a model; return the trainer, whose state holds the log."""
    types = (ModelArguments, EncoderArguments, DataArguments, TripletArguments)
    model_args, encoder_args, data_args, triplet_args, args = parse_arguments(
        (*types, SimilarityTrainingArguments), argv, TRIPLET_PRESETS
    )
    begin(args, [model_args.model_name_or_path])
    train, evaluator = load_triplet_data(triplet_args, data_args, args)
    texts = training_texts(train)
    model = load_vector_encoder(model_args, encoder_args, data_args.max_length, texts)
    if triplet_args.loss == "siamese":
        add_pair_classifier(model)
    trainer = SimilarityTrainer(
        model=model,
        args=args,
        objective=triplet_args.objective(),
        evaluator=evaluator,
        fresh_head=CLASSIFIER if triplet_args.loss == "siamese" else None,
        train_dataset=train,
        data_collator=make_collator(triplet_args, data_args, model.rows),
        callbacks=triplet_args.callbacks(train),
    )
    run(trainer, model_args, data_args, triplet_args, presets=TRIPLET_PRESETS)
    return trainer


if __name__ == "__main__":
    run_script(main)
