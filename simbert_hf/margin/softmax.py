"""Softmax losses over class centres, with a margin by which the true class must win."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from simbert_hf.losses import InBatchLoss, at_least_float32, cosines
from simbert_hf.utils.checks import check_choice, check_scale

Kind = Literal["softmax", "am", "arc", "sphere", "simpler_a"]


def additive_angular_margin(cosine: Tensor, margin: float) -> Tensor:
    """ArcFace: ``cos(theta + m)``; beyond pi ``cos theta - m sin m``, as in its authors' code.

    Example:
        >>> additive_angular_margin(torch.tensor([1.0, 0.0]), math.pi / 6)
        tensor([ 0.8660, -0.5000])
    """
    theta = cosine.detach().clamp(-1, 1).acos()
    slope = (theta + margin).sin() / theta.sin().clamp(min=1e-4)  # infinite at theta = 0
    inside = _with_slope(cosine, (theta + margin).cos(), slope)
    return torch.where(theta + margin <= math.pi, inside, cosine - margin * math.sin(margin))


def multiplicative_angular_margin(cosine: Tensor, margin: float) -> Tensor:
    """SphereFace: ``cos(m theta)``, continued so that it falls from 0 to pi, for any m.

    ``(-1)^k cos(m theta) - 2k`` with ``k = floor(m theta / pi)``.

    Example:
        >>> multiplicative_angular_margin(torch.tensor([1.0, 0.0, -1.0]), 4)
        tensor([ 1., -3., -7.])
    """
    theta = cosine.detach().clamp(-1, 1).acos()
    turns = (margin * theta / math.pi).floor()
    sign = 1 - 2 * (turns % 2)
    value = sign * (margin * theta).cos() - 2 * turns
    return _with_slope(cosine, value, sign * _multiple_slope(theta, margin))


def smaller_multiplicative_margin(cosine: Tensor, margin: float) -> Tensor:
    """The article's simpler A-Softmax: ``min(cos m theta, cos theta)``, for any m.

    Example:
        >>> smaller_multiplicative_margin(torch.tensor([1.0, 0.5, 0.0]), 4)
        tensor([ 1.0000, -0.5000,  0.0000])
    """
    theta = cosine.detach().clamp(-1, 1).acos()
    value = (margin * theta).cos()
    return torch.minimum(_with_slope(cosine, value, _multiple_slope(theta, margin)), cosine)


def _multiple_slope(theta: Tensor, margin: float) -> Tensor:
    """Return d cos(m theta) / d cos theta, which is m sin(m theta) / sin theta: m * m at 0."""
    ratio = torch.sinc(margin * theta / math.pi) / torch.sinc(theta / math.pi).clamp(min=1e-4)
    return margin * margin * ratio


def _with_slope(cosine: Tensor, value: Tensor, slope: Tensor) -> Tensor:
    """Give ``value`` the given derivative, as autograd's through acos is NaN at theta = 0."""
    return value + slope * (cosine - cosine.detach())


class _Rule(NamedTuple):
    adjust: Callable[[Tensor, float], Tensor]
    default: float
    low: float
    high: float


RULES: dict[str, _Rule] = {
    "am": _Rule(torch.sub, 0.35, 0.0, 1.0),  # cos theta - m
    "arc": _Rule(additive_angular_margin, 0.5, 0.0, math.pi / 2),
    "sphere": _Rule(multiplicative_angular_margin, 4.0, 1.0, 10.0),
    "simpler_a": _Rule(smaller_multiplicative_margin, 4.0, 1.0, 10.0),
}
KINDS: tuple[str, ...] = ("softmax", *RULES)


