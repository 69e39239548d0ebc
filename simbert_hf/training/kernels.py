"""Triton's programs for training on a GPU."""

import triton
import triton.language as tl

# ---------------------------------------------------------------------- attention
# Each program runs for one row and one head of queries, keys and values, (B, L, 3, H, d).


@triton.jit
def load_rows(start, stride, rows, columns, length):
    """Read a row's tokens: (L, d), padded with zeros."""
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
    """Draw the factors of dropout: 0, or 1 over the share that is kept. (L, L)."""
    numbers = rows[:, None] * SIZE + rows[None, :]
    drawn = tl.rand(tl.load(seed) + program, numbers, n_rounds=7)
    return tl.where(drawn >= dropout, 1 / (1 - dropout), 0.0)


@triton.jit
def forward_kernel(
    parts, mask, seed, out, mask_row, mask_query, mask_key, heads, length, scale, dropout,
    SIZE: tl.constexpr, DEPTH: tl.constexpr, DROPS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Attend within one row, in one head."""
    program = tl.program_id(0).to(tl.int64)
    row, head = program // heads, program % heads
    rows, columns = tl.arange(0, SIZE), tl.arange(0, DEPTH)
    width = heads * DEPTH
    token = 3 * width  # stride between tokens
    start = parts + row * length * token + head * DEPTH
    q = load_rows(start, token, rows, columns, length)
    k = load_rows(start + width, token, rows, columns, length)
    v = load_rows(start + 2 * width, token, rows, columns, length)
    p = probabilities(
        q, k, mask + row * mask_row, mask_query, mask_key, rows, length, scale, PRECISION
    )
    if DROPS:
        p *= kept_share(seed, program, rows, dropout, SIZE)
    found = tl.dot(p.to(v.dtype), v, input_precision=PRECISION)
    store_rows(out + row * length * width + head * DEPTH, width, rows, columns, length, found)


@triton.jit
def backward_kernel(
    parts, mask, seed, gradient, found, mask_row, mask_query, mask_key, heads, length, scale,
    dropout,
    SIZE: tl.constexpr, DEPTH: tl.constexpr, DROPS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Recompute one row's probabilities, in one head, and compute the gradients."""
    program = tl.program_id(0).to(tl.int64)
    row, head = program // heads, program % heads
    rows, columns = tl.arange(0, SIZE), tl.arange(0, DEPTH)
    width = heads * DEPTH
    token = 3 * width
    start = parts + row * length * token + head * DEPTH
    q = load_rows(start, token, rows, columns, length)
    k = load_rows(start + width, token, rows, columns, length)
    v = load_rows(start + 2 * width, token, rows, columns, length)
    g = load_rows(gradient + row * length * width + head * DEPTH, width, rows, columns, length)
    p = probabilities(
        q, k, mask + row * mask_row, mask_query, mask_key, rows, length, scale, PRECISION
    )
    dp = tl.dot(g, tl.trans(v), input_precision=PRECISION)
    dropped = p
    if DROPS:
        share = kept_share(seed, program, rows, dropout, SIZE)
        dropped = p * share
        dp *= share
    start = found + row * length * token + head * DEPTH
    dv = tl.dot(tl.trans(dropped.to(g.dtype)), g, input_precision=PRECISION)
    store_rows(start + 2 * width, token, rows, columns, length, dv)
    ds = (p * (dp - tl.sum(p * dp, 1)[:, None]) * scale).to(q.dtype)
    dq = tl.dot(ds, k, input_precision=PRECISION)
    store_rows(start, token, rows, columns, length, dq)
    dk = tl.dot(tl.trans(ds), q, input_precision=PRECISION)
    store_rows(start + width, token, rows, columns, length, dk)


# ---------------------------------------------------------------------- cross-entropy


@triton.jit
def slopes_kernel(scores, labels, losses, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Replace the scores of one token, (V,), by the slopes of its loss, which is stored apart."""
    token = tl.program_id(0).to(tl.int64)
    start, columns = scores + token * WIDTH, tl.arange(0, BLOCK)
    label = tl.load(labels + token)
    right = tl.load(start + label).to(tl.float32)
    most = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, WIDTH, BLOCK):
        inside = first + columns < WIDTH
        found = tl.load(start + first + columns, mask=inside, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(most, found)
        # where all is -inf, the difference would be NaN
        total = tl.where(higher == float("-inf"), 0.0, total * tl.exp(most - higher))
        total += tl.where(higher == float("-inf"), 0.0, tl.exp(found - higher))
        most = higher
    top = tl.max(most, 0)
    whole = top + tl.log(tl.sum(total * tl.exp(most - top), 0))
    tl.store(losses + token, whole - right)
    for first in range(0, WIDTH, BLOCK):
        inside = first + columns < WIDTH
        found = tl.load(start + first + columns, mask=inside, other=float("-inf")).to(tl.float32)
        slopes = tl.exp(found - whole) - tl.where(first + columns == label, 1.0, 0.0)
        tl.store(start + first + columns, slopes.to(scores.dtype.element_ty), mask=inside)
