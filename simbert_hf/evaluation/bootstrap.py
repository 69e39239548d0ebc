"""Paired bootstrap: how much a figure would vary on other test data of the same kind.

One resample of N items is N counts: how often each item was drawn. Statistics here are functions
of such counts, exact for every resample (ranks are those within the resample) and vectorised over
many at once. Resamples depend only on the seed and the name of the test set, so that two models
are measured on the same ones, and the differences of their figures are paired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from simbert_hf.utils.arrays import Floats, Reals

Counts = NDArray[np.int64]
Statistic = Callable[[Counts], Mapping[str, Floats]]

CELLS = 2**22  # counts held at a time: resamples are drawn in blocks of this size
LEVEL = 0.95  # of the intervals
FEWEST = 100  # resamples needed for a meaningful 95 % interval
NONE: Floats = np.empty(0)


@dataclass(frozen=True)
class Figure:
    """One measured number and its value on each resample.

    Attributes:
        value: Value on the whole test set.
        replicates: Value on each resample, in the order in which they are drawn; undefined ones (a
            resample with a single score has no correlation) are NaN. Empty if none were drawn.
            Shape: (R,).
    """

    value: float
    replicates: Floats = field(default_factory=lambda: NONE, repr=False)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Percentile interval (Efron 1979); None without resamples, or if all are equal.

        (If all of a few items are right, so they are in every resample, which gives no interval.)

        Example:
            >>> Figure(0.5, np.linspace(0, 1, 1001)).interval
            (0.025, 0.975)
        """
        defined = self.replicates[np.isfinite(self.replicates)]
        if not len(defined) or not np.ptp(defined):
            return None
        low, high = np.quantile(defined, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return float(low), float(high)


@dataclass(frozen=True)
class Comparison:
    """One model against another: the difference of a figure, and how certain its sign is.

    Attributes:
        difference: Figure of the model minus that of the other.
        interval: Percentile interval of the difference, as in :class:`Figure`.
        p_value: Two-sided; None without resamples.
    """

    difference: float
    interval: tuple[float, float] | None
    p_value: float | None


def compare(figure: Figure, other: Figure) -> Comparison:
    """Compare two models' figures on one test set by paired bootstrap.

    The p-value is the level at which the percentile interval of the paired differences first
    touches 0: twice the smaller share of resamples on either side (Efron & Tibshirani 1993,
    chapter 15; one-sided, it is the test of Koehn 2004), one added to both counts so that it is
    never 0. With R resamples it is at least 2 / (R + 1).

    Example:
        >>> a, b = np.linspace(0.6, 0.8, 999), np.linspace(0.5, 0.7, 999)
        >>> compare(Figure(0.7, a), Figure(0.6, b)).p_value
        0.002
    """
    difference = Figure(figure.value - other.value, figure.replicates - other.replicates)
    defined = difference.replicates[np.isfinite(difference.replicates)]
    if not len(defined):
        return Comparison(difference.value, None, None)
    tail = min((defined <= 0).sum(), (defined >= 0).sum())
    p_value = min(1.0, 2 * float(tail + 1) / (len(defined) + 1))
    return Comparison(difference.value, difference.interval, p_value)


@dataclass(frozen=True)
class Bootstrap:
    """Draws resamples.

    Attributes:
        resamples: Number of resamples; 0 for no intervals and no tests.
        seed: Seed of the draws.

    Raises:
        ValueError: If there are too few resamples for an interval, or the seed is negative.

    Example:
        >>> right = np.tile([1.0, 1.0, 1.0, 0.0], 100)  # 400 answers
        >>> accuracy = Bootstrap().means("answers", {"accuracy": right})["accuracy"]
        >>> accuracy.value, [round(end, 2) for end in accuracy.interval]
        (0.75, [0.71, 0.79])
    """

    resamples: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ValueError(f"The seed is {self.seed}: it must be at least 0.")
        if self.resamples and self.resamples < FEWEST:
            raise ValueError(
                f"{self.resamples} resamples are too few for a {LEVEL:.0%} interval; use at "
                f"least {FEWEST}, preferably 1000, or 0 for none."
            )

    def counts(self, name: str, n: int) -> Iterator[Counts]:
        """Yield how often each of n items is drawn in each resample, a block of them at a time.

        Args:
            name: Name of the test set, which determines the draws together with the seed.
            n: Number of items.

        Yields:
            Shape: (block, n); each row sums to n.
        """
        rng = np.random.default_rng([self.seed, crc32(name.encode())])
        block = max(1, CELLS // n)
        for start in range(0, self.resamples, block):
            rows = min(block, self.resamples - start)
            drawn = rng.integers(n, size=(rows, n)) + n * np.arange(rows)[:, None]
            yield np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n)

    def figures(
        self, name: str, n: int, values: Mapping[str, float], statistic: Statistic
    ) -> dict[str, Figure]:
        """Add replicates to measured values.

        Args:
            name: Name of the test set.
            n: Number of items that are resampled.
            values: The figures on the whole set, by name.
            statistic: ``counts -> `` the same figures on each resample: (block, n) -> (block,).
        """
        blocks = [statistic(counts) for counts in self.counts(name, n)]
        return {
            key: Figure(value, np.concatenate([block[key] for block in blocks]) if blocks else NONE)
            for key, value in values.items()
        }

    def means(self, name: str, columns: Mapping[str, Floats]) -> dict[str, Figure]:
        """Measure the mean of each column, whose rows are items.

        Args:
            name: Name of the test set.
            columns: Shape: (N,) each.
        """
        values = {key: float(column.mean()) for key, column in columns.items()}
        n = len(next(iter(columns.values())))
        return self.figures(
            name, n, values, lambda counts: {key: mean(x, counts) for key, x in columns.items()}
        )


class Distinct:
    """The distinct values of a list, ascending, and how often each is drawn.

    Args:
        values: Shape: (N,).
    """

    def __init__(self, values: Reals) -> None:
        _, self.inverse = np.unique(values, return_inverse=True)
        self.order = np.argsort(self.inverse, kind="stable")
        self.starts = np.flatnonzero(np.diff(self.inverse[self.order], prepend=-1))

    def tally(self, counts: Counts) -> Counts:
        """Sum the counts of the items of each distinct value: (R, N) -> (R, U).

        Example:
            >>> Distinct(np.array([0.5, 0.1, 0.5])).tally(np.array([[1, 0, 2]]))
            array([[0, 3]])
        """
        return np.add.reduceat(counts[:, self.order], self.starts, axis=1)

    def ranks(self, counts: Counts) -> Floats:
        """Rank each item within each resample, ties by their mean rank: (R, N) -> (R, N).

        Example:
            >>> Distinct(np.array([0.5, 0.1, 0.9])).ranks(np.array([[2, 1, 0]]))
            array([[2.5, 1. , 3.5]])
        """
        drawn = self.tally(counts)
        below = drawn.cumsum(axis=1) - drawn
        return (below + (drawn + 1) / 2)[:, self.inverse]


def correlation(first: Floats, second: Floats, counts: Counts) -> Floats:
    """Compute Pearson's correlation of two lists in each resample; NaN if one is constant.

    Args:
        first: Shape: (N,) or (R, N).
        second: The same.
        counts: Shape: (R, N).

    Returns:
        Shape: (R,).

    Example:
        >>> x, y = np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 0.0])
        >>> correlation(x, y, np.array([[1, 1, 1], [1, 2, 0], [0, 3, 0]]))
        array([ 0.,  1., nan])
    """
    first, second = _centred(first, counts), _centred(second, counts)
    products = np.einsum("rn,rn,rn->r", counts, first, second)
    spreads = np.stack([np.einsum("rn,rn,rn->r", counts, x, x) for x in (first, second)])
    spreads[spreads < 1e-12] = np.nan  # rounding, where all values drawn are equal
    return products / np.sqrt(spreads).prod(axis=0)


def _centred(values: Floats, counts: Counts) -> Floats:
    values = np.broadcast_to(values, counts.shape)
    means = np.einsum("rn,rn->r", counts, values) / counts.sum(axis=1)
    return values - means[:, None]


def exact_interval(hits: int, count: int) -> tuple[float, float]:
    """Compute the exact 95 % interval of a share (Clopper & Pearson 1934).

    Example:
        >>> exact_interval(50, 50)
        (0.928..., 1.0)
    """
    found = binomtest(hits, count).proportion_ci(LEVEL, "exact")
    return float(found.low), float(found.high)


def mean(values: Reals, counts: Counts) -> Floats:
    """Compute the mean of the values drawn in each resample: (N,), (R, N) -> (R,)."""
    return counts @ values.astype(np.float64) / counts.sum(axis=1)
