"""Cross-entropy over the vocabulary without holding every token's logits at once."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from simbert_hf.losses import chunk_rows
from simbert_hf.modeling.cpu_layers import by_parts
from simbert_hf.utils.devices import kernels_work

# In 16 bits, a GPU multiplies matrices of other widths several times slower. Few vocabularies have
# such a size, so columns of probability 0 are added that belong to no token.
ALIGNED = 8


def token_loss(hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> Tensor:
    """Sum the cross-entropies of ``hidden @ weight.T + bias``, in float32 or better.

    Equal to ``F.cross_entropy(..., reduction="sum")`` of the logits in value and gradient, but the
    logits exist for a few tokens at a time: their gradient is computed along with them, as in
    Liger (Hsu et al. 2024, https://arxiv.org/abs/2410.10989). Memory grows with
    tokens + vocabulary, not with their product. (torch 2.13 brings ``F.linear_cross_entropy``,
    which can replace this when it is the oldest supported version.)

    Args:
        hidden: Inputs of the LM head's last layer, one row per token. Shape: (N, D).
        weight: That layer's weight. Shape: (V, D).
        bias: Its bias. Shape: (V,).
        labels: The right tokens, all from 0 to below V. Shape: (N,).

    Returns:
        A scalar, in nats; 0 if there are no tokens.

    Example:
        >>> zeros = torch.zeros(4, 3)
        >>> token_loss(zeros, torch.zeros(10, 3), torch.zeros(10), torch.arange(4))
        tensor(9.2103)
    """
    device = hidden.device.type
    half = torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if half else hidden.dtype
    with torch.autocast(device, enabled=False):
        return _TokenLoss.apply(hidden, weight, bias, labels, dtype, torch.is_grad_enabled())


class _TokenLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor,
        labels: Tensor,
        dtype: torch.dtype,
        grad_enabled: bool,
    ) -> Tensor:
        ctx.dtypes = [tensor.dtype for tensor in (hidden, weight, bias)]
        hidden, weight, bias = (tensor.to(dtype) for tensor in (hidden, weight, bias))
        vocabulary = len(weight)
        if spare := -vocabulary % ALIGNED if dtype.itemsize == 2 else 0:
            weight, bias = pad(weight, (0, 0, 0, spare)), pad(bias, (0, spare), value=-math.inf)
        wide = torch.promote_types(dtype, torch.float32)
        needed = [grad_enabled and needed for needed in ctx.needs_input_grad[:3]]
        gradients = [
            torch.zeros_like(tensor, dtype=wide) if is_needed else None
            for tensor, is_needed in zip((hidden, weight, bias), needed, strict=True)
        ]
        total = hidden.new_zeros((), dtype=wide)
        size = chunk_rows(hidden.device, len(weight))
        for start in range(0, len(hidden), size):
            rows, right = hidden[start : start + size], labels[start : start + size]
            loss, slopes = _loss_and_slopes(  # which lets go of the scores
                by_parts(rows, weight, bias), right, wide, any(needed)
            )
            total += loss
            if slopes is not None:
                _add_gradients(gradients, slopes, rows, weight, start)
        rows_of = (len(hidden), vocabulary, vocabulary)
        ctx.save_for_backward(
            *(None if g is None else g[:n] for g, n in zip(gradients, rows_of, strict=True))
        )
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        scaled = (
            None if saved is None else (saved * gradient).to(dtype)
            for saved, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        )
        return *scaled, None, None, None


def _loss_and_slopes(
    scores: Tensor, labels: Tensor, wide: torch.dtype, needs_slopes: bool
) -> tuple[Tensor, Tensor | None]:
    """Sum of a chunk's losses, and its slopes by the scores, which may take their place."""
    if needs_slopes and scores.dtype.itemsize == 2 and kernels_work(scores.device):
        from simbert_hf.training.kernels import slopes_kernel

        losses, labels = scores.new_empty(len(scores), dtype=wide), labels.contiguous()
        with torch.cuda.device_of(scores):
            slopes_kernel[(len(scores),)](
                scores, labels, losses, scores.shape[1], 2048, num_warps=4
            )
        return losses.sum(), scores
    scores = scores.log_softmax(dim=-1, dtype=wide)
    loss = -scores.gather(1, labels[:, None]).sum()
    if not needs_slopes:
        return loss, None
    ones = torch.ones_like(scores[:, :1])
    return loss, scores.exp_().scatter_add_(1, labels[:, None], -ones)


def _add_gradients(
    gradients: list[Tensor | None], slopes: Tensor, rows: Tensor, weight: Tensor, start: int
) -> None:
    """Add what a chunk's rows give: slopes of the loss by the logits, (C, V), at rows, (C, D)."""
    of_hidden, of_weight, of_bias = gradients
    if of_bias is not None:
        of_bias += slopes.sum(dim=0, dtype=of_bias.dtype)
    slopes = slopes.to(weight.dtype)
    if of_hidden is not None:
        of_hidden[start : start + len(rows)] = slopes @ weight
    if of_weight is None:
        return
    if of_weight.dtype == slopes.dtype:
        of_weight.addmm_(slopes.T, rows)
    else:  # half precision: what the chunks give is summed in float32
        if slopes.dtype == torch.float16:  # in which a label of many tokens overflows
            slopes, rows = slopes.float(), rows.float()
        of_weight += slopes.T @ rows
