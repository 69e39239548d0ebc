"""Distribution of vectors on the sphere: alignment, uniformity, spread, histograms of cosines."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import numpy as np

from simbert_hf.evaluation.bootstrap import Figure
from simbert_hf.utils.arrays import Reals

logger = logging.getLogger(__name__)

BINS = np.linspace(-1.0, 1.0, 101)  # edges of the histograms' bins
MOST = 10_000  # vectors that uniformity is estimated from: each is compared with all others
METERED = 2_000  # vectors whose singular values are computed at each evaluation
METER = ("mean_cosine", "effective_rank")  # the figures of a CollapseMeter
COLLAPSED_COSINE = 0.9  # mean cosine above which all sentences look alike
COLLAPSED_RANK = 0.02  # effective rank, as a share of the maximum, below which they do


def alignment(first: Reals, second: Reals) -> float:
    """Mean squared distance of positives, E ||f(x) - f(x+)||^2 (Wang & Isola 2020); less is closer.

    Args:
        first: Unit vectors. Shape: (N, D).
        second: Unit vectors of their positives. Shape: (N, D).

    Returns:
        Between 0 and 4.

    Raises:
        ValueError: If there are no pairs.

    Example:
        >>> alignment(np.eye(2), np.array([[1.0, 0.0], [1.0, 0.0]]))
        1.0
    """
    if not len(first):
        raise ValueError("Alignment needs at least one pair of positives; got none.")
    squares = np.square(first.astype(np.float64) - second).sum(axis=1)
    return float(squares.mean())


def uniformity(vectors: Reals, chunk: int = 1024) -> float:
    """Log mean exp(-2 ||f(x) - f(y)||^2) over pairs of different items; less is more even.

    Wang & Isola (2020). On the unit sphere the squared distance is 2 - 2 cos.

    Args:
        vectors: Unit vectors. Shape: (N, D).
        chunk: Rows compared at a time: memory is chunk * N cosines.

    Returns:
        Between -8 and 0.

    Raises:
        ValueError: If there are fewer than two vectors.

    Example:
        >>> uniformity(np.eye(3))  # each squared distance is 2
        -4.0
    """
    check_two(vectors)
    total = 0.0
    for start in range(0, len(vectors), chunk):
        rows = vectors[start : start + chunk]
        cosines = (rows @ vectors[start:].T).astype(np.float64)
        total += np.triu(np.exp(4 * cosines - 4), k=1).sum()
    n_pairs = len(vectors) * (len(vectors) - 1) / 2
    return float(np.log(total / n_pairs))


def mean_pairwise_cosine(vectors: Reals) -> float:
    """Mean cosine of two different items; near 1, the encoder has collapsed.

    Args:
        vectors: Unit vectors. Shape: (N, D).

    Raises:
        ValueError: If there are fewer than two vectors.

    Example:
        >>> mean_pairwise_cosine(np.array([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]]))
        -0.33...
    """
    check_two(vectors)
    n = len(vectors)
    whole = vectors.astype(np.float64).sum(axis=0)  # all N^2 cosines add up to its square
    return float((whole @ whole - np.square(vectors.astype(np.float64)).sum()) / (n * (n - 1)))


def effective_rank(vectors: Reals) -> float:
    """Exponential of the entropy of the normalised singular values (Roy & Vetterli 2007).

    Args:
        vectors: Shape: (N, D).

    Returns:
        From 1 (all on one line through 0) to min(N, D) (spread evenly).

    Raises:
        ValueError: If there are fewer than two vectors, or one is not finite.

    Example:
        >>> effective_rank(np.eye(3))
        3.0
    """
    check_two(vectors)
    check_finite(vectors)
    values = np.linalg.svd(vectors.astype(np.float64), compute_uv=False)
    shares = values[values > 0] / values.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


@dataclass
class CollapseMeter:
    """Measures at each evaluation whether the vectors are spread out; warns once if they are not.

    Triplets with negatives that are too easy, or too hard for the learning rate, can collapse an
    encoder: all vectors become alike, or keep to a few directions.

    Example:
        >>> CollapseMeter()(np.eye(3))
        {'mean_cosine': 0.0, 'effective_rank': 3.0}
    """

    warned: bool = field(default=False, repr=False)

    def __call__(self, vectors: Reals) -> dict[str, float]:
        """Return mean cosine and effective rank of unit vectors, of at most 2,000 of them."""
        if len(vectors) > METERED:
            vectors = np.random.default_rng(0).choice(vectors, METERED, replace=False)
        cosine, rank = mean_pairwise_cosine(vectors), effective_rank(vectors)
        flat = rank < COLLAPSED_RANK * min(vectors.shape)
        if not self.warned and (cosine > COLLAPSED_COSINE or flat):
            self.warned = True
            logger.warning(
                "Held-out vectors are nearly all alike: a mean cosine of %.2f and an effective "
                "rank of %.1f (at most %d). Unless the base model's are (--eval_on_start true), "
                "the encoder collapses: lower --learning_rate. If negatives are random, mine hard "
                "ones (train_triplet.py --mining, mine_negatives.py); if they are the hardest, "
                "use semi-hard ones or skip the nearest (mine_negatives.py --range_min).",
                cosine,
                rank,
                min(vectors.shape),
            )
        return dict(zip(METER, (cosine, rank), strict=True))


def geometry(first: Reals, second: Reals, vectors: Reals) -> dict[str, Figure]:
    """Alignment of the positives (left out if there are none) and uniformity of the sentences.

    Args:
        first: Unit vectors. Shape: (P, D).
        second: Unit vectors of their positives. Shape: (P, D).
        vectors: Unit vectors of all distinct sentences, of which at most 10,000 are drawn.
            Shape: (N, D).

    Example:
        >>> geometry(np.eye(3)[:0], np.eye(3)[:0], np.eye(3))
        {'uniformity': Figure(value=-4.0)}
    """
    figures = {"alignment": Figure(alignment(first, second))} if len(first) else {}
    if len(vectors) > MOST:
        vectors = np.random.default_rng(0).choice(vectors, MOST, replace=False)
    return figures | {"uniformity": Figure(uniformity(vectors))}


def histogram(cosines: Reals) -> list[int]:
    """Count cosines in the 100 bins of :data:`BINS`, with those that rounding puts beyond -1 and 1.

    Example:
        >>> counts = histogram(np.array([-1.0, 0.995, 1.0000001]))
        >>> counts[0], counts[-1], sum(counts)
        (1, 2, 3)
    """
    return np.histogram(cosines.clip(-1, 1), BINS)[0].tolist()


def check_finite(vectors: Reals) -> None:
    """Raise a ValueError if one of (N, D) vectors holds NaN or infinity."""
    broken = np.flatnonzero(~np.isfinite(np.asarray(vectors)).all(axis=1))
    if len(broken):
        raise ValueError(
            f"{len(broken)} of {len(vectors)} vectors are not finite, first in row {broken[0]}: "
            "training may have diverged (lower --learning_rate), or 16-bit weights overflow."
        )


def check_two(vectors: Reals) -> None:
    """Raise a ValueError if there are fewer than two vectors."""
    if len(vectors) < 2:
        raise ValueError(f"At least two vectors are needed to compare; got {len(vectors)}.")
