"""Mine hard negatives of groups by any sentence-transformers model, or by BM25."""

from __future__ import annotations

import csv
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import datasets
import numpy as np
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import mine_hard_negatives

from simbert_hf.data import DataError
from simbert_hf.data.triplets import Triplet
from simbert_hf.mining.bm25 import nearest_by_words
from simbert_hf.utils.atomic import whole
from simbert_hf.utils.extras import require
from simbert_hf.utils.text import fold

logger = logging.getLogger(__name__)

SCORES = 2**25  # scores held at a time, at most
ONE_GROUP = (
    "All sentences are in one group, so there are no negatives: give at least two groups. Those "
    "that share a sentence count as one."
)


@dataclass(frozen=True)
class MiningSettings:
    """Settings of what counts as a hard negative.

    Attributes:
        num_negatives: Maximum number of negatives per anchor.
        range_min: Skip this many of the nearest sentences of other groups that the margin leaves:
            they are the likeliest to mean the same.
        range_max: Look at no more than this many; if None, at ``range_min`` plus
            ``num_negatives``, or plus ten times ``num_negatives`` with a margin.
        relative_margin: A negative's cosine with the anchor must be below the lowest of its
            positives' by at least this share of it (0.05 in NV-Retriever, Moreira et al. 2024,
            https://arxiv.org/abs/2407.15831); None for no margin.
        absolute_margin: The same, as a difference of cosines.
        max_per_group: Maximum number of sentences mined per group; drawn at random from larger
            ones.

    Raises:
        ValueError: If a value is out of range.
    """

    num_negatives: int = 1
    range_min: int = 0
    range_max: int | None = None
    relative_margin: float | None = None
    absolute_margin: float | None = None
    max_per_group: int = 16

    def __post_init__(self) -> None:
        if self.num_negatives < 1 or self.range_min < 0 or self.max_per_group < 2:
            raise ValueError(
                f"num_negatives {self.num_negatives} must be at least 1, range_min "
                f"{self.range_min} at least 0 and max_per_group {self.max_per_group} at least 2."
            )
        least = self.range_min + self.num_negatives
        if self.range_max is not None and self.range_max < least:
            raise ValueError(
                f"range_max {self.range_max} is too small for num_negatives {self.num_negatives} "
                f"beyond the first {self.range_min}; give at least {least}."
            )


