"""Rank answers by their nearest vectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from simbert_hf.index.stores import VectorStore
from simbert_hf.utils.arrays import Ints, Vectors

MOST = 4096  # vectors fetched for one query, at most, where a search is not a scan
CELLS = 2**22  # results held at a time


class Found(NamedTuple):
    """A group, its score, and the row whose question is the nearest."""

    code: int
    score: float
    number: int


def nearest_groups(
    store: VectorStore, groups: tuple[Ints, Ints], vectors: Vectors, k: int, votes: int
) -> list[list[Found]]:
    """Rank groups by the mean cosine of their ``votes`` nearest rows, of all if they have fewer.

    More vectors are fetched until no other group can be among the k best, so that with an exact
    store the result is the same as when every row is scored.

    Args:
        store: Vectors of the rows.
        groups: Group of each row, and number of rows of each group. Shapes: (N,), (G,).
        vectors: Vectors of the queries. Shape: (Q, D).
        k: Number of groups wanted.
        votes: Number of rows that score a group.

    Returns:
        For each query, at most k groups, best first.
    """
    k = min(k, int(np.count_nonzero(groups[1])))  # else no search could find enough
    limit = len(store) if store.exact else min(len(store), MOST)
    fetch = min(limit, max(32, 4 * k * votes))
    found: list[list[Found]] = [[] for _ in vectors]
    pending = np.arange(len(vectors))
    while len(pending) and fetch:
        unsure = []
        for query, row_scores, row_numbers in _searched(store, vectors, pending, fetch):
            all_seen = bool(row_numbers[-1] < 0) or fetch == limit
            ranked, open_codes = _rank(row_scores, row_numbers, groups, votes)
            found[query] = ranked[:k]
            sure = len(ranked) >= k and not any(hit.code in open_codes for hit in ranked[:k])
            if not (sure or all_seen):
                unsure.append(query)
        pending = np.array(unsure, dtype=np.int64)
        fetch = min(limit, 4 * fetch)
    return found


def _searched(
    store: VectorStore, vectors: Vectors, queries: Ints, fetch: int
) -> Iterator[tuple[int, Vectors, Ints]]:
    """Search block by block; yield each query with the cosines and numbers found."""
    block = max(1, CELLS // fetch)
    for start in range(0, len(queries), block):
        chosen = queries[start : start + block]
        yield from zip(chosen.tolist(), *store.search(vectors[chosen], fetch), strict=True)


def _rank(
    scores: Vectors, numbers: Ints, groups: tuple[Ints, Ints], votes: int
) -> tuple[list[Found], set[int]]:
    """Rank the groups of fetched rows; also return those with votes that may not be fetched.

    Such a vote scores no more than the last row fetched, which stands in for it.
    """
    codes, sizes = groups
    here = (numbers >= 0) & (sizes[codes[numbers]] > 0)  # a failed removal may leave others
    cast: dict[int, list[float]] = {}
    nearest: dict[int, int] = {}
    rows = zip(
        codes[numbers[here]].tolist(), scores[here].tolist(), numbers[here].tolist(), strict=True
    )
    for code, score, number in rows:
        nearest.setdefault(code, number)
        given = cast.setdefault(code, [])
        if len(given) < votes:
            given.append(score)
    floor = float(scores[here][-1]) if here.any() else 0.0
    ranked, open_codes = [], set()
    for code, given in cast.items():
        due = min(votes, int(sizes[code]))
        if len(given) < due:
            open_codes.add(code)
        total = sum(given) + floor * (due - len(given))
        ranked.append(Found(code, total / due, nearest[code]))
    ranked.sort(key=lambda hit: (-hit.score, hit.number))
    return ranked, open_codes
