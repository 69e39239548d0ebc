"""Self-attention within short rows by one product and one kernel, for GPUs with Triton.

Queries, keys and values come of one matrix product instead of three, whose small matrices do not
fill a GPU, and lie side by side; the kernel does the rest, dropout and mask included. Torch's
memory-efficient kernel is made for long rows: on rows of 30 tokens it takes several times as long
as reading queries, keys and values does.
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

LONGEST = 128  # tokens a row: all its scores are held at once


def use_fused_attention(model: Any) -> None:
    """Let a model's layers attend by :func:`fused_attention` wherever it fits.

    Args:
        model: A ``SimBert`` on BERT or ELECTRA, in place; others stay as they are.
    """
    if not isinstance(model, SimBert) or not model._supports_sdpa:
        return
    for module in model.modules():
        if isinstance(module, (BertSelfAttention, ElectraSelfAttention)):
            layers = module.query, module.key, module.value
            if all(type(layer) is Linear for layer in layers):  # others compute in their own way
                module.forward = MethodType(attend, module)


@wraps(BertSelfAttention.forward)  # pickle goes by its name
def attend(
    self: BertSelfAttention,
    hidden_states: Tensor,
    attention_mask: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend in place of a layer's ``forward``, which still does where the kernel does not fit."""
    if kwargs.get(CACHE) is not None or not fits(self, hidden_states, attention_mask):
        forward: Any = type(self).forward
        return forward(self, hidden_states, attention_mask, **kwargs)  # type: ignore[no-any-return]
    layers = self.query, self.key, self.value
    weight = torch.cat([layer.weight for layer in layers])
    parts = linear(hidden_states, weight, torch.cat([layer.bias for layer in layers]))
    parts = parts.unflatten(2, (3, self.num_attention_heads, self.attention_head_size))
    dropout = self.dropout.p if self.training else 0.0
    seed = torch.randint(2**62, (1,), device=parts.device) if dropout else None
    return fused_attention(parts, attention_mask, seed, self.scaling, dropout).flatten(2), None


def fits(layer: BertSelfAttention, hidden: Tensor, mask: Tensor | None) -> bool:
    """Tell whether the kernel can attend.

    It takes short rows, in half precision, on a GPU, under an additive mask that all heads share,
    where the model has torch's attention.
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
        and layer.attention_head_size in (16, 32, 64)  # of 128, not all GPUs have the memory
        and layer.config._attn_implementation == "sdpa"
    )


# ---------------------------------------------------------------------- for torch


def constants(parts: Tensor, dropout: float) -> dict[str, Any]:
    """Choose how a kernel is compiled for such rows: (B, L, 3, H, d)."""
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
        seed: Of dropout. Shape: (1,).
        scale: Of the scores.
        dropout: Share of the weights that are dropped.

    Returns:
        Shape: (B, L, H, d).
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
    """Gradient of queries, keys and values: (B, L, 3, H, d)."""
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
