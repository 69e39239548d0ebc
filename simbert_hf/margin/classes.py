"""Classification of sentences: batches and objective."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from simbert_hf.collators import TextCollator
from simbert_hf.data import Pair
from simbert_hf.margin.centres import SampledCentres, random_centres
from simbert_hf.margin.softmax import MarginSoftmax, center_loss, margin_softmax_loss
from simbert_hf.objectives import LossParts, model_inputs
from simbert_hf.utils.arrays import Ints


class ClassCollator(TextCollator):
    """Collates labelled sentences into padded rows and their classes."""

    def __call__(self, sentences: Sequence[Pair]) -> dict[str, Tensor]:
        """Build one batch of B rows.

        Returns:
            ``input_ids``, ``attention_mask``, ``token_type_ids``: (B, L); ``classes``: (B,).
        """
        batch = self.pad(sentence["source"] for sentence in sentences)
        batch["classes"] = torch.tensor([sentence["label"] for sentence in sentences])
        return batch

    def lengths(self, sentences: Sequence[Pair]) -> Ints:
        """Count the tokens of each of N sentences: (N,)."""
        return self.row_lengths(sentence["source"] for sentence in sentences)


@dataclass(frozen=True)
class MarginObjective:
    """Classify every sentence into its group, by a margin; the classes are dropped afterwards.

    Attributes:
        softmax: Kind, scale and margin of the loss.
        sampled: Centres outside the model; None for the model's own ``class_centres``.
        center_weight: Weight of the center loss; if above 0, the model must have its means.

    Example:
        >>> from simbert_hf.gru import CharGru
        >>> model = CharGru.for_texts(["i like tea", "where is it"], min_count=1)
        >>> add_centres(model, (2, 1, model.dimension), seed=0)
        >>> rows = [{"source": "i like tea", "label": 0}, {"source": "where is it", "label": 1}]
        >>> batch = ClassCollator(model.rows)(rows)
        >>> MarginObjective(MarginSoftmax("arc"))(model, batch).total.backward()
        >>> batch["classes"], model.class_centres["softmax"].grad.shape
        (tensor([0, 1]), torch.Size([2, 1, 128]))
    """

    softmax: MarginSoftmax
    sampled: SampledCentres | None = None
    center_weight: float = 0.0

    def __call__(self, model: nn.Module, batch: Mapping[str, Tensor]) -> LossParts:
        """Run the model once and score its vectors against the centres.

        Args:
            model: An encoder, wrapped in DDP or not, with the parameters that
                :func:`add_centres` adds unless they are sampled.
            batch: What ``ClassCollator`` returns.

        Raises:
            ValueError: If the model has no such parameters.
        """
        vectors, classes = model(**model_inputs(batch)).sentence_embedding, batch["classes"]
        if self.sampled is not None:
            found = self.sampled.loss(vectors, classes, self.softmax)
            return LossParts(
                found.loss, classification=found.loss, classification_accuracy=found.accuracy
            )
        centres: Any = getattr(getattr(model, "module", model), "class_centres", None)
        if centres is None:
            raise ValueError("The model has no class centres: add_centres(model, (C, K, D), seed).")
        found = margin_softmax_loss(vectors, centres["softmax"], classes, self.softmax)
        total, center = found.loss, None
        if self.center_weight:
            center = center_loss(vectors, centres["mean"], classes)
            total = total + self.center_weight * center
        return LossParts(
            total,
            classification=found.loss,
            classification_accuracy=found.accuracy,
            center=center,
        )


def add_centres(
    model: nn.Module, shape: tuple[int, int, int], seed: int, center_loss: bool = False
) -> None:
    """Add trainable centres to a model, for as long as it trains.

    Args:
        model: It gets ``class_centres``, with ``softmax`` of the given shape and, for center loss,
            ``mean`` of shape (C, D).
        shape: Classes, sub-centres per class and dimension: (C, K, D).
        seed: Seed of their initial values.
        center_loss: Whether to add means.
    """
    centres = {"softmax": nn.Parameter(random_centres(shape, seed))}
    if center_loss:
        centres["mean"] = nn.Parameter(torch.zeros(shape[0], shape[2]))
    device = next(model.parameters()).device
    model.class_centres = nn.ParameterDict(centres).to(device)