def mine_triplets(
    groups: datasets.Dataset,
    model: SentenceTransformer,
    settings: MiningSettings | None = None,
    *,
    seed: int = 0,
    batch_size: int = 64,
    use_faiss: bool = False,
) -> list[Triplet]:
    """Find every sentence's nearest sentences of other groups.

    Args:
        groups: A data set of groups.
        model: Embeds the sentences.
        settings: What is near enough, and what is too near.
        seed: Draws each triplet's positive, and the members of large groups.
        batch_size: Sentences per forward pass.
        use_faiss: Search with faiss (the extra ``index``): the same sentences, faster where there
            are very many; on GPUs it compares in half precision.

    Returns:
        A triplet for each anchor and negative; none for anchors without a negative in range. Rows
        of one ``group``, which share a sentence, never give negatives of each other.

    Raises:
        DataError: If there are no negatives at all.
        ImportError: If ``use_faiss`` is set and faiss is not installed.

    Example:
        >>> from simbert_hf import DEFAULT_MODEL
        >>> from simbert_hf.encoders.loader import load_sentence_transformer
        >>> texts = [["open the door", "the door, please"], ["shut the door", "close it"]]
        >>> groups = datasets.Dataset.from_dict({"texts": texts, "group": [0, 1]})
        >>> mine_triplets(groups, load_sentence_transformer(DEFAULT_MODEL))[0]
        Triplet(anchor='open the door', positive='the door, please', negative='shut the door')
    """
    settings = settings or MiningSettings()
    if use_faiss:
        require("faiss", "index")
    rng = np.random.default_rng(seed)
    members = _draw_members(groups, settings.max_per_group, rng)
    # The library leaves out an anchor's positives, so the anchor is made one of its own.
    pairs = [
        {"anchor": anchor, "positive": positive}
        for texts in members
        for anchor in texts
        for positive in texts
    ]
    found = mine_hard_negatives(
        datasets.Dataset.from_list(pairs),
        model,
        num_negatives=settings.num_negatives,
        range_min=settings.range_min,
        range_max=settings.range_max,
        relative_margin=settings.relative_margin,
        absolute_margin=settings.absolute_margin,
        batch_size=batch_size,
        faiss_batch_size=max(1, SCORES // sum(map(len, members))),
        use_faiss=use_faiss,
        verbose=False,
    )
    return _one_positive_each(found, members, rng)


def mine_by_words(
    groups: datasets.Dataset, settings: MiningSettings | None = None, *, seed: int = 0
) -> list[Triplet]:
    """Find every sentence's nearest sentences of other groups by their words alone (BM25).

    Args:
        groups: A data set of groups.
        settings: What is near enough, without margins, as these refer to cosines.
        seed: As for :func:`mine_triplets`.

    Returns:
        As :func:`mine_triplets`; a sentence without a word in common is not a negative.

    Raises:
        DataError: If there are no negatives at all.
        ImportError: If bm25s is not installed.
        ValueError: If a margin is given.

    Example:
        >>> texts = [["open the door", "the door, please"], ["shut the door", "close it"]]
        >>> groups = datasets.Dataset.from_dict({"texts": texts, "group": [0, 1]})
        >>> mine_by_words(groups)[0]
        Triplet(anchor='open the door', positive='the door, please', negative='shut the door')
    """
    settings = settings or MiningSettings()
    if settings.relative_margin is not None or settings.absolute_margin is not None:
        raise ValueError("BM25 has no cosines: drop --relative_margin and --absolute_margin.")
    rng = np.random.default_rng(seed)
    members = _draw_members(groups, settings.max_per_group, rng)
    texts = [text for group in members for text in group]
    owner = np.repeat(np.arange(len(members)), [len(group) for group in members])
    last = settings.range_min + settings.num_negatives  # no margin makes it look at more
    depth = min(len(texts), last + max(map(len, members)))
    nearest = np.concatenate(list(nearest_by_words(texts, depth)))
    rows = []
    for i, anchor in enumerate(texts):
        others = nearest[i][(owner[nearest[i]] != owner[i]) & (nearest[i] >= 0)]
        rows += [
            {"anchor": anchor, "positive": positive, "negative": texts[j]}
            for j in others[settings.range_min : last]
            for positive in members[owner[i]]
        ]
    return _one_positive_each(rows, members, rng)


def _draw_members(groups: datasets.Dataset, most: int, rng: np.random.Generator) -> list[list[str]]:
    """Put rows of one group together, each sentence in one spelling, and draw from large ones.

    Raises:
        DataError: If there is only one group.
    """
    by_group: dict[int, dict[str, str]] = {}
    for row in groups:
        members = by_group.setdefault(row["group"], {})
        for text in row["texts"]:
            members.setdefault(fold(text), text)
    if len(by_group) < 2:
        raise DataError(ONE_GROUP)
    return [
        texts if len(texts) <= most else rng.choice(texts, most, replace=False).tolist()
        for texts in (list(members.values()) for members in by_group.values())
    ]


def _one_positive_each(
    rows: Iterable[dict[str, str]], members: Sequence[Sequence[str]], rng: np.random.Generator
) -> list[Triplet]:
    """Draw one of each anchor and negative's positives; warn of sentences without a negative.

    Raises:
        DataError: If there are no rows.
    """
    positives: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row["positive"] != row["anchor"]:
            positives.setdefault((row["anchor"], row["negative"]), []).append(row["positive"])
    if not positives:
        raise DataError(
            "No hard negative is in range: lower range_min or the margin, or raise range_max."
        )
    anchors = {anchor for anchor, _ in positives}
    texts = set(chain(*(group for group in members if len(group) > 1)))
    if few := len(texts - anchors):
        logger.warning(
            "%s of %s sentences have no negative in range and are not used as anchors: for more, "
            "lower range_min or the margin, or raise range_max.",
            *(f"{few:,}", f"{len(texts):,}"),
        )
    return [
        Triplet(anchor, found[rng.integers(len(found))], negative)
        for (anchor, negative), found in positives.items()
    ]


def write_triplets(path: str | Path, triplets: Sequence[Triplet]) -> None:
    """Write triplets as the CSV file that :func:`simbert_hf.data.load_triplets` reads.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from simbert_hf.data import load_triplets
        >>> with TemporaryDirectory() as folder:
        ...     write_triplets(Path(folder, "mined.csv"), [Triplet("Hi", "Hello", "Bye, then")])
        ...     load_triplets(Path(folder, "mined.csv"))
        [Triplet(anchor='Hi', positive='Hello', negative='Bye, then')]
    """
    with whole(Path(path)) as part, part.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("sent0", "sent1", "hard_neg"), *triplets])
