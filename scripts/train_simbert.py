"""Train SimBERT: one model that writes paraphrases and embeds sentences.

accelerate launch scripts/train_simbert.py --model_name_or_path DIR_OR_ID --train_file pairs.jsonl \
    --output_dir out            (or: accelerate launch scripts/train_simbert.py config.yaml)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from simbert_hf.arguments import (
    PRESETS,
    DataArguments,
    ModelArguments,
    ObjectiveArguments,
    SimilarityTrainingArguments,
)
from simbert_hf.collators import PairCollator
from simbert_hf.data import load_one_way_pairs, load_triplets
from simbert_hf.evaluation import SimBertEvaluator
from simbert_hf.objectives import LossArguments, SimBertObjective
from simbert_hf.trainer import SimilarityTrainer
from simbert_hf.training.data import load_training_data, load_unpaired, load_unseen
from simbert_hf.training.run import begin, load_teacher, run
from simbert_hf.training.simcse import check_dropout
from simbert_hf.training.starts import load_model
from simbert_hf.utils.parsing import parse_arguments
from simbert_hf.utils.script import run_script


def main(argv: Sequence[str] | None = None) -> SimilarityTrainer:
    """Train and save a model; return the trainer, whose state holds the log."""
    types = (ModelArguments, DataArguments, ObjectiveArguments, SimilarityTrainingArguments)
    model_args, data_args, objective_args, args = parse_arguments(types, argv, PRESETS)
    starts = [model_args.model_name_or_path, *objective_args.teacher_name_or_path]
    begin(args, starts)
    model = load_model(model_args, data_args.max_length)
    data = load_training_data(data_args, args)
    has_fresh_head = objective_args.writes and not model.has_lm_head
    model.has_lm_head |= objective_args.writes
    if not objective_args.writes:
        model.freeze_idle()
    if data_args.sample_sentences and not model.has_lm_head:
        raise ValueError("--sample_sentences are written by an LM head; drop --seq2seq_weight 0.")
    held_out = None if data.validation is None else data.validation.groups
    twice = objective_args.simcse_weight > 0
    unpaired = load_unpaired(objective_args.sentences_file, held_out, twice=twice)
    files = objective_args.preferences_file, objective_args.one_way_file
    preferences = load_unseen(load_triplets, files[0], held_out, "preference")
    one_way = load_unseen(load_one_way_pairs, files[1], held_out, "one-way pair")
    if preferences and args.gradcache_batch_size:
        raise ValueError("Preferences are compared in whole batches: drop --gradcache_batch_size.")
    if unpaired and twice:
        check_dropout(model)
    teacher = load_teacher(objective_args.teacher_name_or_path, unpaired, data, args)
    weights = {each.name: getattr(objective_args, each.name) for each in fields(LossArguments)}
    objective = SimBertObjective(**weights, teacher=teacher)
    collator = PairCollator(
        model.rows,
        max_length=data_args.max_length,
        max_chars=data_args.max_chars,
        mlm=objective_args.mlm_weight > 0,
        denoising=objective_args.denoising,
        texts=objective.teacher is not None,
        sentences=unpaired,
        twice=twice,
        targets=objective_args.seq2seq_weight > 0,
        preferences=preferences,
        one_way=one_way,
    )
    evaluator = None
    if data.validation is not None:
        sentences = data.sentences if model.has_lm_head else []  # else there is nothing to write by
        evaluator = SimBertEvaluator(data.validation, collator, objective, data.sts, sentences)
    trainer = SimilarityTrainer(
        model=model,
        args=args,
        objective=objective,
        evaluator=evaluator,
        fresh_head=model.head_prefix if has_fresh_head else None,
        train_dataset=data.train,
        data_collator=collator,
    )
    run(trainer, model_args, data_args, objective_args)
    return trainer


if __name__ == "__main__":
    run_script(main)
