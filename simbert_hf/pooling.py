"""Turn hidden states into one vector per sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from simbert_hf.utils.checks import check_choice

Pooling = Literal["mean", "cls", "linear_pooler", "tanh_pooler", "first_last_mean"]
POOLINGS: tuple[str, ...] = get_args(Pooling)
POOLER_POOLINGS = ("linear_pooler", "tanh_pooler")  # of [CLS], by the pooler's Dense layer


def check_pooling(pooling: str) -> str:
    """Return ``pooling``; raise a ValueError if it is not one of ``POOLINGS``."""
    check_choice("pooling", pooling, POOLINGS)
    return pooling


def masked_mean(hidden: Tensor, mask: Tensor) -> Tensor:
    """Average the hidden states where ``mask`` is 1.

    Args:
        hidden: Shape: (B, L, D).
        mask: 1 for the tokens to average. Shape: (B, L).

    Returns:
        Shape: (B, D).

    Example:
        >>> masked_mean(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[1, 1, 0]])).tolist()
        [[2.0]]
    """
    weights = mask.to(hidden.dtype).unsqueeze(-1)
    return (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1e-9)


def pool(
    hidden_states: Sequence[Tensor], source_mask: Tensor, pooling: str, pooler: nn.Linear
) -> Tensor:
    """Turn the layers' hidden states into sentence vectors (not normalised).

    ``linear_pooler`` is SimBERT's own: [CLS] through the pooler's Dense *without* its tanh;
    ``tanh_pooler`` is supervised SimCSE's "[CLS] with MLP", with it.
    ``first_last_mean`` averages the first and the last transformer layer's outputs before the mean.

    Args:
        hidden_states: Outputs of the layers, in order; ``first_last_mean`` needs index 1, the first
            transformer layer's. Each of shape: (B, L, D).
        source_mask: 1 for the tokens of the source sentence. Shape: (B, L).
        pooling: One of ``POOLINGS``.
        pooler: The pooler's Dense layer, used only by the two poolings of this name.

    Returns:
        Shape: (B, D).

    Example:
        >>> layers = torch.zeros(1, 3, 1), torch.ones(1, 3, 1), torch.tensor([[[2.0], [4], [9]]])
        >>> mask, pooler = torch.tensor([[1, 1, 0]]), nn.Linear(1, 1)
        >>> [pool(layers, mask, way, pooler).item() for way in ("cls", "mean", "first_last_mean")]
        [2.0, 3.0, 2.0]
    """
    last = hidden_states[-1]
    if pooling == "mean":
        return masked_mean(last, source_mask)
    if pooling == "first_last_mean":
        return masked_mean((hidden_states[1] + last) / 2, source_mask)
    cls = last[:, 0]
    if pooling == "tanh_pooler":
        return torch.tanh(pooler(cls))
    return pooler(cls) if pooling == "linear_pooler" else cls


def normalize(vectors: Tensor) -> Tensor:
    """Scale vectors to length 1 along the last axis (a zero vector stays zero)."""
    return torch.nn.functional.normalize(vectors, dim=-1)
