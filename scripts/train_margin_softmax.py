"""Train sentence vectors by classifying sentences into their groups, with a margin.

accelerate launch scripts/train_margin_softmax.py --train_file groups.tsv --output_dir out \
    --preset gru                                             (or one YAML file of these)
accelerate launch scripts/train_margin_softmax.py --train_file intents.csv --output_dir out \
    --model_name_or_path DIR_OR_ID --loss arc
"""

from __future__ import annotations

from collections.abc import Sequence

from simbert_hf.arguments import DataArguments, ModelArguments, SimilarityTrainingArguments
from simbert_hf.margin.classes import ClassCollator
from simbert_hf.margin.training import (
    MARGIN_PRESETS,
    MarginArguments,
    load_class_data,
    make_margin_objective,
    n_classes,
)
from simbert_hf.trainer import SimilarityTrainer
from simbert_hf.training.base_models import EncoderArguments, load_vector_encoder
from simbert_hf.training.run import begin, run
from simbert_hf.utils.parsing import parse_arguments
from simbert_hf.utils.script import run_script


def main(argv: Sequence[str] | None = None) -> SimilarityTrainer:
    """Train and save a model; return the trainer, whose state holds the log."""
    types = (ModelArguments, EncoderArguments, DataArguments, MarginArguments)
    model_args, encoder_args, data_args, margin_args, args = parse_arguments(
        (*types, SimilarityTrainingArguments), argv, MARGIN_PRESETS
    )
    begin(args, [model_args.model_name_or_path])
    train, evaluator = load_class_data(data_args, args)
    texts = train.columns["source"]
    model = load_vector_encoder(model_args, encoder_args, data_args.max_length, texts)
    objective, callbacks = make_margin_objective(model, n_classes(train), margin_args, args)
    trainer = SimilarityTrainer(
        model=model,
        args=args,
        objective=objective,
        evaluator=evaluator,
        fresh_head="class_centres",
        train_dataset=train,
        data_collator=ClassCollator(model.rows, data_args.max_length, data_args.max_chars),
        callbacks=callbacks,
    )
    run(trainer, model_args, data_args, margin_args, presets=MARGIN_PRESETS)
    return trainer


if __name__ == "__main__":
    run_script(main)
