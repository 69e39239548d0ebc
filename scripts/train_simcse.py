"""Train sentence vectors with SimCSE, or finish them on scored pairs with CoSENT or AnglE.

accelerate launch scripts/train_simcse.py --model_name_or_path DIR_OR_ID --train_file text.txt \
    --sts_file dev.tsv --output_dir out --preset paper-unsup      (or one YAML file of the same)
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from transformers import set_seed

from simbert_hf.arguments import (
    SIMCSE_PRESETS,
    DataArguments,
    ModelArguments,
    SimCseArguments,
    SimilarityTrainingArguments,
    parse_arguments,
)
from simbert_hf.collators import Augmentation, SimCseCollator
from simbert_hf.data import DataError
from simbert_hf.evaluation import StsEvaluator
from simbert_hf.trainer import SimilarityTrainer
from simbert_hf.training import (
    load_model,
    load_simcse_data,
    make_simcse_objective,
    run,
    set_up_logging,
)


def main(argv: Sequence[str] | None = None) -> SimilarityTrainer:
    """Train and save a model; return the trainer, whose state holds the log."""
    types = (ModelArguments, DataArguments, SimCseArguments, SimilarityTrainingArguments)
    model_args, data_args, simcse_args, args = parse_arguments(types, argv, SIMCSE_PRESETS)
    set_up_logging(args)
    set_seed(args.seed)
    model = load_model(model_args, data_args.max_length, sentences=1)
    data = load_simcse_data(simcse_args.examples, data_args, args)
    evaluator = StsEvaluator(data.sts) if data.sts else None
    mlm = simcse_args.mlm_weight > 0
    has_fresh_head = mlm and not model.has_lm_head
    if mlm:
        model.has_lm_head = True
    else:
        model.freeze_lm_head()
    if simcse_args.training_head:
        model.add_training_head()
    kind = simcse_args.augmentation
    trainer = SimilarityTrainer(
        model=model,
        args=args,
        objective=make_simcse_objective(simcse_args),
        evaluator=evaluator,
        fresh_head="cls.predictions" if has_fresh_head else None,
        train_dataset=data.train,
        eval_dataset=data.sts,
        data_collator=SimCseCollator(
            model.rows,
            max_length=data_args.max_length,
            max_chars=data_args.max_chars,
            mlm=mlm,
            augmentation=Augmentation(kind, simcse_args.augmentation_rate) if kind else None,
        ),
    )
    run(trainer)
    return trainer


if __name__ == "__main__":
    try:
        main()
    except (DataError, ValueError, OSError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