@dataclass(frozen=True)
class MarginSoftmax:
    """Kind, scale and margin of a softmax.

    Attributes:
        kind: ``softmax`` (dot products, neither normalised nor scaled), ``am`` (AM-Softmax, Wang
            et al. 2018, or CosFace, https://arxiv.org/abs/1801.05599), ``arc`` (ArcFace, Deng et
            al. 2019, https://arxiv.org/abs/1801.07698), ``sphere`` (SphereFace, Liu et al. 2017,
            https://arxiv.org/abs/1704.08063) or ``simpler_a`` (Su 2018).
        scale: Inverse temperature that multiplies the cosines; plain softmax has none.
        margin: A cosine for ``am``, radians for ``arc``, a factor of the angle for the other two;
            None takes the papers' 0.35, 0.5, 4 and 4.

    Raises:
        ValueError: If the kind is unknown, or a value is out of range.

    Example:
        >>> MarginSoftmax("arc").margin
        0.5
    """

    kind: Kind = "am"
    scale: float = 30.0
    margin: float | None = None

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, KINDS)
        check_scale(self.scale)
        if self.kind == "softmax":
            if self.margin is not None:
                raise ValueError("Plain softmax has no margin; use am, with margin 0 if needed.")
            return
        rule = RULES[self.kind]
        if self.margin is None:
            object.__setattr__(self, "margin", rule.default)
        elif not rule.low <= self.margin <= rule.high:
            raise ValueError(
                f"The margin {self.margin} of {self.kind!r} is out of range: it must be from "
                f"{rule.low:g} to {rule.high:.4g}; {rule.default:g} is usual."
            )

    def scores(self, vectors: Tensor, centres: Tensor) -> Tensor:
        """Score every class, before scale and margin, in float32 or better.

        Args:
            vectors: Shape: (B, D).
            centres: Vectors of any length; of K sub-centres per class, the nearest one counts (Deng
                et al. 2020, https://doi.org/10.1007/978-3-030-58621-8_43). Shape: (C, D) or
                (C, K, D).

        Returns:
            Shape: (B, C).
        """
        rows = centres.flatten(0, -2)
        if self.kind == "softmax":
            with torch.autocast(vectors.device.type, enabled=False):
                found = at_least_float32(vectors) @ at_least_float32(rows).T
        else:
            found = cosines(vectors, rows)
        if len(rows) == len(centres):
            return found
        return found.unflatten(1, centres.shape[:2]).amax(dim=-1)

    def apply(self, scores: Tensor, columns: Tensor) -> Tensor:
        """Apply the margin to the true classes, and scale.

        Args:
            scores: What :meth:`scores` returns. Shape: (B, C).
            columns: Each row's true class; -1 where it is not among the columns. Shape: (B,).

        Returns:
            Shape: (B, C).
        """
        if self.kind == "softmax" or self.margin is None:
            return scores
        at = columns.clamp(min=0)[:, None]
        plain = scores.gather(1, at)
        true = RULES[self.kind].adjust(plain, self.margin)
        true = torch.where(columns[:, None] >= 0, true, plain)
        return scores.scatter(1, at, true) * self.scale


def margin_softmax_loss(
    vectors: Tensor, centres: Tensor, classes: Tensor, softmax: MarginSoftmax
) -> InBatchLoss:
    """Cross-entropy of finding each vector's class among the centres.

    The article's formula (5), for AM-Softmax: ``-log(e^(s (cos theta_t - m)) / (e^(s (cos theta_t
    - m)) + sum over i != t of e^(s cos theta_i)))``. No one-hot rows are made.

    Args:
        vectors: Sentence vectors of any length. Shape: (B, D).
        centres: Shape: (C, D), or (C, K, D) with sub-centres.
        classes: The class of each vector, 0 to C - 1. Shape: (B,).
        softmax: Kind, scale and margin.

    Returns:
        The loss, and the share of vectors that score their own class highest (without margin).

    Example:
        >>> vectors, classes = torch.tensor([[3.0, 0.0]]), torch.tensor([0])
        >>> margin_softmax_loss(vectors, torch.eye(2), classes, MarginSoftmax("am", 1.0, 0.0)).loss
        tensor(0.3133)
    """
    scores = softmax.scores(vectors, centres)
    accuracy = (scores.detach().argmax(dim=-1) == classes).float().mean()
    return InBatchLoss(F.cross_entropy(softmax.apply(scores, classes), classes), accuracy)


def center_loss(vectors: Tensor, centres: Tensor, classes: Tensor) -> Tensor:
    """Half the mean squared distance from each vector to its class's centre (Wen et al. 2016).

    Args:
        vectors: Shape: (B, D).
        centres: Shape: (C, D).
        classes: The class of each vector. Shape: (B,).

    Returns:
        A scalar; 0 if every vector equals its centre.

    Example:
        >>> center_loss(torch.tensor([[1.0, 1.0]]), torch.zeros(3, 2), torch.tensor([2]))
        tensor(1.)
    """
    return (at_least_float32(vectors) - centres[classes]).square().sum(dim=-1).mean() / 2
