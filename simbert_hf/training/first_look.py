"""First checks of the training data: can the base model read them, and are there negatives?"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from simbert_hf.data import DataError, FixedPairs, PairDataset, PairStream
from simbert_hf.rows import unread
from simbert_hf.utils.textfiles import shorten

logger = logging.getLogger(__name__)

SAMPLE = 1000  # sentences
MANY_PAIRS = 100
LABELS = 0.05  # distinct values per row, below which they are rarely sentences
CHUNK = 10_000  # groups


def spread(length: int, sample: int = SAMPLE) -> list[int]:
    """Choose evenly spaced rows of a file, which may be sorted; by default at most a thousand.

    Example:
        >>> spread(3), len(spread(2500)), spread(2500)[-1]
        ([0, 1, 2], 1000, 2497)
    """
    count = min(length, sample)
    return [i * length // count for i in range(count)]


def some_sentences(data: Any) -> list[str]:
    """Take one sentence from each of at most a thousand rows, the first ones of a stream."""
    if isinstance(data, FixedPairs):
        return [data.columns["source"][row] for row in spread(len(data))]
    groups = data.groups
    if isinstance(data, PairStream):
        found = [row["texts"] for row in groups.take(SAMPLE)]
    else:
        found = groups[spread(len(groups))]["texts"]
    return [texts[i % len(texts)] for i, texts in enumerate(found)]


def check_read(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], files: Sequence[str]
) -> None:
    """Raise a DataError if a model cannot read at least half of a sample of sentences."""
    sample = [texts[row] for row in spread(len(texts))]
    unknown = unread(tokenizer, sample)
    if sample and 2 * len(unknown) >= len(sample):
        raise DataError(
            f"{', '.join(files)}: {len(unknown) / len(sample):.0%} of the sentences are mostly "
            f"unknown tokens to the base model ({unknown[0]!r:.40}): use one of their language, or "
            "for a new GRU a lower --min_count."
        )


def warn_of_labels(groups: Dataset, columns: Sequence[str], files: Sequence[str]) -> None:
    """Warn if one of two columns that were named as a pair repeats as labels do."""
    pairs = groups[spread(len(groups), 10 * SAMPLE)]["texts"]
    for texts, name, other in zip(zip(*pairs, strict=True), columns, columns[::-1], strict=True):
        values = set(texts)
        if len(texts) > MANY_PAIRS and len(values) < LABELS * len(texts):
            logger.warning(
                "%s has %d different values of %s in %d rows, such as %s: they are trained as "
                "paraphrases. If they are labels, give --data_format groups --text_columns %s %s "
                "instead.",
                *(", ".join(files), len(values), name, len(texts), shorten(texts[0])),
                *(name, other),
            )


def warn_of_few_negatives(data: Any, size: int) -> None:
    """Warn if a batch must hold pairs connected by shared sentences, which are no negatives."""
    if not isinstance(data, PairDataset):
        return
    column, components = data.groups.select_columns("group"), set[int]()
    for start in range(0, len(column), CHUNK):
        components.update(column[start : start + CHUNK]["group"])
        if len(components) >= size:
            return
    logger.warning(
        "The groups form %d sets that share no sentence, fewer than the %d pairs of a batch: many "
        "have few negatives or none, which also inflates similarity_accuracy. Split the groups, or "
        "give a smaller --per_device_train_batch_size.",
        len(components),
        size,
    )
