"""The data to train and evaluate on, as given by the training scripts' arguments."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from datasets import Dataset
from transformers import SchedulerType

from simbert_hf.arguments import FOLLOWING, DataArguments, SimilarityTrainingArguments, refuse_idle
from simbert_hf.data import DataError, load_groups, load_scored_pairs, split_groups, usual_share
from simbert_hf.data.groups import is_local
from simbert_hf.data.scored import ScoredPair, check_scores
from simbert_hf.evaluation.evaluators import Evaluator, RetrievalEvaluator, StsEvaluator
from simbert_hf.training.first_look import warn_of_labels
from simbert_hf.utils.text import fold
from simbert_hf.utils.textfiles import fault

logger = logging.getLogger(__name__)

Texts = TypeVar("Texts", bound=tuple[str, ...])  # of a row
MANY = 3  # holding out more than one sentence in so many is too much
WANTED = "--validation_file with groups"  # to choose the best model by


def measure_nothing(args: SimilarityTrainingArguments, wanted: str = WANTED) -> None:
    """Train without evaluation, for which ``wanted`` is missing."""
    if args.should_log:
        logger.warning(
            "Nothing is evaluated during training, so the last model is kept, not the best: give "
            "%s to choose the best.",
            wanted,
        )
    args.eval_on_start = False
    never_evaluate(args)


def never_evaluate(args: SimilarityTrainingArguments) -> None:
    """Turn evaluation off, and with it what depends on it.

    Raises:
        ValueError: If the learning rate depends on it.
    """
    kind = SchedulerType(args.lr_scheduler_type).value
    if kind in FOLLOWING:
        raise ValueError(
            f"--lr_scheduler_type {kind} follows a metric, but nothing would be evaluated during "
            "training: choose another."
        )
    args.eval_strategy, args.load_best_model_at_end = "no", False
    if args.save_strategy == "best":  # there is none, but a killed run needs a checkpoint
        args.save_strategy = "steps"


def make_evaluator(
    held_out: Dataset | None,
    data_args: DataArguments,
    args: SimilarityTrainingArguments,
    wanted: str = WANTED,
) -> Evaluator | None:
    """Make an evaluator of vectors from held-out groups and ``--sts_file``, if there are any.

    Otherwise a warning says what is ``wanted``.

    Raises:
        DataError: If the file cannot be read, or has no two different scores.
    """
    sts = load_sts(data_args)
    if held_out is not None:
        return RetrievalEvaluator(held_out, sts)
    if sts:
        return StsEvaluator(sts)
    measure_nothing(args, wanted)
    return None


def check_measured(held_out: Dataset | None, data_args: DataArguments) -> None:
    """Refuse evaluation data that would be ignored without held-out groups.

    Raises:
        ValueError: If ``--sts_file`` or ``--sample_sentences`` is given and no group is held out.
    """
    for name in ("sts_file", "sample_sentences"):
        if held_out is None and getattr(data_args, name):
            raise ValueError(
                f"--{name} belongs to the evaluation on held-out groups, but there are none: give "
                f"--validation_file or --validation_groups, or drop --{name}."
            )


def hold_out(
    groups: Any, data_args: DataArguments, args: SimilarityTrainingArguments
) -> tuple[Any, Dataset | None]:
    """Split the groups into training and held-out ones, with no sentence on both sides."""
    if data_args.validation_file:
        held_out = read_groups(data_args, args, held_out=True)
        return without_sentences_of(held_out, groups), held_out
    if data_args.streaming:
        return groups, None
    wanted = data_args.validation_groups
    wanted = usual_share(groups) if wanted is None else wanted
    if not wanted:
        return groups, None
    kept, held_out = split_groups(groups, wanted, seed=args.seed)
    sizes = [count_sentences(part) for part in (kept, held_out)]
    logger.info(
        "held out for evaluation: %s of %s groups",
        *(f"{count:,}" for count in (len(held_out), len(kept) + len(held_out))),
    )
    if MANY * sizes[1] > sum(sizes):
        logger.warning(
            "More than a third of all sentences are held out, as a few groups are very large. Give "
            "a --validation_file, or another --seed for another split."
        )
    return kept, held_out


def count_sentences(groups: Dataset) -> int:
    """Count the sentences of groups, without reading them."""
    tables = groups.select_columns("texts").with_format("arrow").iter(10_000)
    return sum(len(table["texts"].combine_chunks().flatten()) for table in tables)


def without_sentences_of(held_out: Dataset, groups: Any) -> Any:
    """Drop held-out sentences, ignoring case and white space, and groups left with less than two.

    Raises:
        DataError: If no group is left.
    """
    seen = folded(held_out)
    touched = partial(_without, seen)
    kept = groups.map(touched, input_columns="texts").filter(_are_several, input_columns="texts")
    if isinstance(kept, Dataset):
        if not len(kept):
            raise DataError("No training group is left without sentences of the validation file.")
        logger.info("left out held-out sentences, and with them %d groups", len(groups) - len(kept))
    return kept


def folded(held_out: Dataset) -> set[str]:
    """Collect held-out sentences, normalised in case and white space."""
    return {fold(text) for texts in held_out["texts"] for text in texts}


def disjoint_from(held_out: Dataset | None) -> Callable[[Iterable[str]], bool]:
    """Make a function that checks that no sentence is held out, ignoring case and white space."""
    seen = set() if held_out is None else folded(held_out)
    return lambda texts: seen.isdisjoint(map(fold, texts))


def _without(seen: set[str], texts: list[str]) -> dict[str, list[str]]:
    return {"texts": [text for text in texts if fold(text) not in seen]}


def _are_several(texts: list[str]) -> bool:
    return len(texts) > 1


def load_unseen(
    load: Callable[[str], list[Texts]], files: Sequence[str], held_out: Dataset | None, what: str
) -> list[Texts]:
    """Read rows of sentences, except those with held-out ones.

    Raises:
        DataError: If a file cannot be read, or nothing is left.
    """
    rows = [row for file in files for row in load(file)]
    kept = list(filter(disjoint_from(held_out), rows))
    if rows and not kept:
        raise DataError(f"{', '.join(files)}: every {what} holds a held-out sentence.")
    if len(kept) < len(rows):
        logger.info("left out %d %ss with held-out sentences", len(rows) - len(kept), what)
    return kept


def load_sts(data_args: DataArguments) -> list[ScoredPair]:
    """Read ``--sts_file``, if given; raise a DataError if it has no two different scores."""
    if not data_args.sts_file:
        return []
    pairs = load_scored_pairs(data_args.sts_file)
    check_scores(data_args.sts_file, pairs)
    return pairs


def read_groups(
    data_args: DataArguments, args: SimilarityTrainingArguments, held_out: bool = False
) -> Any:
    """Read groups to train on, or ``held_out`` ones, in the main process first; log the counts."""
    files = [str(data_args.validation_file)] if held_out else data_args.train_file
    check_files(files)
    hub_options: dict[str, Any] = {}
    columns = data_args.text_columns
    if not held_out:
        hub_options = {"name": data_args.dataset_config, "split": data_args.dataset_split}
        if all(map(is_local, files)):
            idle = ["dataset_config", "dataset_split"]
            refuse_idle(data_args, idle, "--train_file names no data set on the Hub")
    with args.main_process_first(desc="reading the data"):
        groups, report = load_groups(
            files,
            data_format=data_args.data_format,  # type: ignore[arg-type]
            text_columns=columns or None,
            max_chars=data_args.max_chars or 4 * data_args.max_length,
            streaming=data_args.streaming and not held_out,
            **hub_options,
        )
    logger.info("%s: %s", ", ".join(files), report)
    if held_out and len(set(groups["group"])) < 2:
        remedy = "Add groups that share no sentence"
        raise fault(files[0], None, "has all sentences in one group", remedy)
    pairs = data_args.data_format in ("auto", "pairs") and isinstance(groups, Dataset)
    if columns and pairs and args.should_log and not held_out:
        warn_of_labels(groups, columns, files)
    return groups


def check_files(files: Sequence[str]) -> None:
    """Raise a DataError if there are no files."""
    if not files:
        raise DataError("There are no training data; give --train_file with a file of examples.")
