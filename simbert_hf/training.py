"""What the training scripts share: logging, data, the run itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from torch import Tensor
from transformers.trainer_utils import get_last_checkpoint

from simbert_hf.arguments import DataArguments, SimilarityTrainingArguments
from simbert_hf.checkpoint import quiet_transformers
from simbert_hf.data import (
    DataError,
    PairDataset,
    PairStream,
    load_groups,
    load_scored_pairs,
    split_groups,
)
from simbert_hf.trainer import SimilarityTrainer

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingData:
    """What one run trains and is measured on."""

    train: PairDataset | PairStream
    validation: PairDataset | None
    sts: Sequence[tuple[str, str, float]]
    sentences: Sequence[str]


def set_up_logging(args: SimilarityTrainingArguments) -> None:
    """Log to the terminal, from the main process of each machine only."""
    level = logging.INFO if args.should_log else logging.WARNING
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("simbert_hf").setLevel(level)


def load_training_data(data_args: DataArguments, args: SimilarityTrainingArguments) -> TrainingData:
    """Read, check and split the data; report what was dropped.

    Raises:
        DataError: If a file cannot be read, or nothing is left to train on.
    """
    if not data_args.train_file:
        raise DataError("Nothing to train on; give --train_file with a file of pairs or groups.")
    source = data_args.train_file[0] if len(data_args.train_file) == 1 else data_args.train_file
    options: dict[str, Any] = {
        "form": data_args.form,
        "text_columns": data_args.pair_columns(),
        "max_chars": data_args.max_chars or 4 * data_args.max_length,
    }
    with args.main_process_first(desc="reading the training data"):
        groups, report = load_groups(source, streaming=data_args.streaming, **options)
    logger.info("%s: %s", ", ".join(data_args.train_file), report)
    held_out = None
    if data_args.validation_file:
        held_out, report = load_groups(data_args.validation_file, **options)
        logger.info("%s: %s", data_args.validation_file, report)
    elif not data_args.streaming:
        wanted = data_args.validation_groups
        wanted = min(500, len(groups) // 10) if wanted is None else wanted
        if wanted:
            groups, held_out = split_groups(groups, wanted, seed=args.seed)
    seed = args.data_seed if args.data_seed is not None else args.seed
    train = (
        PairDataset(groups, seed)
        if not data_args.streaming
        else PairStream(
            groups,
            seed,
            repeat=True,  # Trainer sees one long epoch, which only an endless stream resumes
        )
    )
    validation = PairDataset(held_out, seed=seed) if held_out is not None else None
    sts = load_scored_pairs(data_args.sts_file) if data_args.sts_file else []
    sentences = data_args.sample_sentences
    if sentences is None and validation is not None:
        sentences = [validation[i]["source"] for i in range(min(4, len(validation)))]
    if validation is None:
        args.eval_strategy, args.load_best_model_at_end = "no", False
    return TrainingData(train, validation, sts, sentences or [])


def load_teacher(
    name_or_path: str | None, args: SimilarityTrainingArguments
) -> Callable[[Sequence[str]], Tensor] | None:
    """Load a frozen sentence-transformers model as a function of texts; None for no name."""
    if name_or_path is None:
        return None
    with quiet_transformers():
        teacher = SentenceTransformer(name_or_path, device=str(args.device))

    def embed(texts: Sequence[str]) -> Tensor:
        vectors: Tensor = teacher.encode(
            list(texts), batch_size=256, convert_to_tensor=True, show_progress_bar=False
        )
        return vectors.clone()  # encode() makes inference tensors, which autograd refuses

    return embed


def run(trainer: SimilarityTrainer) -> dict[str, Any]:
    """Train (or go on training), then save the model, the log and the last figures."""
    args, out = trainer.args, str(trainer.args.output_dir)
    checkpoint: str | None = args.resume_from_checkpoint
    if checkpoint is not None and checkpoint.lower() == "true":
        checkpoint = get_last_checkpoint(out) if Path(out).is_dir() else None
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_model()
    trainer.save_state()
    metrics: dict[str, Any] = trainer.evaluate() if trainer.evaluator is not None else {}
    trainer.save_metrics("eval", metrics)
    return metrics
