"""Train SimBERT: one model that writes paraphrases and embeds sentences.

accelerate launch scripts/train_simbert.py --model_name_or_path DIR_OR_ID --train_file pairs.jsonl \
    --output_dir out            (or: accelerate launch scripts/train_simbert.py config.yaml)
"""

from __future__ import annotations

from collections.abc import Sequence

from simbert_hf.arguments import (
    PRESETS,
    DataArguments,
    ModelArguments,
    ObjectiveArguments,
    SimilarityTrainingArguments,
)
from simbert_hf.evaluation.evaluators import SimBertEvaluator
from simbert_hf.trainer import SimilarityTrainer
from simbert_hf.training.base_models import load_model
from simbert_hf.training.run import begin, run
from simbert_hf.training.simbert import (
    load_training_data,
    make_simbert_collator,
    make_simbert_objective,
    prepare_simbert,
)
from simbert_hf.utils.parsing import parse_arguments
from simbert_hf.utils.script import run_script


def main(argv: Sequence[str] | None = None) -> SimilarityTrainer:
    """Train and save a model; return the trainer, whose state holds the log."""
    types = (ModelArguments, DataArguments, ObjectiveArguments, SimilarityTrainingArguments)
    model_args, data_args, objective_args, args = parse_arguments(types, argv, PRESETS)
    begin(args, [model_args.model_name_or_path, *objective_args.teacher_name_or_path])
    model = load_model(model_args, data_args.max_length)
    data = load_training_data(objective_args, data_args, args)
    fresh_head = prepare_simbert(model, data, objective_args, data_args)
    objective = make_simbert_objective(objective_args, data, args)
    collator = make_simbert_collator(model, data, objective_args, data_args)
    evaluator = None
    if data.validation is not None:
        samples = data.samples if model.has_lm_head else []  # else it cannot paraphrase
        evaluator = SimBertEvaluator(data.validation, collator, objective, data.sts, samples)
    trainer = SimilarityTrainer(
        model=model,
        args=args,
        objective=objective,
        evaluator=evaluator,
        fresh_head=fresh_head,
        train_dataset=data.train,
        data_collator=collator,
    )
    run(trainer, model_args, data_args, objective_args)
    return trainer


if __name__ == "__main__":
    run_script(main)
