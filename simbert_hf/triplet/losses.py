"""Triplet losses, in-batch mining of their negatives, and SDML, as pure tensor functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from simbert_hf.losses import InBatchLoss, at_least_float32, cosine_similarity, cosines
from simbert_hf.utils.checks import check_choice

Distance = Literal["squared", "cosine"]
Mining = Literal["random", "all", "hard", "semi_hard"]


@dataclass(frozen=True)
class TripletLoss:
    """A loss over positive pairs that should be nearer than negative ones.

    Attributes:
        loss: Mean over the active triplets, those that the margin does not separate yet; 0 if all
            are separated. A scalar.
        active: Share of the triplets that are active, a scalar.
    """

    loss: Tensor
    active: Tensor


def distances(rows: Tensor, columns: Tensor, kind: Distance) -> Tensor:
    """Compute the distance of each row of one matrix to each row of another, in float32 or better.

    Args:
        rows: Shape: (Q, D).
        columns: Shape: (K, D).
        kind: ``squared`` Euclidean, of the unnormalized vectors; or ``cosine``, 1 - cos, which is
            half the squared distance of the unit vectors.

    Returns:
        Shape: (Q, K).

    Example:
        >>> distances(torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 4.0]]), "squared")
        tensor([[9.]])
        >>> distances(torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 4.0]]), "cosine")
        tensor([[0.2000]])
    """
    check_choice("distance", kind, get_args(Distance))
    if kind == "cosine":
        return 1 - cosines(rows, columns)
    with torch.autocast(rows.device.type, enabled=False):
        rows, columns = at_least_float32(rows), at_least_float32(columns)
        centre = columns.detach().mean(dim=0)  # far from 0, near vectors would lose precision
        rows, columns = rows - centre, columns - centre
        squares = rows.square().sum(dim=1)[:, None] + columns.square().sum(dim=1)
        return squares - 2 * rows @ columns.T


def paired_distances(first: Tensor, second: Tensor, kind: Distance) -> Tensor:
    """Compute row-wise distances of ``first`` and ``second``: (N, D), (N, D) -> (N,)."""
    check_choice("distance", kind, get_args(Distance))
    if kind == "cosine":
        return 1 - cosine_similarity(first, second)
    return (at_least_float32(first) - at_least_float32(second)).square().sum(dim=-1)


def margin_loss(near: Tensor, far: Tensor, margin: float) -> TripletLoss:
    """Mean of ``max(near - far + margin, 0)`` over the triplets where it is above 0.

    Args:
        near: Distances of positive pairs. Shape: (T,), or one that broadcasts with ``far``.
        far: Distances of negative pairs.
        margin: By how much the negative distances should be larger.

    Returns:
        The loss and the share of active triplets; both 0 without triplets.

    Example:
        >>> near, far = torch.tensor([1.0, 1.0, 1.0]), torch.tensor([0.5, 1.5, 3.0])
        >>> found = margin_loss(near, far, margin=1.0)
        >>> found.loss, found.active
        (tensor(1.), tensor(0.6667))
    """
    terms = (near - far + margin).relu()
    active = (terms > 0).sum()
    return TripletLoss(terms.sum() / active.clamp(min=1), active / max(terms.numel(), 1))


def triplet_loss(
    anchors: Tensor,
    positives: Tensor,
    negatives: Tensor,
    *,
    margin: float,
    distance: Distance = "cosine",
    anchored: bool = True,
) -> TripletLoss:
    """Triplet loss with given negatives: ``max(d(a, p) - d(a, n) + margin, 0)``.

    Args:
        anchors: Sentence vectors. Shape: (N, D).
        positives: Their paraphrases. Shape: (N, D).
        negatives: A hard negative for each. Shape: (N, D).
        margin: By how much negatives should be farther, in units of the distance.
        distance: See :func:`distances`.
        anchored: Compare an anchor's positive with its own negative. Otherwise every positive pair
            is compared with every negative pair ``(x, y)`` of the batch, of any anchor:
            ``max(d(a, p) - d(x, y) + margin, 0)``.

    Returns:
        The mean over the active triplets, and their share.

    Example:
        >>> a, p, n = (torch.tensor([row]) for row in ([0.0, 0.0], [1.0, 0.0], [0.0, 1.0]))
        >>> triplet_loss(a, p, n, margin=0.5, distance="squared").loss
        tensor(0.5000)
    """
    near = paired_distances(anchors, positives, distance)
    far = paired_distances(anchors, negatives, distance)
    return margin_loss(near if anchored else near[:, None], far, margin)


def mined_triplet_loss(
    vectors: Tensor,
    groups: Tensor,
    *,
    margin: float,
    distance: Distance = "cosine",
    mining: Mining = "hard",
) -> TripletLoss:
    """Triplet loss with negatives from the batch.

    Args:
        vectors: Sentence vectors. Shape: (B, D).
        groups: Group of each; those of one group are positives of each other. Shape: (B,).
        margin: By how much negatives should be farther, in units of the distance.
        distance: See :func:`distances`.
        mining: See :func:`mine_in_batch`.

    Returns:
        The mean over the active triplets, and their share; both 0 without triplets.

    Example:
        >>> vectors, groups = torch.tensor([[0.0], [2.0], [3.0]]), torch.tensor([0, 0, 1])
        >>> mined_triplet_loss(vectors, groups, margin=1.0, distance="squared").loss
        tensor(4.)
    """
    found = distances(vectors, vectors, distance)  # (B, B)
    anchors, positives, negatives = mine_in_batch(found.detach(), groups, mining)
    return margin_loss(found[anchors, positives], found[anchors, negatives], margin)


def mine_in_batch(found: Tensor, groups: Tensor, mining: Mining) -> tuple[Tensor, Tensor, Tensor]:
    """Choose triplets of a batch.

    - ``random``: for every positive pair a random row of another group.
    - ``all``: for every positive pair every row of the other groups.
    - ``hard``: for every anchor its farthest positive and its nearest negative (Hermans et al.
      2017, https://arxiv.org/abs/1703.07737).
    - ``semi_hard``: for every positive pair the nearest negative that is farther than the positive
      (Schroff et al. 2015, https://arxiv.org/abs/1503.03832); pairs without one are left out.

    Args:
        found: Distances. Shape: (B, B).
        groups: Group of each row. Shape: (B,).
        mining: One of these.

    Returns:
        Anchors, positives and negatives of T triplets, (T,) each; none if all rows are in one
        group, or each in its own.

    Example:
        >>> found = torch.tensor([[0.0, 4.0, 1.0], [4.0, 0.0, 9.0], [1.0, 9.0, 0.0]])
        >>> mine_in_batch(found, torch.tensor([5, 5, 7]), "semi_hard")
        (tensor([1]), tensor([0]), tensor([2]))
    """
    check_choice("mining", mining, get_args(Mining))
    same = groups[:, None] == groups[None, :]  # (B, B)
    other, positive = ~same, same.clone().fill_diagonal_(False)
    if mining == "hard":
        anchors = (positive.any(dim=1) & other.any(dim=1)).nonzero()[:, 0]
        far = found.masked_fill(~positive, -torch.inf)[anchors].argmax(dim=1)
        return anchors, far, found.masked_fill(same, torch.inf)[anchors].argmin(dim=1)
    anchors, positives = (positive & other.any(dim=1, keepdim=True)).nonzero(as_tuple=True)
    candidates = other[anchors]  # (T, B)
    if mining == "all":
        pair, negatives = candidates.nonzero(as_tuple=True)
        return anchors[pair], positives[pair], negatives
    if mining == "random":
        draws = torch.rand(candidates.shape, device=found.device)
        return anchors, positives, draws.masked_fill(~candidates, -1).argmax(dim=1)
    candidates &= found[anchors] > found[anchors, positives][:, None]
    nearest = found[anchors].masked_fill(~candidates, torch.inf).argmin(dim=1)
    kept = candidates.any(dim=1)
    return anchors[kept], positives[kept], nearest[kept]


def unanchored_loss(
    vectors: Tensor, groups: Tensor, *, margin: float, distance: Distance = "cosine"
) -> TripletLoss:
    """Compare the batch's positive pairs with as many of its hardest negative pairs, unanchored.

    ``max(d(a, p) - d(x, y) + margin, 0)`` for every positive pair ``(a, p)`` and every ``(x, y)``
    among the nearest pairs of rows from different groups.

    Args:
        vectors: Sentence vectors. Shape: (B, D).
        groups: Group of each. Shape: (B,).
        margin: By how much negatives should be farther, in units of the distance.
        distance: See :func:`distances`.

    Returns:
        The mean over the active combinations, and their share; both 0 without any.

    Example:
        >>> vectors, groups = torch.tensor([[0.0], [2.0], [3.0]]), torch.tensor([0, 0, 1])
        >>> unanchored_loss(vectors, groups, margin=1.0, distance="squared").loss
        tensor(4.)
    """
    found = distances(vectors, vectors, distance)
    same = groups[:, None] == groups[None, :]
    once = torch.ones_like(same).triu(diagonal=1)  # each pair of rows once
    near, far = found[same & once], found[~same & once]
    hardest = far.detach().argsort()[: len(near)]
    return margin_loss(near[:, None], far[hardest], margin)


def siamese_loss(
    anchors: Tensor, positives: Tensor, negatives: Tensor, classifier: nn.Module
) -> InBatchLoss:
    """Classify pairs as paraphrases (1) or others (0) from ``[u, v, |u - v|]``.

    Args:
        anchors: Sentence vectors. Shape: (T, D).
        positives: Their paraphrases. Shape: (T, D).
        negatives: Other sentences. Shape: (T, D).
        classifier: (2T, 3D) -> (2T, 1), the logit of "the same".

    Returns:
        Mean binary cross-entropy, and the share of the 2T pairs classified correctly; both 0
        without pairs.

    Example:
        >>> rows = torch.eye(3)
        >>> zero = torch.nn.Linear(9, 1).requires_grad_(False)
        >>> _ = zero.weight.zero_(), zero.bias.zero_()
        >>> siamese_loss(rows, rows, rows.roll(1, 0), zero).loss.exp()
        tensor(2.)
    """
    first, second = anchors.repeat(2, 1), torch.cat([positives, negatives])
    scored = classifier(torch.cat([first, second, (first - second).abs()], dim=1))
    logits = at_least_float32(scored)[:, 0]
    same = torch.arange(len(logits), device=logits.device) < len(anchors)
    terms = F.binary_cross_entropy_with_logits(logits, same.to(logits.dtype), reduction="none")
    right, count = ((logits > 0) == same).sum(), max(len(logits), 1)
    return InBatchLoss(terms.sum() / count, right / count)


def sdml_loss(
    anchors: Tensor,
    keys: Tensor,
    *,
    smoothing: float = 0.3,
    distance: Distance = "squared",
    excluded: Tensor | None = None,
) -> InBatchLoss:
    """SDML (Bonadiman et al. 2019, https://arxiv.org/abs/1905.12786), robust to noisy labels.

    Softmax cross-entropy over negated distances: each anchor picks its positive among the keys,
    with smoothed instead of one-hot labels.

    Args:
        anchors: Sentence vectors. Shape: (N, D).
        keys: Candidates, of which the first N are the anchors' own positives. Shape: (K, D).
        smoothing: Share of the label that is spread evenly over the other candidates.
        distance: See :func:`distances`; the paper's is ``squared``.
        excluded: True where a key is not a candidate (a false negative). Shape: (N, K), bool.

    Returns:
        The loss and the share of anchors whose positive is the nearest candidate. All-zero vectors
        give the log of the number of candidates.

    Example:
        >>> sdml_loss(torch.zeros(3, 8), torch.zeros(3, 8)).loss.exp()
        tensor(3.0000)
    """
    scores = -distances(anchors, keys, distance)  # (N, K)
    own = torch.eye(len(scores), scores.shape[1], dtype=torch.bool, device=scores.device)
    out = torch.zeros_like(own) if excluded is None else excluded & ~own
    scores = scores.masked_fill(out, torch.finfo(scores.dtype).min)
    others = (~out & ~own).sum(dim=1, keepdim=True).to(scores.dtype)
    spread = torch.where(others > 0, smoothing / others.clamp(min=1), 0.0)
    labels = torch.where(own, 1 - spread * others, spread)
    logs = scores.log_softmax(dim=1).masked_fill(out, 0.0)
    best = scores.detach().argmax(dim=1)
    at = torch.arange(len(scores), device=scores.device)
    return InBatchLoss(-(labels * logs).sum(dim=1).mean(), (best == at).float().mean())
