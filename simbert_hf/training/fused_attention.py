"""Self-attention within short rows by one product and one kernel, for GPUs with Triton.

Queries, keys and values come from one matrix product instead of three, whose small matrices would
not fill a GPU, and are adjacent in memory; the kernel does the rest, including dropout and mask.
Torch's memory-efficient kernel is made for long rows: on rows of 30 tokens it takes several times
as long as reading queries, keys and values does.
"""

from __future__ import annotations

from functools import wraps
from types import MethodType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Linear
from torch.nn.functional import linear
from transformers.models.bert.modeling_bert import BertSelfAttention
from transformers.models.electra.modeling_electra import ElectraSelfAttention

from simbert_hf.modeling.simbert import CACHE, SimBert

LONGEST = 128  # tokens per row: all its scores are held at once


def use_fused_attention(model: Any) -> None:
    """Make a model's layers use :func:`fused_attention` wherever it applies.

    Args:
        model: A ``SimBert`` on BERT or ELECTRA, changed in place; other models are left unchanged.
    """
    if not isinstance(model, SimBert) or not model._supports_sdpa:
        return
    for module in model.modules():
        if isinstance(module, (BertSelfAttention, ElectraSelfAttention)):
            layers = module.query, module.key, module.value
            if all(type(layer) is Linear for layer in layers):  # subclasses may compute differently
                module.forward = MethodType(attend, module)


@wraps(BertSelfAttention.forward)  # pickle looks it up by name
def attend(
    self: BertSelfAttention,
    hidden_states: Tensor,
    attention_mask: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend in place of a layer's ``forward``, which is called if the kernel does not apply."""
    if kwargs.get(CACHE) is not None or not fits(self, hidden_states, attention_mask):
        forward: Any = type(self).forward
        return forward(self, hidden_states, attention_mask, **kwargs)
    layers = self.query, self.key, self.value
    weight = torch.cat([layer.weight for layer in layers])
    parts = linear(hidden_states, weight, torch.cat([layer.bias for layer in layers]))
    parts = parts.unflatten(2, (3, self.num_attention_heads, self.attention_head_size))
    dropout = self.dropout.p if self.training else 0.0
    seed = torch.randint(2**62, (1,), device=parts.device) if dropout else None
    return fused_attention(parts, attention_mask, seed, self.scaling, dropout).flatten(2), None


def fits(layer: BertSelfAttention, hidden: Tensor, mask: Tensor | None) -> bool:
    """Return whether the kernel applies.

    It needs short rows, in half precision, on a GPU, with an additive mask that all heads share,
    and a model that uses torch's attention.
    """
    kind, length = hidden.device.type, hidden.shape[1]
    half = torch.is_autocast_enabled(kind)
    return (
        kind == "cuda"
        and (torch.get_autocast_dtype(kind) if half else hidden.dtype).itemsize == 2
        and mask is not None
        and mask.dtype != torch.bool
        and mask.shape[1:] == (1, length, length)
        and length <= LONGEST
        and layer.attention_head_size in (16, 32, 64)  # for 128, some GPUs lack the memory
        and layer.config._attn_implementation == "sdpa"
    )


# ---------------------------------------------------------------------- for torch


def constants(parts: Tensor, dropout: float) -> dict[str, Any]:
    """Choose how a kernel is compiled for rows of shape (B, L, 3, H, d)."""
    size = max(16, 1 << (parts.shape[1] - 1).bit_length())  # a power of two
    return {
        "SIZE": size,
        "DEPTH": parts.shape[4],
        "DROPS": dropout > 0,
        "PRECISION": "ieee" if parts.dtype == torch.float32 else "tf32",
        "num_warps": 8 if size > 64 else 4 if size > 32 else 2,
    }


@torch.library.custom_op("simbert_hf::fused_attention", mutates_args=())
def fused_attention(
    parts: Tensor, mask: Tensor, seed: Tensor | None, scale: float, dropout: float
) -> Tensor:
    """Attend within rows.

    Args:
        parts: Queries, keys and values. Shape: (B, L, 3, H, d).
        mask: Added to the scores. Shape: (B or 1, 1, L, L).
        seed: Random seed of dropout. Shape: (1,).
        scale: Factor of the scores.
        dropout: Share of the weights that are dropped.

    Returns:
        The attention's output. Shape: (B, L, H, d).
    """
    from simbert_hf.training.kernels import forward_kernel

    parts = parts.contiguous()
    rows, length, _, heads, depth = parts.shape
    out = parts.new_empty(rows, length, heads, depth)
    mask = mask.expand(rows, -1, -1, -1)
    with torch.cuda.device_of(parts):
        forward_kernel[(rows * heads,)](
            parts, mask, seed, out,
            mask.stride(0), *mask.stride()[2:], heads, length, scale, dropout,
            **constants(parts, dropout),
        )  # fmt: skip
    return out


@torch.library.custom_op("simbert_hf::fused_attention_backward", mutates_args=())
def fused_attention_backward(
    gradient: Tensor,
    parts: Tensor,
    mask: Tensor,
    seed: Tensor | None,
    scale: float,
    dropout: float,
) -> Tensor:
    """Return the gradient of queries, keys and values: (B, L, 3, H, d)."""
    from simbert_hf.training.kernels import backward_kernel

    parts, gradient = parts.contiguous(), gradient.contiguous()
    rows, length, _, heads, _ = parts.shape
    found = torch.empty_like(parts)
    mask = mask.expand(rows, -1, -1, -1)
    with torch.cuda.device_of(parts):
        backward_kernel[(rows * heads,)](
            parts, mask, seed, gradient, found,
            mask.stride(0), *mask.stride()[2:], heads, length, scale, dropout,
            **constants(parts, dropout),
        )  # fmt: skip
    return found


@fused_attention.register_fake
def _(parts: Tensor, *rest: Any) -> Tensor:
    return parts.new_empty(*parts.shape[:2], *parts.shape[3:])


@fused_attention_backward.register_fake
def _(gradient: Tensor, parts: Tensor, *rest: Any) -> Tensor:
    return parts.new_empty(parts.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3])
    ctx.numbers = inputs[3:]


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    found = fused_attention_backward(gradient, *ctx.saved_tensors, *ctx.numbers)
    return found, None, None, None, None


fused_attention.register_autograd(_backward, setup_context=_keep)
