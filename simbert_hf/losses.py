"""Losses as pure tensor functions: no model, tokenizer, rank or device inside."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from simbert_hf.pooling import normalize


def at_least_float32(values: Tensor) -> Tensor:
    """Widen half precision, in which near-equal cosines tie."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def cosines(rows: Tensor, columns: Tensor) -> Tensor:
    """Cosine of every row of one matrix with every row of another, in float32 or better.

    Args:
        rows: Shape: (Q, D).
        columns: Shape: (K, D).

    Returns:
        Shape: (Q, K).
    """
    with torch.autocast(rows.device.type, enabled=False):
        return normalize(at_least_float32(rows)) @ normalize(at_least_float32(columns)).T


@dataclass(frozen=True)
class InBatchLoss:
    """An in-batch softmax loss.

    Attributes:
        loss: Mean cross-entropy, a scalar.
        accuracy: Share of queries whose positive outscores every other candidate, a scalar.
    """

    loss: Tensor
    accuracy: Tensor


def in_batch_loss(
    queries: Tensor, keys: Tensor, positives: Tensor, *, scale: float, excluded: Tensor
) -> InBatchLoss:
    """Softmax cross-entropy of scaled cosines: each query picks its positive among the keys.

    Args:
        queries: Sentence vectors of any length. Shape: (Q, D).
        keys: Candidates. Shape: (K, D).
        positives: Index of each query's positive among the keys. Shape: (Q,).
        scale: Inverse temperature that multiplies the cosines.
        excluded: True where a key is no candidate for a query (itself, a false negative).
            Shape: (Q, K), bool.

    Returns:
        The loss and its accuracy. All-zero vectors give the log of the number of candidates.

    Example:
        >>> keys = torch.eye(2)
        >>> nothing = torch.zeros(2, 2, dtype=torch.bool)
        >>> in_batch_loss(keys, keys, torch.arange(2), scale=1.0, excluded=nothing).accuracy
        tensor(1.)
    """
    scores = cosines(queries, keys) * scale  # (Q, K)
    scores = scores.masked_fill(excluded, torch.finfo(scores.dtype).min)
    best = scores.detach().argmax(dim=-1)
    return InBatchLoss(F.cross_entropy(scores, positives), (best == positives).float().mean())


def pair_loss(
    vectors: Tensor,
    *,
    scale: float,
    groups: Tensor | None = None,
    keys: Tensor | None = None,
    key_groups: Tensor | None = None,
    offset: int = 0,
) -> InBatchLoss:
    """SimBERT's similarity loss (Su 2020): rows 2i and 2i + 1 are a pair, the rest negatives.

    Args:
        vectors: Sentence vectors, partners in adjacent rows. Shape: (B, D), B even.
        scale: Inverse temperature; SimBERT uses 30.
        groups: Group of each row; other rows of the same group are false negatives and leave the
            softmax. None keeps them, as the original does. Shape: (B,).
        keys: All processes' vectors; ``vectors`` themselves if None. Shape: (K, D).
        key_groups: Group of each key, with ``groups`` and ``keys``. Shape: (K,).
        offset: Row of ``keys`` at which ``vectors`` start.

    Returns:
        The loss and its accuracy over the B rows.

    Raises:
        ValueError: If B is odd, so that a row has no partner.

    Example:
        >>> pair_loss(torch.zeros(4, 8), scale=30.0).loss.exp().round().item()
        3.0
    """
    size = len(vectors)
    if size % 2:
        raise ValueError(f"Pairs stand in adjacent rows, so their number must be even; got {size}.")
    keys = vectors if keys is None else keys
    key_groups = groups if key_groups is None else key_groups
    rows = torch.arange(size, device=vectors.device)
    own, positives = rows + offset, (rows ^ 1) + offset
    if groups is None or key_groups is None:
        excluded = torch.zeros(size, len(keys), dtype=torch.bool, device=vectors.device)
    else:
        excluded = groups[:, None] == key_groups[None, :]
    excluded[rows, own] = True
    excluded[rows, positives] = False
    return in_batch_loss(vectors, keys, positives, scale=scale, excluded=excluded)


def distillation_loss(vectors: Tensor, teacher: Tensor) -> Tensor:
    """Mean squared difference of two models' cosines between all different rows (RoFormer-Sim).

    Args:
        vectors: The student's sentence vectors, of any length. Shape: (B, D).
        teacher: The teacher's, of any length and dimension. Shape: (B, E).

    Returns:
        A scalar, 0 where the cosines agree.

    Example:
        >>> distillation_loss(torch.eye(3), torch.ones(3, 2))
        tensor(1.)
    """
    ours, theirs = cosines(vectors, vectors), cosines(teacher, teacher)
    others = ~torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)
    return F.mse_loss(ours[others], theirs[others].to(ours.dtype))


def token_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy over tokens, in float32 or better; 0 where there is no token.

    Args:
        logits: Shape: (N, V).
        labels: Shape: (N,).

    Returns:
        A scalar, in nats.
    """
    return F.cross_entropy(at_least_float32(logits), labels, reduction="sum") / max(len(labels), 1)
