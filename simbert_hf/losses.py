"""Losses as pure tensor functions: no model, tokenizer, rank or device inside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import or_

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from simbert_hf.pooling import normalize

# Scores held at once. On a CPU 16 MB of float32: glibc maps larger blocks afresh at every step (its
# threshold grows to 32 MB), so each page is cleared again. A GPU's allocator has no such limit, and
# its kernels want more rows.
CPU_CHUNK, GPU_CHUNK = 2**22, 2**26


def at_least_float32(values: Tensor) -> Tensor:
    """Widen half precision, in which near-equal cosines tie."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def chunk_rows(device: torch.device, columns: int) -> int:
    """Return how many rows of that many scores are held at once, at least 1."""
    return max(1, (CPU_CHUNK if device.type == "cpu" else GPU_CHUNK) // columns)


def cosines(rows: Tensor, columns: Tensor) -> Tensor:
    """Compute cosines of each row of one matrix with each row of another, in float32 or better.

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
    """A loss over a batch, and its accuracy.

    Attributes:
        loss: A scalar; for a softmax, the mean cross-entropy.
        accuracy: Share of queries whose positive outscores every other candidate; for scored pairs,
            share of the couples with different scores that are in the right order. A scalar.
    """

    loss: Tensor
    accuracy: Tensor


def in_batch_loss(
    queries: Tensor,
    keys: Tensor,
    positives: Tensor,
    *,
    scale: float,
    excluded: Tensor | None = None,
    bias: Tensor | None = None,
) -> InBatchLoss:
    """Softmax cross-entropy of scaled cosines: each query picks its positive among the keys.

    Args:
        queries: Sentence vectors of any length. Shape: (Q, D).
        keys: Candidates. Shape: (K, D).
        positives: Index of each query's positive among the keys. Shape: (Q,).
        scale: Inverse temperature that multiplies the cosines.
        excluded: True where a key is not a candidate for a query (itself, a false negative).
            Shape: (Q, K), bool.
        bias: Added to the scaled cosines. Shape: (Q, K).

    Returns:
        The loss and its accuracy. All-zero vectors give the log of the number of candidates.

    Example:
        >>> keys = torch.eye(2)
        >>> in_batch_loss(keys, keys, torch.arange(2), scale=1.0).accuracy
        tensor(1.)
    """
    scores = cosines(queries, keys) * scale  # (Q, K)
    if bias is not None:
        scores = scores + bias
    if excluded is not None:
        scores = scores.masked_fill(excluded, torch.finfo(scores.dtype).min)
    best = scores.detach().argmax(dim=-1)
    return InBatchLoss(F.cross_entropy(scores, positives), (best == positives).float().mean())


def mean_over_blocks(
    block: Callable[[int, int], InBatchLoss], queries: Tensor, columns: int
) -> InBatchLoss:
    """Average a loss over blocks of its queries, so that few scores exist at a time.

    The backward pass recomputes each block's scores.

    Args:
        block: Computes the mean loss of the queries from one row up to another, exclusive.
        queries: Shape: (Q, D).
        columns: Number of scores per query.

    Returns:
        The loss and its accuracy over all queries.
    """
    rows, size = len(queries), chunk_rows(queries.device, columns)
    if rows <= size:
        return block(0, rows)
    spans = [(start, min(start + size, rows)) for start in range(0, rows, size)]
    parts = [
        checkpoint(block, *span, use_reentrant=False, preserve_rng_state=False) for span in spans
    ]
    shares = [(stop - start) / rows for start, stop in spans]
    weighted = list(zip(parts, shares, strict=True))
    loss = torch.stack([part.loss * share for part, share in weighted]).sum()
    accuracy = torch.stack([part.accuracy * share for part, share in weighted]).sum()
    return InBatchLoss(loss, accuracy)


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
        groups: Group of each row; other rows of the same group are false negatives and are left out
            of the softmax. None keeps them, as the original does. Shape: (B,).
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
        raise ValueError(f"Pairs are adjacent rows, so their number must be even; got {size}.")
    keys = vectors if keys is None else keys
    key_groups = groups if key_groups is None else key_groups

    def block(start: int, stop: int) -> InBatchLoss:
        rows = torch.arange(start, stop, device=vectors.device)
        positives = (rows ^ 1) + offset
        if groups is None or key_groups is None:
            excluded = torch.zeros(len(rows), len(keys), dtype=torch.bool, device=vectors.device)
        else:
            excluded = groups[start:stop, None] == key_groups[None, :]
        # Not by indices: torch would copy True and False from the host and wait for the device.
        excluded.scatter_(1, rows[:, None] + offset, True).scatter_(1, positives[:, None], False)
        return in_batch_loss(vectors[start:stop], keys, positives, scale=scale, excluded=excluded)

    return mean_over_blocks(block, vectors, len(keys))


def one_way_loss(
    anchors: Tensor,
    positives: Tensor,
    negatives: Tensor | None = None,
    *,
    scale: float,
    hard_negative_weight: float = 0.0,
    offset: int = 0,
    groups: Tensor | None = None,
    key_groups: Tensor | None = None,
) -> InBatchLoss:
    """SimCSE's loss as in its paper (Gao et al. 2021, https://arxiv.org/abs/2104.08821).

    Each anchor picks its positive among the positives of all anchors: N columns, or 2N with a hard
    negative for every anchor. The symmetric form of 2N - 1 columns is :func:`pair_loss`.

    Args:
        anchors: Sentence vectors. Shape: (N, D).
        positives: Their second views or paraphrases, of all processes. Shape: (K, D).
        negatives: Their hard negatives, of all processes. Shape: (K, D).
        scale: Inverse temperature; the paper uses 20.
        hard_negative_weight: Added to the scaled cosine of an anchor and its own hard negative.
        offset: Row of ``positives`` at which the anchors' own start.
        groups: Groups of each anchor and of its own positive; keys of either are false negatives
            and are left out of the softmax. None keeps them, as the paper does. Shape: (N, 2).
        key_groups: Groups of each key, positives and then negatives, with ``groups``.
            Shape: (K, 2) or (2K, 2).

    Returns:
        The loss and its accuracy over the N anchors.

    Raises:
        ValueError: If ``groups`` is given without ``key_groups``, or the reverse.

    Example:
        >>> zeros = torch.zeros(3, 8)
        >>> one_way_loss(zeros, zeros, zeros, scale=20.0).loss.exp().round().item()
        6.0
    """
    keys = positives if negatives is None else torch.cat([positives, negatives])
    if (groups is None) != (key_groups is None):
        raise ValueError("groups and key_groups must be given together, or not at all.")

    def block(start: int, stop: int) -> InBatchLoss:
        own = torch.arange(start, stop, device=anchors.device) + offset
        bias = excluded = None
        if negatives is not None and hard_negative_weight:
            bias = at_least_float32(anchors).new_zeros(stop - start, len(keys))
            bias.scatter_(1, len(positives) + own[:, None], hard_negative_weight)
        if groups is not None and key_groups is not None:
            excluded = share_groups(groups[start:stop], key_groups)
            excluded.scatter_(1, own[:, None], False)
        return in_batch_loss(
            anchors[start:stop], keys, own, scale=scale, excluded=excluded, bias=bias
        )

    return mean_over_blocks(block, anchors, len(keys))


def share_groups(rows: Tensor, columns: Tensor) -> Tensor:
    """Tell which rows and columns have a group in common: (Q, A), (K, B) -> (Q, K), bool.

    Example:
        >>> share_groups(torch.tensor([[1, 2]]), torch.tensor([[2, 5], [3, 4]]))
        tensor([[ True, False]])
    """
    pairs = ((one[:, None], other) for one in rows.unbind(1) for other in columns.unbind(1))
    return reduce(or_, (one == other for one, other in pairs))


def cosent_loss(similarities: Tensor, scores: Tensor, *, scale: float) -> InBatchLoss:
    """CoSENT (Su 2022, https://kexue.fm/archives/8847): rank pairs in the order of their scores.

    ``log(1 + sum exp(scale * (s_j - s_i)))`` over all pairs i that are scored above pairs j.

    Args:
        similarities: The model's similarity s of the two sentences of each pair; cosines, or
            :func:`angle_similarity` for AnglE's loss. Shape: (P,).
        scores: Human similarity scores. Shape: (P,).
        scale: Inverse temperature; both papers use 20.

    Returns:
        The loss and its accuracy. Equal similarities give log(1 + number of ordered couples).

    Example:
        >>> cosent_loss(torch.zeros(3), torch.tensor([5.0, 1.0, 1.0]), scale=20.0).loss.exp()
        tensor(3.0000)
    """
    similarities = at_least_float32(similarities)
    gaps = (similarities[None, :] - similarities[:, None]) * scale  # (P, P): s_j - s_i
    ordered = scores[:, None] > scores[None, :]
    terms = gaps.masked_fill(~ordered, torch.finfo(gaps.dtype).min).flatten()
    loss = torch.cat([terms.new_zeros(1), terms]).logsumexp(dim=0)
    right = ((gaps.detach() < 0) & ordered).sum()
    return InBatchLoss(loss, right / ordered.sum().clamp(min=1))


def preference_loss(
    chosen: Tensor, rejected: Tensor, *, scale: float, margin: float
) -> InBatchLoss:
    """SimPO (Meng et al. 2024, arXiv 2405.14734): prefer chosen sentences to rejected ones.

    Args:
        chosen: Mean log-probability per token of each chosen sentence, in nats. Shape: (P,).
        rejected: The same for each rejected one. Shape: (P,).
        scale: Weight of a nat of difference (the paper's beta).
        margin: By how many nats the chosen one should be likelier (its gamma over beta).

    Returns:
        The loss, -log sigmoid(scale (chosen - rejected - margin)), in nats, and the share of pairs
        whose chosen sentence is the likelier one; means over the pairs.

    Example:
        >>> found = preference_loss(torch.tensor([-1.0]), torch.tensor([-3.0]), scale=1, margin=2)
        >>> round(found.loss.item(), 4), found.accuracy.item()
        (0.6931, 1.0)
    """
    wins = at_least_float32(chosen) - at_least_float32(rejected)
    loss = F.softplus(-scale * (wins - margin)).mean()
    return InBatchLoss(loss, (wins > 0).float().mean())


def cosine_similarity(first: Tensor, second: Tensor) -> Tensor:
    """Cosine of each row of ``first`` and the same row of ``second``: (P, D), (P, D) -> (P,)."""
    first, second = (normalize(at_least_float32(vectors)) for vectors in (first, second))
    return (first * second).sum(dim=-1)


def angle_similarity(first: Tensor, second: Tensor) -> Tensor:
    """AnglE's similarity of each row pair (Li & Li 2023, https://arxiv.org/abs/2309.12871).

    The halves of a vector are the real and the imaginary part of a complex one. For unit vectors
    x and y this is ``|Re<x, y> + Im<x, y>|``, which keeps a gradient where the cosine saturates.

    Args:
        first: Sentence vectors of any length. Shape: (P, D), D even.
        second: Their partners. Shape: (P, D).

    Returns:
        Shape: (P,).

    Raises:
        ValueError: If D is odd.

    Example:
        >>> angle_similarity(torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0]]))
        tensor([1.])
    """
    if first.shape[-1] % 2:
        raise ValueError(f"AnglE halves the vectors, but their dimension {first.shape[-1]} is odd.")
    (a, b), (c, d) = (
        normalize(at_least_float32(vectors)).chunk(2, dim=-1) for vectors in (first, second)
    )
    return (a * c + b * d + b * c - a * d).sum(dim=-1).abs()  # of (a + bi) times (c - di)


def distillation_loss(
    vectors: Tensor, teacher: Tensor, unrelated_weight: float = 1.0, unrelated_cosine: float = 0.0
) -> Tensor:
    """Mean squared difference between the student's cosines and a teacher's, over distinct rows.

    RoFormer-Sim's second stage (Su 2021, https://github.com/ZhuiyiTechnology/roformer-sim).

    Args:
        vectors: The student's sentence vectors, of any length. Shape: (B, D).
        teacher: The target similarities. Shape: (B, B).
        unrelated_weight: Weight of two rows of similarity 0 or less, against 1 for equal ones;
            linear in between. Most rows of a batch are unrelated: there is less to learn from them.
        unrelated_cosine: Cosine that stands for similarity 0, as 1 does for 1. Sentences differ in
            how similar they are to all others, which unit vectors of mean 0 cannot express.

    Returns:
        A scalar; 0 where they agree, and for a single row.

    Example:
        >>> distillation_loss(torch.eye(3), torch.ones(3, 3))
        tensor(1.)
        >>> distillation_loss(torch.eye(3), -torch.ones(3, 3), unrelated_cosine=0.5)
        tensor(0.)
    """
    ours = (cosines(vectors, vectors) - unrelated_cosine) / (1 - unrelated_cosine)
    wanted = teacher.to(ours.dtype)
    weights = (unrelated_weight + (1 - unrelated_weight) * wanted.clamp(0, 1)).fill_diagonal_(0)
    least = torch.finfo(weights.dtype).tiny  # where there is nothing to compare
    return (weights * (ours - wanted).square()).sum() / weights.sum().clamp(min=least)
