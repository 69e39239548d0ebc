"""Attention within short rows in one kernel, dropout and mask included, for GPUs with Triton.

Torch's memory-efficient kernel is made for long rows: on rows of 30 tokens it takes several times
as long as reading queries, keys and values does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from simbert_hf.modeling.simbert import SimBert

NAME = "simbert_fused"  # of our attention among transformers' ones
LONGEST = 128  # tokens a row: all its scores are held at once


def use_fused_attention(model: Any) -> None:
    """Let a model's layers attend by :func:`fused_attention` wherever it fits.

    Args:
        model: A ``SimBert`` on BERT or ELECTRA, in place; others stay as they are.
    """
    if isinstance(model, SimBert) and model._supports_sdpa:
        model.set_attn_implementation(NAME)


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend as transformers' layers ask for it; as SDPA where the kernel does not fit.

    It fits short rows of queries and keys alike, in half precision, on a GPU, under an additive
    mask that all heads share. A token's components lie side by side, as layers leave them.
    """
    length, depth = query.shape[2:]
    if (
        not query.is_cuda
        or query.dtype not in (torch.float16, torch.bfloat16)
        or attention_mask is None
        or attention_mask.dtype == torch.bool
        or attention_mask.shape[1:] != (1, length, length)
        or length > LONGEST
        or key.shape[2] != length
        or depth not in (16, 32, 64, 128)
    ):
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
    seed = torch.randint(2**62, (1,), device=query.device) if dropout else None
    scale = depth**-0.5 if scaling is None else scaling
    return fused_attention(query, key, value, attention_mask, seed, scale, dropout), None


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, sdpa_mask)


# ---------------------------------------------------------------------- for torch


def constants(query: Tensor, dropout: float) -> dict[str, Any]:
    """Choose how a kernel is compiled for such queries: (B, H, L, d)."""
    size = max(16, 1 << (query.shape[2] - 1).bit_length())  # a power of two
    return {
        "SIZE": size,
        "DEPTH": query.shape[3],
        "DROPS": dropout > 0,
        "PRECISION": "ieee" if query.dtype == torch.float32 else "tf32",
        "num_warps": 8 if size > 64 else 4 if size > 32 else 2,
    }


@torch.library.custom_op("simbert_hf::fused_attention", mutates_args=())
def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    seed: Tensor | None,
    scale: float,
    dropout: float,
) -> Tensor:
    """Attend within rows: (B, H, L, d) three times, (B or 1, 1, L, L), (1,) -> (B, L, H, d)."""
    from simbert_hf.training.kernels import forward_kernel

    rows, heads, length, depth = query.shape
    out = query.new_empty(rows, length, heads, depth)
    mask = mask.expand(rows, -1, -1, -1)
    forward_kernel[(rows * heads,)](
        query, key, value, mask, seed, out,
        *query.stride()[:3], *key.stride()[:3], *value.stride()[:3],
        mask.stride(0), *mask.stride()[2:], heads, length, scale, dropout,
        **constants(query, dropout),
    )  # fmt: skip
    return out


@torch.library.custom_op("simbert_hf::fused_attention_backward", mutates_args=())
def fused_attention_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    seed: Tensor | None,
    scale: float,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value, each laid out as (B, L, H, d)."""
    from simbert_hf.training.kernels import backward_kernel

    rows, heads, length, depth = query.shape
    found = tuple(query.new_empty(rows, length, heads, depth) for _ in range(3))
    mask = mask.expand(rows, -1, -1, -1)
    gradient = gradient.contiguous().transpose(1, 2)
    backward_kernel[(rows * heads,)](
        query, key, value, mask, seed, gradient, *found,
        *query.stride()[:3], *key.stride()[:3], *value.stride()[:3], *gradient.stride()[:3],
        mask.stride(0), *mask.stride()[2:], heads, length, scale, dropout,
        **constants(query, dropout),
    )  # fmt: skip
    dq, dk, dv = found
    return dq, dk, dv


@fused_attention.register_fake
def _(query: Tensor, *rest: Any) -> Tensor:
    return query.new_empty(query.shape[0], query.shape[2], query.shape[1], query.shape[3])


@fused_attention_backward.register_fake
def _(gradient: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    new = gradient.new_empty
    return new(gradient.shape), new(gradient.shape), new(gradient.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:5])
    ctx.numbers = inputs[5:]


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    found = fused_attention_backward(gradient, *ctx.saved_tensors, *ctx.numbers)
    return *(part.transpose(1, 2) for part in found), None, None, None, None


fused_attention.register_autograd(_backward, setup_context=_keep)
