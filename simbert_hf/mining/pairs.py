"""Mine paraphrase groups from raw sentences: mutual neighbours by words or vectors, not copies."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.cluster.hierarchy import DisjointSet

from simbert_hf.mining.bm25 import nearest_by_words
from simbert_hf.utils.arrays import Ints, Vectors
from simbert_hf.utils.text import letters_of
from simbert_hf.utils.textfiles import DataError

logger = logging.getLogger(__name__)

BLOCK = 4096  # sentences that search at a time


@dataclass(frozen=True)
class PairSettings:
    """Settings of what makes two sentences a pair.

    Attributes:
        neighbours: Number of nearest sentences considered, by words and by vectors each. Two that
            are among each other's form a pair.
        min_similarity: Minimum cosine of a pair.
        max_similarity: Maximum cosine of a pair: nearer sentences add little.
        max_group_size: Maximum sentences per group: the nearest pairs are joined first, and a pair
            that would make a group too large is left out, as chains would join dissimilar
            sentences.
        words: Look for neighbours by words (BM25) too.

    Raises:
        ValueError: If a value is out of range.
    """

    neighbours: int = 10
    min_similarity: float = 0.8
    max_similarity: float = 0.98
    max_group_size: int = 6
    words: bool = True

    def __post_init__(self) -> None:
        if self.neighbours < 1 or self.max_group_size < 2:
            raise ValueError(
                f"neighbours {self.neighbours} must be at least 1 and max_group_size "
                f"{self.max_group_size} at least 2."
            )
        if not -1 <= self.min_similarity < self.max_similarity <= 1:
            raise ValueError(
                f"min_similarity {self.min_similarity} must be below max_similarity "
                f"{self.max_similarity}, both from -1 to 1."
            )


class Mined(NamedTuple):
    """Groups of sentences, and the counts of each step.

    Attributes:
        groups: Groups of two sentences or more.
        counts: Number of sentences, mutual pairs, pairs within the cosines, groups and grouped
            sentences.
    """

    groups: list[list[str]]
    counts: dict[str, int]


def different(sentences: Sequence[str]) -> list[str]:
    """Keep the first of sentences that differ only in case, white space and punctuation.

    Example:
        >>> different(["How are you?", "how are  you", "Who are you?", "?!"])
        ['How are you?', 'Who are you?']
    """
    kept: dict[str, str] = {}
    for text in sentences:
        if letters := letters_of(text):
            kept.setdefault(letters, " ".join(text.split()))
    return list(kept.values())


def check_sentences(sentences: Sequence[str]) -> None:
    """Raise a DataError if there are fewer than two sentences.

    Example:
        >>> check_sentences(["is it late", "go home"])
    """
    if len(sentences) < 2:
        raise DataError("Pairs need at least two different sentences.")


def mine_groups(
    sentences: Sequence[str], vectors: Vectors, settings: PairSettings | None = None
) -> Mined:
    """Join sentences that are near each other into groups.

    Neighbours are found by faiss, exactly below 100,000 sentences, and by BM25; Su (2020) built
    SimBERT's 22 million training groups from retrieved questions in a similar way.

    Args:
        sentences: What :func:`different` returns.
        vectors: Unit vectors, one per sentence. Shape: (N, D).
        settings: What makes a pair.

    Raises:
        DataError: If there are fewer than two sentences, or no pairs among them.
        ImportError: If faiss or bm25s is not installed.

    Example:
        >>> vectors = np.array([[1, 0], [0.9, 0.4359], [0, 1]], dtype=np.float32)
        >>> mine_groups(["is it late", "is it very late", "go home"], vectors).groups
        [['is it late', 'is it very late']]
    """
    settings = settings or PairSettings()
    check_sentences(sentences)
    pairs = mutual_pairs(_near_by_vectors(vectors, settings.neighbours), len(sentences))
    if settings.words:
        near = nearest_by_words(sentences, settings.neighbours + 1)
        by_words = mutual_pairs(near, len(sentences))
        pairs = np.unique(np.concatenate([pairs, by_words]), axis=0)
    cosines = _cosines(vectors, pairs)
    inside = (cosines >= settings.min_similarity) & (cosines <= settings.max_similarity)
    if not inside.any():
        raise DataError(
            f"None of {len(pairs):,} mutual neighbours has a cosine from "
            f"{settings.min_similarity} to {settings.max_similarity}: decrease "
            "min_similarity, or increase neighbours."
        )
    order = np.argsort(-cosines[inside], kind="stable")
    members = join(pairs[inside][order], settings.max_group_size)
    groups = [[sentences[i] for i in group] for group in members]
    counts = {
        "sentences": len(sentences),
        "mutual pairs": len(pairs),
        "pairs within the cosines": int(inside.sum()),
        "groups": len(groups),
        "grouped sentences": sum(map(len, groups)),
    }
    return Mined(groups, counts)


def mutual_pairs(blocks: Iterator[Ints], count: int) -> Ints:
    """Find the pairs of sentences that are among each other's neighbours.

    Args:
        blocks: Neighbours of each sentence, block by block, -1 for none. Shape: (rows, k).
        count: Number of sentences, N.

    Returns:
        Pairs (i, j), i < j, ascending. Shape: (P, 2).

    Example:
        >>> mutual_pairs(iter([np.array([[1, 2], [0, -1], [1, -1]])]), 3)
        array([[0, 1]])
    """
    keys, first = [], 0
    for block in blocks:
        rows, columns = np.nonzero(block >= 0)
        there = block[rows, columns]
        here = rows + first
        low, high = np.minimum(here, there), np.maximum(here, there)
        # One number for a pair and its direction: a mutual pair occurs in both, a sentence with
        # itself only in one.
        keys.append((low * count + high) * 2 + (here > there))
        first += len(block)
    found = np.unique(np.concatenate(keys)) // 2
    mutual = found[1:][found[1:] == found[:-1]]
    return np.stack([mutual // count, mutual % count], axis=1)


def join(pairs: Ints, max_group_size: int) -> list[list[int]]:
    """Join pairs, in their order, into connected groups of at most ``max_group_size`` members.

    Example:
        >>> join(np.array([[0, 1], [1, 2], [3, 4]]), max_group_size=2)
        [[0, 1], [3, 4]]
    """
    sets = DisjointSet(np.unique(pairs).tolist())
    for one, other in pairs.tolist():
        if sets.subset_size(one) + sets.subset_size(other) <= max_group_size:
            sets.merge(one, other)
    return [sorted(members) for members in sets.subsets() if len(members) > 1]


def _near_by_vectors(vectors: Vectors, k: int) -> Iterator[Ints]:
    from simbert_hf.index.stores import FaissVectors

    store = FaissVectors()
    store.add(vectors)
    logger.info("%s vectors indexed (%s)", f"{len(vectors):,}", store.kind)
    for start in range(0, len(vectors), BLOCK):
        yield store.search(vectors[start : start + BLOCK], min(k + 1, len(vectors)))[1]


def _cosines(vectors: Vectors, pairs: Ints) -> Vectors:
    """Compute the cosines of pairs, block by block. Shape: (P,)."""
    blocks = [pairs[i : i + 2**16] for i in range(0, len(pairs), 2**16)]
    found = [np.einsum("pd,pd->p", vectors[block[:, 0]], vectors[block[:, 1]]) for block in blocks]
    cosines = np.concatenate(found) if found else np.zeros(0, dtype=np.float32)
    return cosines.clip(-1, 1)  # rounding can put that of a vector with itself above 1
