"""The triplet objective: its losses, on negatives of the batch or given ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from simbert_hf.distributed import gather_uneven_with_grad
from simbert_hf.losses import share_groups
from simbert_hf.modeling.embedding import Embedder
from simbert_hf.objectives import LossParts, key_groups, model_inputs, refuse_scores
from simbert_hf.triplet.losses import (
    Distance,
    Mining,
    TripletLoss,
    mine_in_batch,
    mined_triplet_loss,
    sdml_loss,
    siamese_loss,
    triplet_loss,
    unanchored_loss,
)
from simbert_hf.utils.checks import check_choice

Kind = Literal["triplet", "unanchored", "sdml", "siamese"]
CLASSIFIER = "pair_classifier"


@dataclass(frozen=True)
class TripletObjective:
    """Make positive pairs nearer than negative ones.

    Negatives are given for each row, if the batch has ``negative_rows``, or mined in the batch of
    all processes together; each process computes the entire loss. The losses of accumulated
    micro-batches are averaged.

    Attributes:
        loss: ``triplet``; ``unanchored``, against hard negative pairs of the batch of any anchor;
            ``sdml``; or ``siamese``, a classifier of pairs, which :func:`add_pair_classifier` adds
            to the model.
        mining: How ``triplet`` finds its negatives in the batch.
        distance: Distance of all losses but ``siamese``.
        margin: Margin of ``triplet`` and ``unanchored``, in units of the distance.
        smoothing: Label smoothing of ``sdml``.

    Raises:
        ValueError: If a choice is unknown.

    Example:
        >>> from simbert_hf import DEFAULT_MODEL, SimBert
        >>> from simbert_hf.triplet.members import MemberCollator
        >>> model = SimBert.from_pretrained(DEFAULT_MODEL)
        >>> cards = {"texts": ["where is my card", "i lost my card"], "group": 0}
        >>> drinks = {"texts": ["i like tea", "tea is what i like"], "group": 1}
        >>> batch = MemberCollator(model.rows)([cards, drinks])
        >>> [TripletObjective(margin=margin)(model, batch).active for margin in (0.2, 1.0)]
        [tensor(0.), tensor(1.)]
    """

    loss: Kind = "triplet"
    mining: Mining = "hard"
    distance: Distance = "cosine"
    margin: float = 0.2
    smoothing: float = 0.3

    def __post_init__(self) -> None:
        check_choice("loss", self.loss, get_args(Kind))
        check_choice("mining", self.mining, get_args(Mining))
        check_choice("distance", self.distance, get_args(Distance))

    def __call__(self, model: nn.Module, batch: Mapping[str, Tensor]) -> LossParts:
        """Run the model once and compute the loss.

        Args:
            model: A ``SimBert`` or another encoder, wrapped (DDP, ...) or not.
            batch: What ``MemberCollator`` returns (two rows per group for ``sdml``), or
                ``SimCseCollator`` for triplets.

        Raises:
            ValueError: If pairs are scored, or the model lacks the classifier of ``siamese``.
        """
        refuse_scores(batch)
        vectors, groups = model(**model_inputs(batch)).sentence_embedding, batch["groups"]
        rows = batch.get("negative_rows")
        given = [] if rows is None else [vectors[rows]]
        vectors, groups, *given = gather_uneven_with_grad(vectors[: len(groups)], groups, *given)
        negatives = given[0] if given else None
        if self.loss == "sdml":
            own, *others = gather_uneven_with_grad(*key_groups(batch))
            picked = sdml_loss(
                vectors[0::2],
                torch.cat([vectors[1::2], *given]),
                smoothing=self.smoothing,
                distance=self.distance,
                excluded=share_groups(own, torch.cat([own, *others])),
            )
            return LossParts(picked.loss, accuracy=picked.accuracy)
        if self.loss == "siamese":
            classifier = getattr(getattr(model, "module", model), CLASSIFIER, None)
            if classifier is None:
                raise ValueError(
                    "The model has no classifier of pairs: add_pair_classifier(model)."
                )
            told = siamese_loss(*siamese_rows(vectors, groups, negatives), classifier)
            return LossParts(told.loss, accuracy=told.accuracy)
        found = self._triplets(vectors, groups, negatives)
        return LossParts(found.loss, active=found.active)

    def _triplets(self, vectors: Tensor, groups: Tensor, negatives: Tensor | None) -> TripletLoss:
        if negatives is not None:
            return triplet_loss(
                vectors[0::2],
                vectors[1::2],
                negatives,
                margin=self.margin,
                distance=self.distance,
                anchored=self.loss == "triplet",
            )
        if self.loss == "unanchored":
            return unanchored_loss(vectors, groups, margin=self.margin, distance=self.distance)
        return mined_triplet_loss(
            vectors, groups, margin=self.margin, distance=self.distance, mining=self.mining
        )


def siamese_rows(
    vectors: Tensor, groups: Tensor, negatives: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Pair vectors with positives and given, otherwise random, negatives: three of (T, D)."""
    if negatives is not None:
        return vectors[0::2], vectors[1::2], negatives
    anywhere = vectors.new_zeros(len(vectors), len(vectors))
    anchors, positives, others = mine_in_batch(anywhere, groups, "random")
    return vectors[anchors], vectors[positives], vectors[others]


def add_pair_classifier(model: Embedder) -> None:
    """Add the classifier of ``siamese`` to a model, for as long as it trains."""
    head = nn.Linear(3 * model.config.hidden_size, 1)
    setattr(model, CLASSIFIER, head.to(model.device, model.dtype))
