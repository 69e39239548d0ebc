"""Sentences and the classes they belong to: data, batches, objective and measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import datasets
import numpy as np
import torch
from torch import Tensor, nn

from simbert_hf.collators import cut_at_punctuation
from simbert_hf.data import FixedPairs, Pair
from simbert_hf.evaluation import CollapseMeter, sts_spearman, topk_accuracy
from simbert_hf.evaluation.evaluators import SPEARMAN, TOPS
from simbert_hf.evaluation.geometry import METER
from simbert_hf.margin.centres import SampledCentres, random_centres
from simbert_hf.margin.softmax import MarginSoftmax, center_loss, margin_softmax_loss
from simbert_hf.objectives import model_inputs
from simbert_hf.readers import normalize
from simbert_hf.rows import Rows


def labelled_sentences(groups: datasets.Dataset, seed: int = 0) -> FixedPairs:
    """Make every sentence an example of its group, the classes numbered 0, 1, 2, ...

    Rows that share a sentence have one ``group``, so they are one class; each sentence stands once.

    Args:
        groups: A data set of groups.
        seed: For whatever is random about an example.

    Returns:
        Sentences with their ``label``.

    Example:
        >>> texts = [["Hi", "Hello"], ["Bye", "So long"], ["hello", "Hey"]]
        >>> rows = datasets.Dataset.from_dict({"texts": texts, "group": [7, 9, 7]})
        >>> [(row["source"], row["label"]) for row in labelled_sentences(rows)]
        [('Hi', 0), ('Hello', 0), ('Bye', 1), ('So long', 1), ('Hey', 0)]
    """
    number: dict[int, int] = {}
    found: dict[str, tuple[str, int]] = {}
    for row in groups:
        label = number.setdefault(row["group"], len(number))
        for text in row["texts"]:
            found.setdefault(normalize(text), (text, label))
    sentences, labels = zip(*found.values(), strict=True)
    return FixedPairs({"source": sentences, "target": sentences, "label": labels}, seed)


@dataclass
class ClassCollator:
    """Labelled sentences -> padded rows and their classes.

    Attributes:
        rows: Builds token rows: ``model.rows``.
        max_length: Longest sentence, in tokens with the special ones.
        max_chars: Cut sentences at punctuation to this many characters first; None does not.
    """

    rows: Rows
    max_length: int = 64
    max_chars: int | None = None

    def __call__(self, sentences: Sequence[Pair]) -> dict[str, Tensor]:
        """Build one batch of B rows.

        Returns:
            ``input_ids``, ``attention_mask``, ``token_type_ids``: (B, L); ``classes``: (B,).
        """
        texts = [cut_at_punctuation(each["source"], self.max_chars) for each in sentences]
        batch = self.rows.pad(self.rows.sources(texts, self.max_length))
        batch["classes"] = torch.tensor([sentence["label"] for sentence in sentences])
        return batch


@dataclass(frozen=True)
class ClassLoss:
    """The parts of a classification loss, each a scalar.

    Attributes:
        total: Their weighted sum, to be minimised.
        classification: Mean cross-entropy over the classes, in nats.
        classification_accuracy: Share of sentences that score their own class highest.
        center: Half the mean squared distance to the class's mean; None without center loss.
    """

    total: Tensor
    classification: Tensor
    classification_accuracy: Tensor
    center: Tensor | None = None


@dataclass(frozen=True)
class MarginObjective:
    """Classify every sentence into its group, by a margin; the classes are dropped afterwards.

    Attributes:
        softmax: Which loss, at which scale and margin.
        sampled: Centres outside the model; None for the model's own ``class_centres``.
        center_weight: Weight of the center loss, whose means the model must then have too.
    """

    softmax: MarginSoftmax
    sampled: SampledCentres | None = None
    center_weight: float = 0.0

    def __call__(self, model: nn.Module, batch: Mapping[str, Tensor]) -> ClassLoss:
        """Run the model once and score its vectors against the centres.

        Args:
            model: An encoder, wrapped in DDP or not, with the parameters that
                :func:`add_centres` gives unless they are sampled.
            batch: What ``ClassCollator`` gives.

        Returns:
            The named parts.
        """
        vectors, classes = model(**model_inputs(batch)).sentence_embedding, batch["classes"]
        if self.sampled is not None:
            found = self.sampled.loss(vectors, classes, self.softmax)
            return ClassLoss(found.loss, found.loss, found.accuracy)
        centres: Any = getattr(model, "module", model).class_centres
        found = margin_softmax_loss(vectors, centres["softmax"], classes, self.softmax)
        if not self.center_weight:
            return ClassLoss(found.loss, found.loss, found.accuracy)
        center = center_loss(vectors, centres["mean"], classes)
        return ClassLoss(
            found.loss + self.center_weight * center, found.loss, found.accuracy, center
        )


def add_centres(
    model: nn.Module, shape: tuple[int, int, int], seed: int, center_loss: bool = False
) -> None:
    """Put trainable centres into a model, for as long as it trains.

    Args:
        model: It gets ``class_centres``, with ``softmax`` of the given shape and, for center loss,
            ``mean`` of shape (C, D).
        shape: Classes, sub-centres a class and dimension: (C, K, D).
        seed: Where they start.
        center_loss: Whether there are means.
    """
    centres = {"softmax": nn.Parameter(random_centres(shape, seed))}
    if center_loss:
        centres["mean"] = nn.Parameter(torch.zeros(shape[0], shape[2]))
    model.class_centres = nn.ParameterDict(centres)


@dataclass
class RetrievalEvaluator:
    """Measures how held-out sentences find those of their group.

    Attributes:
        groups: Held-out groups, none of whose sentences is trained.
        sts: (sentence, sentence, score) triples, if there are any.
        meter: Measures how the held-out sentences' vectors spread.
    """

    groups: datasets.Dataset
    sts: Sequence[tuple[str, str, float]] = ()
    meter: CollapseMeter = field(default_factory=CollapseMeter, repr=False)

    def __post_init__(self) -> None:
        held_out = labelled_sentences(self.groups).columns
        self._sentences, self._labels = held_out["source"], np.array(held_out["label"])

    @property
    def names(self) -> tuple[str, ...]:
        """The figures' names."""
        return (*TOPS, *METER, *((SPEARMAN,) if self.sts else ()))

    def __call__(self, model: Any) -> dict[str, float]:
        """Return the named figures, of anything with ``encode``."""
        vectors = model.encode(self._sentences)
        figures = topk_accuracy(vectors, self._labels) | self.meter(vectors)
        if self.sts:
            figures[SPEARMAN] = sts_spearman(model, self.sts)
        return figures
