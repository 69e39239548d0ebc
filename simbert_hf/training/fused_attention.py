"""Attention within short rows in one kernel, dropout and mask included, for GPUs with Triton.

Torch's memory-efficient kernel is made for long rows: on rows of 30 tokens it takes several times
as long as reading queries, keys and values does.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
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
    mask that all heads share.
    """
    length, depth = query.shape[2:]
    if (
        not query.is_cuda
        or query.dtype == torch.float32
        or attention_mask is None
        or attention_mask.dtype == torch.bool
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


# ---------------------------------------------------------------------- kernels


@triton.jit
def load_rows(start, stride, rows, columns, length):  # type: ignore[no-untyped-def]
    """Read a row's tokens: (L, d), zeros beyond them."""
    places = start + rows[:, None] * stride + columns[None, :]
    return tl.load(places, mask=rows[:, None] < length, other=0.0)


@triton.jit
def store_rows(start, stride, rows, columns, length, values):  # type: ignore[no-untyped-def]
    """Write a row's tokens."""
    places = start + rows[:, None] * stride + columns[None, :]
    tl.store(places, values.to(start.dtype.element_ty), mask=rows[:, None] < length)


@triton.jit
def probabilities(query, key, mask, mask_query, mask_key, rows, length, scale, EXACT: tl.constexpr):  # type: ignore[no-untyped-def]
    """Softmax of the scores under the additive mask: (L, L)."""
    scores = tl.dot(query, tl.trans(key), input_precision=EXACT) * scale
    inside = (rows[:, None] < length) & (rows[None, :] < length)
    places = mask + rows[:, None] * mask_query + rows[None, :] * mask_key
    scores += tl.load(places, mask=inside, other=0.0).to(tl.float32)
    scores = tl.where(rows[None, :] < length, scores, float("-inf"))
    weights = tl.exp(scores - tl.max(scores, 1)[:, None])
    return weights / tl.sum(weights, 1)[:, None]


@triton.jit
def kept_share(seed, program, rows, dropout, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Draw what dropout multiplies by: 0, or 1 over the share that is kept. (L, L)."""
    numbers = rows[:, None] * SIZE + rows[None, :]
    drawn = tl.rand(tl.load(seed) + program, numbers, n_rounds=7)
    return tl.where(drawn >= dropout, 1 / (1 - dropout), 0.0)


@triton.jit
def forward_kernel(  # type: ignore[no-untyped-def]
    query, key, value, mask, seed, out,
    q_row, q_head, q_token, k_row, k_head, k_token, v_row, v_head, v_token,
    mask_row, mask_query, mask_key, heads, length, scale, dropout,
    SIZE: tl.constexpr, DEPTH: tl.constexpr, DROPS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Attend within one row, in one head."""
    program = tl.program_id(0).to(tl.int64)
    row, head = program // heads, program % heads
    rows, columns = tl.arange(0, SIZE), tl.arange(0, DEPTH)
    q = load_rows(query + row * q_row + head * q_head, q_token, rows, columns, length)
    k = load_rows(key + row * k_row + head * k_head, k_token, rows, columns, length)
    v = load_rows(value + row * v_row + head * v_head, v_token, rows, columns, length)
    p = probabilities(
        q, k, mask + row * mask_row, mask_query, mask_key, rows, length, scale, EXACT
    )
    if DROPS:
        p *= kept_share(seed, program, rows, dropout, SIZE)
    found = tl.dot(p.to(v.dtype), v, input_precision=EXACT)
    out_token = heads * DEPTH  # (B, L, H, d), as the layers go on with it
    out_start = out + row * length * out_token + head * DEPTH
    store_rows(out_start, out_token, rows, columns, length, found)


@triton.jit
def backward_kernel(  # type: ignore[no-untyped-def]
    query, key, value, mask, seed, gradient, d_query, d_key, d_value,
    q_row, q_head, q_token, k_row, k_head, k_token, v_row, v_head, v_token,
    g_row, g_head, g_token,
    mask_row, mask_query, mask_key, heads, length, scale, dropout,
    SIZE: tl.constexpr, DEPTH: tl.constexpr, DROPS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Compute one row's probabilities anew, in one head, and the gradients."""
    program = tl.program_id(0).to(tl.int64)
    row, head = program // heads, program % heads
    rows, columns = tl.arange(0, SIZE), tl.arange(0, DEPTH)
    q = load_rows(query + row * q_row + head * q_head, q_token, rows, columns, length)
    k = load_rows(key + row * k_row + head * k_head, k_token, rows, columns, length)
    v = load_rows(value + row * v_row + head * v_head, v_token, rows, columns, length)
    g = load_rows(gradient + row * g_row + head * g_head, g_token, rows, columns, length)
    p = probabilities(
        q, k, mask + row * mask_row, mask_query, mask_key, rows, length, scale, EXACT
    )
    dp = tl.dot(g, tl.trans(v), input_precision=EXACT)
    dropped = p
    if DROPS:
        share = kept_share(seed, program, rows, dropout, SIZE)
        dropped = p * share
        dp *= share
    token = heads * DEPTH
    start = row * length * token + head * DEPTH
    dv = tl.dot(tl.trans(dropped.to(g.dtype)), g, input_precision=EXACT)
    store_rows(d_value + start, token, rows, columns, length, dv)
    ds = (p * (dp - tl.sum(p * dp, 1)[:, None]) * scale).to(q.dtype)
    dq = tl.dot(ds, k, input_precision=EXACT)
    store_rows(d_query + start, token, rows, columns, length, dq)
    dk = tl.dot(tl.trans(ds), q, input_precision=EXACT)
    store_rows(d_key + start, token, rows, columns, length, dk)


def constants(query: Tensor, dropout: float) -> dict[str, Any]:
    """Choose how a kernel is compiled for such queries: (B, H, L, d)."""
    size = max(triton.next_power_of_2(query.shape[2]), 16)
    return {
        "SIZE": size,
        "DEPTH": query.shape[3],
        "DROPS": dropout > 0,
        "EXACT": "ieee" if query.dtype == torch.float32 else "tf32",
        "num_warps": 8 if size > 64 else 4 if size > 32 else 2,
    }


# ---------------------------------------------------------------------- for torch


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
    rows, heads, length, depth = query.shape
    found = tuple(query.new_empty(rows, length, heads, depth) for _ in range(3))
    mask = mask.expand(rows, -1, -1, -1)
    gradient = gradient.transpose(1, 2)
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
