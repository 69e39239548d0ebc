"""Triton's programs for fused attention: each runs for one row and one head."""

import triton
import triton.language as tl


@triton.jit
def load_rows(start, stride, rows, columns, length):
    """Read a row's tokens: (L, d), zeros beyond them."""
    places = start + rows[:, None] * stride + columns[None, :]
    return tl.load(places, mask=rows[:, None] < length, other=0.0)


@triton.jit
def store_rows(start, stride, rows, columns, length, values):
    """Write a row's tokens."""
    places = start + rows[:, None] * stride + columns[None, :]
    tl.store(places, values.to(start.dtype.element_ty), mask=rows[:, None] < length)


@triton.jit
def probabilities(
    query, key, mask, mask_query, mask_key, rows, length, scale, PRECISION: tl.constexpr
):
    """Softmax of the scores under the additive mask: (L, L)."""
    scores = tl.dot(query, tl.trans(key), input_precision=PRECISION) * scale
    inside = (rows[:, None] < length) & (rows[None, :] < length)
    places = mask + rows[:, None] * mask_query + rows[None, :] * mask_key
    scores += tl.load(places, mask=inside, other=0.0).to(tl.float32)
    scores = tl.where(rows[None, :] < length, scores, float("-inf"))
    weights = tl.exp(scores - tl.max(scores, 1)[:, None])
    return weights / tl.sum(weights, 1)[:, None]


@triton.jit
def kept_share(seed, program, rows, dropout, SIZE: tl.constexpr):
    """Draw what dropout multiplies by: 0, or 1 over the share that is kept. (L, L)."""
    numbers = rows[:, None] * SIZE + rows[None, :]
    drawn = tl.rand(tl.load(seed) + program, numbers, n_rounds=7)
    return tl.where(drawn >= dropout, 1 / (1 - dropout), 0.0)


@triton.jit
def forward_kernel(
    query, key, value, mask, seed, out,
    q_row, q_head, q_token, k_row, k_head, k_token, v_row, v_head, v_token,
    mask_row, mask_query, mask_key, heads, length, scale, dropout,
    SIZE: tl.constexpr, DEPTH: tl.constexpr, DROPS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Attend within one row, in one head."""
    program = tl.program_id(0).to(tl.int64)
    row, head = program // heads, program % heads
    rows, columns = tl.arange(0, SIZE), tl.arange(0, DEPTH)
    q = load_rows(query + row * q_row + head * q_head, q_token, rows, columns, length)
    k = load_rows(key + row * k_row + head * k_head, k_token, rows, columns, length)
    v = load_rows(value + row * v_row + head * v_head, v_token, rows, columns, length)
    p = probabilities(
        q, k, mask + row * mask_row, mask_query, mask_key, rows, length, scale, PRECISION
    )
    if DROPS:
        p *= kept_share(seed, program, rows, dropout, SIZE)
    found = tl.dot(p.to(v.dtype), v, input_precision=PRECISION)
    out_token = heads * DEPTH  # (B, L, H, d), as the layers go on with it
    out_start = out + row * length * out_token + head * DEPTH
    store_rows(out_start, out_token, rows, columns, length, found)


@triton.jit
def backward_kernel(
    query, key, value, mask, seed, gradient, d_query, d_key, d_value,
    q_row, q_head, q_token, k_row, k_head, k_token, v_row, v_head, v_token,
    g_row, g_head, g_token,
    mask_row, mask_query, mask_key, heads, length, scale, dropout,
    SIZE: tl.constexpr, DEPTH: tl.constexpr, DROPS: tl.constexpr, PRECISION: tl.constexpr,
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
        q, k, mask + row * mask_row, mask_query, mask_key, rows, length, scale, PRECISION
    )
    dp = tl.dot(g, tl.trans(v), input_precision=PRECISION)
    dropped = p
    if DROPS:
        share = kept_share(seed, program, rows, dropout, SIZE)
        dropped = p * share
        dp *= share
    token = heads * DEPTH
    start = row * length * token + head * DEPTH
    dv = tl.dot(tl.trans(dropped.to(g.dtype)), g, input_precision=PRECISION)
    store_rows(d_value + start, token, rows, columns, length, dv)
    ds = (p * (dp - tl.sum(p * dp, 1)[:, None]) * scale).to(q.dtype)
    dq = tl.dot(ds, k, input_precision=PRECISION)
    store_rows(d_query + start, token, rows, columns, length, dq)
    dk = tl.dot(tl.trans(ds), q, input_precision=PRECISION)
    store_rows(d_key + start, token, rows, columns, length, dk)
