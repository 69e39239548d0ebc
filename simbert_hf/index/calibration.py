"""Calibrate the minimum score for an answer on labelled queries, with exact intervals.

The score of a query is that of its best answer. Each labelled query is one of three kinds: *right*
(its best answer is the expected one), *wrong* (it is another), or *out* (of scope: it has none).
Queries that score at least the threshold are answered.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import precision_recall_curve, roc_auc_score

from simbert_hf.evaluation.bootstrap import LEVEL, NONE, Bootstrap, Counts, Distinct, exact_interval
from simbert_hf.utils.arrays import Floats

Kinds = NDArray[np.integer]

logger = logging.getLogger(__name__)

TARGETS = ("false_accept_rate", "precision")
RIGHT, WRONG, OUT = KINDS = range(3)  # kinds of labelled queries
FEW = 20  # queries: even if all of them are right, the precision may be 0.83


@dataclass(frozen=True)
class Rate:
    """A share of queries, with its exact 95 % interval (Clopper & Pearson 1934).

    Attributes:
        value: The share; NaN if there are no queries.
        low: Lower end of the interval.
        high: Upper end of the interval.
        count: Number of queries that it is a share of.
    """

    value: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, hits: int, count: int) -> Rate:
        """Return the rate of ``hits`` among ``count`` queries.

        Example:
            >>> Rate.of(5, 100)
            Rate(value=0.05, low=0.016..., high=0.112..., count=100)
        """
        if not count:
            return cls(float("nan"), 0.0, 1.0, 0)
        return cls(hits / count, *exact_interval(hits, count), count)


@dataclass(frozen=True)
class Rates:
    """Rates of one threshold on the labelled queries.

    Attributes:
        precision: Share of the answers that are right.
        false_accepts: Share of the out-of-scope queries that are answered.
        answered: Share of the in-scope queries that are answered.
        correct: Share of the in-scope queries that are answered correctly.
    """

    precision: Rate
    false_accepts: Rate
    answered: Rate
    correct: Rate


@dataclass(frozen=True, eq=False)  # arrays are not simply equal
class Calibration:
    """Scores of labelled queries and the threshold chosen from them.

    Attributes:
        scores: Score of each query. Shape: (N,).
        kinds: Kind of each: 0 right, 1 wrong, 2 out of scope. Shape: (N,).
        target: ``false_accept_rate`` or ``precision``.
        wanted: Target value.
        threshold: Minimum score for an answer: the lowest one that reaches the target on these
            queries. On new ones of the same kind the mean false-accept rate is higher than on the
            n out-of-scope queries here, by at most 1 / (n + 1).
        interval: 95 % percentile interval of the threshold over bootstrap resamples of the
            queries; an end is infinite where too many of them reach the precision at no threshold.
            None without resamples.
    """

    scores: Floats = field(repr=False)
    kinds: Kinds = field(repr=False)
    target: str
    wanted: float
    threshold: float
    interval: tuple[float, float] | None

    def at(self, threshold: float) -> Rates:
        """Measure any threshold on the labelled queries.

        The interval of the false-accept rate also holds for the chosen threshold, as its upper tail
        is a distribution-free tolerance bound. The interval of a precision holds for a threshold
        fixed beforehand, not for one chosen to reach that precision.
        """
        said = self.scores >= threshold
        right, wrong, out = (int((said & (self.kinds == kind)).sum()) for kind in KINDS)
        n_out = int((self.kinds == OUT).sum())
        n_in = len(self.kinds) - n_out
        return Rates(
            precision=Rate.of(right, right + wrong + out),
            false_accepts=Rate.of(out, n_out),
            answered=Rate.of(right + wrong, n_in),
            correct=Rate.of(right, n_in),
        )

    @property
    def rates(self) -> Rates:
        """Rates at the chosen threshold."""
        return self.at(self.threshold)

    @cached_property
    def auroc(self) -> float:
        """How often an in-scope query scores above an out-of-scope one; NaN without both."""
        inside = self.kinds != OUT
        return float(roc_auc_score(inside, self.scores)) if 0 < inside.mean() < 1 else float("nan")

    def to_json(self) -> dict[str, Any]:
        """Return plain values, from which :meth:`from_json` restores the calibration."""
        ends = self.interval and [end if np.isfinite(end) else None for end in self.interval]
        return {
            "target": self.target,
            "wanted": self.wanted,
            "threshold": self.threshold,
            "interval": ends,
            "scores": self.scores.tolist(),
            "kinds": self.kinds.tolist(),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Calibration:
        """Restore a calibration from the values of :meth:`to_json`."""
        ends = values["interval"] and [np.inf if end is None else end for end in values["interval"]]
        return cls(
            np.array(values["scores"], dtype=np.float64),
            np.array(values["kinds"], dtype=np.int8),
            values["target"],
            values["wanted"],
            values["threshold"],
            None if ends is None else (ends[0], ends[1]),
        )


def calibrate_scores(
    scores: Sequence[float] | Floats,
    kinds: Sequence[int] | Kinds,
    target: str,
    wanted: float,
    bootstrap: Bootstrap | None = None,
) -> Calibration:
    """Choose the lowest threshold that reaches a target on labelled queries.

    Warns of a threshold that rests on few queries, or that may not exist for other such queries.

    Args:
        scores: Score of each query. Shape: (N,).
        kinds: Kind of each: 0 right, 1 wrong, 2 out of scope. Shape: (N,).
        target: ``false_accept_rate`` (at most) or ``precision`` (at least).
        wanted: Target value, between 0 and 1.
        bootstrap: Draws the resamples; 1,000 of them if None.

    Raises:
        ValueError: If the value is out of range, a score is not a number, the queries it needs are
            missing, or no threshold reaches the precision.

    Example:
        >>> scores, kinds = [0.9, 0.8, 0.7, 0.6, 0.5], [0, 0, 1, 2, 2]
        >>> found = calibrate_scores(scores, kinds, "false_accept_rate", 0.5)
        >>> found.threshold, found.rates.answered.value
        (0.55, 1.0)
    """
    scores, kinds = np.asarray(scores, dtype=np.float64), np.asarray(kinds, dtype=np.int8)
    if scores.shape != kinds.shape or not np.isfinite(scores).all():
        raise ValueError("Give a finite score and a kind for each query.")
    check_target(kinds, target, wanted)
    distinct = Distinct(scores)
    edges = _edges(np.unique(scores))
    whole = np.ones((1, len(scores)), dtype=np.int64)
    (place,) = _places(distinct, kinds, whole, target, wanted)
    if place < 0:
        raise ValueError(
            f"No threshold reaches a precision of {wanted:g} on these queries ({len(scores)}); the "
            f"best is {_best_precision(scores, kinds):.3f}. Lower the target, or improve the index."
        )
    blocks = (bootstrap or Bootstrap()).counts(target, len(scores))
    # No threshold reaches the precision; or there is no rate, as no out-of-scope query was drawn.
    none = np.inf if target == "precision" else np.nan
    drawn = [
        np.append(edges, none)[_places(distinct, kinds, counts, target, wanted)]
        for counts in blocks
    ]
    interval = _interval(np.concatenate([NONE, *drawn]))
    found = Calibration(scores, kinds, target, float(wanted), float(edges[place]), interval)
    _warn(found)
    return found


def _interval(thresholds: Floats) -> tuple[float, float] | None:
    """Return the percentile interval of the values that are not NaN; None if all are."""
    known = thresholds[~np.isnan(thresholds)]
    if not len(known):
        return None
    with np.errstate(invalid="ignore"):  # NumPy interpolates two infinities to NaN
        ends = np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    low, high = np.nan_to_num(ends, nan=np.inf, posinf=np.inf)
    return float(low), float(high)


def _warn(found: Calibration) -> None:
    rates = found.rates
    rate = rates.precision if found.target == "precision" else rates.false_accepts
    if rate.count < FEW:
        logger.warning(
            "the threshold %.4g rests on only %d of the %d queries, which put the %s between %.2f "
            "and %.2f. Provide more queries.",
            *(found.threshold, rate.count, len(found.scores), found.target.replace("_", " ")),
            *(rate.low, rate.high),
        )
    if not rates.answered.count:
        logger.warning(
            "no query is in scope: how many the threshold %.4g answers is unknown. Add such ones.",
            found.threshold,
        )
    if found.interval and np.isinf(found.interval[1]):
        logger.warning(
            "no threshold reaches the precision on many resamples of the %d queries: there may be "
            "none for similar queries. Provide more queries, or lower the target.",
            len(found.scores),
        )


def check_target(kinds: Kinds, target: str, wanted: float) -> None:
    """Raise a ValueError if a target is out of range, or lacks the kinds of queries it needs."""
    if target not in TARGETS or not (isinstance(wanted, Real) and 0 <= wanted <= 1):
        raise ValueError(
            f"The target {target}={wanted!r} is invalid: give one of {', '.join(TARGETS)} as a "
            "number from 0 to 1."
        )
    if target == "false_accept_rate" and not (kinds == OUT).any():
        raise ValueError(
            "A false-accept rate needs out-of-scope queries: add some with empty labels."
        )
    if target == "precision" and not (kinds != OUT).any():
        raise ValueError("A precision needs in-scope queries: add some with their answers.")


def _edges(values: Floats) -> Floats:
    """Return thresholds midway between distinct scores, ascending; the last is above them all."""
    above = np.append((values[1:] + values[:-1]) / 2, values[-1] + 1e-6)
    above = np.maximum(above, np.nextafter(values, np.inf))  # if rounding leaves nothing between
    return np.append(values[:1], above)


def _places(
    distinct: Distinct, kinds: Kinds, counts: Counts, target: str, wanted: float
) -> NDArray[np.int64]:
    """Find the lowest edge that reaches the target in each resample, -1 if none does: (R,)."""
    drawn = [distinct.tally(counts * (kinds == kind)) for kind in KINDS]
    right, wrong, out = (
        np.pad(tally[:, ::-1].cumsum(axis=1)[:, ::-1], ((0, 0), (0, 1))) for tally in drawn
    )
    if target == "precision":
        answers = right + wrong + out
        good = (right >= wanted * answers - 1e-9) & (answers > 0)
    else:
        good = (out <= wanted * out[:, :1] + 1e-9) & (out[:, :1] > 0)
    return np.where(good.any(axis=1), good.argmax(axis=1), -1)


def _best_precision(scores: Floats, kinds: Kinds) -> float:
    right = kinds == RIGHT
    return float(precision_recall_curve(right, scores)[0][:-1].max()) if right.any() else 0.0
