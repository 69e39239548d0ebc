"""What the training scripts share: logging, data, the run itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sentence_transformers import SentenceTransformer
from torch import Tensor
from transformers.trainer_utils import get_last_checkpoint

from simbert_hf.arguments import DataArguments, SimCseArguments, SimilarityTrainingArguments
from simbert_hf.checkpoint import quiet_transformers
from simbert_hf.data import (
    DataError,
    FixedPairs,
    PairDataset,
    PairStream,
    load_groups,
    load_scored_pairs,
    load_sentences,
    load_triplets,
    split_groups,
)
from simbert_hf.objectives import ScoredPairObjective, SimCseObjective
from simbert_hf.trainer import SimilarityTrainer

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingData:
    """What one run trains and is measured on."""

    train: PairDataset | FixedPairs | PairStream
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
    groups = read_groups(data_args.train_file, data_args, args, streaming=data_args.streaming)
    held_out = None
    if data_args.validation_file:
        held_out = read_groups([data_args.validation_file], data_args, args)
    elif not data_args.streaming:
        wanted = data_args.validation_groups
        wanted = min(500, len(groups) // 10) if wanted is None else wanted
        if wanted:
            groups, held_out = split_groups(groups, wanted, seed=args.seed)
    seed = seed_of_data(args)
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


def load_simcse_data(
    examples: str, data_args: DataArguments, args: SimilarityTrainingArguments
) -> TrainingData:
    """Read what SimCSE trains on; without ``--sts_file`` nothing is evaluated.

    Args:
        examples: sentences, pairs, triplets or scored.
        data_args: Names the files.
        args: Its seed draws the pairs.

    Raises:
        DataError: If a file cannot be read, or nothing is left to train on.
        ValueError: If an argument asks for what SimCSE does not do.
    """
    if data_args.streaming or data_args.validation_file:
        raise ValueError(
            "SimCSE reads its examples whole and is evaluated on --sts_file: drop --streaming and "
            "--validation_file."
        )
    files, seed = data_args.train_file, seed_of_data(args)
    train: PairDataset | FixedPairs
    if examples == "pairs":
        train = PairDataset(read_groups(files, data_args, args), seed)
    else:
        train = FixedPairs(read_columns(examples, files), seed)
        logger.info("%s: %d %s", ", ".join(files), len(train), examples)
    sts = load_scored_pairs(data_args.sts_file) if data_args.sts_file else []
    if not sts:
        args.eval_strategy, args.load_best_model_at_end = "no", False
    return TrainingData(train, None, sts, [])


def make_simcse_objective(args: SimCseArguments) -> SimCseObjective | ScoredPairObjective:
    """Build the objective that the arguments name."""
    if args.examples == "scored":
        loss: Literal["cosent", "angle"] = "angle" if args.loss == "angle" else "cosent"
        return ScoredPairObjective(loss=loss, scale=args.scale)
    return SimCseObjective(
        scale=args.scale,
        symmetric=args.loss == "symmetric",
        hard_negative_weight=args.hard_negative_weight,
        mlm_weight=args.mlm_weight,
        mask_false_negatives=args.mask_false_negatives,
    )


def read_groups(
    files: Sequence[str],
    data_args: DataArguments,
    args: SimilarityTrainingArguments,
    streaming: bool = False,
) -> Any:
    """Read groups as the arguments say, the main process first; report what was dropped."""
    check_files(files)
    with args.main_process_first(desc="reading the data"):
        groups, report = load_groups(
            files[0] if len(files) == 1 else files,
            form=data_args.form,  # type: ignore[arg-type]
            text_columns=data_args.pair_columns(),
            max_chars=data_args.max_chars or 4 * data_args.max_length,
            streaming=streaming,
        )
    logger.info("%s: %s", ", ".join(files), report)
    return groups


def read_columns(examples: str, files: Sequence[str]) -> dict[str, Sequence[Any]]:
    """Read sentences, triplets or scored pairs as columns of :class:`FixedPairs`."""
    check_files(files)
    if examples == "sentences":
        sentences = [text for file in files for text in load_sentences(file)]
        return {"source": sentences, "target": sentences}
    load, third = (
        (load_triplets, "negative") if examples == "triplets" else (load_scored_pairs, "score")
    )
    rows: list[tuple[Any, ...]] = [row for file in files for row in load(file)]
    return dict(zip(("source", "target", third), zip(*rows, strict=True), strict=True))


def check_files(files: Sequence[str]) -> None:
    """Raise a DataError where there are none."""
    if not files:
        raise DataError("Nothing to train on; give --train_file with a file of examples.")


def seed_of_data(args: SimilarityTrainingArguments) -> int:
    """Return ``data_seed``, or ``seed`` where that is not given."""
    return args.data_seed if args.data_seed is not None else args.seed


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
    trainer.accelerator.unwrap_model(trainer.model).training_head = None  # checkpoints keep it
    trainer.save_model()
    trainer.save_state()
    metrics: dict[str, Any] = trainer.evaluate() if trainer.evaluator is not None else {}
    trainer.save_metrics("eval", metrics)
    return metrics
