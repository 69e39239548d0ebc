"""Train sentence vectors with SimCSE, or fine-tune them on scored pairs with CoSENT or AnglE.

accelerate launch scripts/train_simcse.py --model_name_or_path DIR_OR_ID --train_file text.txt \
    --sts_file dev.tsv --output_dir out --preset paper-unsup      (or one YAML file of these)
"""

from __future__ import annotations

from collections.abc import Sequence

from simbert_hf.arguments import DataArguments, ModelArguments, SimilarityTrainingArguments
from simbert_hf.collators import SimCseCollator
from simbert_hf.trainer import SimilarityTrainer
from simbert_hf.training.base_models import load_base_model
from simbert_hf.training.run import begin, run
from simbert_hf.training.simcse import (
    SIMCSE_PRESETS,
    SimCseArguments,
    load_simcse_data,
    make_augmentation,
    make_simcse_objective,
    prepare_simcse,
)
from simbert_hf.utils.parsing import parse_arguments
from simbert_hf.utils.script import run_script


def main(argv: Sequence[str] | None = None) -> SimilarityTrainer:
    """Train and save a model; return the trainer, whose state holds the log."""
    types = (ModelArguments, DataArguments, SimCseArguments, SimilarityTrainingArguments)
    model_args, data_args, simcse_args, args = parse_arguments(types, argv, SIMCSE_PRESETS)
    begin(args, [model_args.model_name_or_path])
    model = load_base_model(model_args, data_args.max_length)
    train, evaluator = load_simcse_data(simcse_args.examples, data_args, args)
    trainer = SimilarityTrainer(
        model=model,
        args=args,
        objective=make_simcse_objective(simcse_args),
        evaluator=evaluator,
        fresh_head=prepare_simcse(model, simcse_args),
        train_dataset=train,
        data_collator=SimCseCollator(
            model.rows,
            max_length=data_args.max_length,
            max_chars=data_args.max_chars,
            views=simcse_args.similarity_weight > 0,
            mlm=simcse_args.mlm_weight > 0,
            augmentation=make_augmentation(simcse_args, model, train),
        ),
    )
    run(trainer, model_args, data_args, simcse_args, presets=SIMCSE_PRESETS)
    return trainer


if __name__ == "__main__":
    run_script(main)
