"""Evaluators during training: retrieval, rank correlation, loss on held-out groups."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import datasets
import numpy as np
import torch
from scipy.stats import spearmanr

from simbert_hf.data import labelled_sentences
from simbert_hf.evaluation.geometry import METER, CollapseMeter
from simbert_hf.evaluation.retrieval import KS, rank_group_mates
from simbert_hf.modeling.embedding import evaluating
from simbert_hf.utils.arrays import Reals
from simbert_hf.utils.checks import check_rows, is_finite

if TYPE_CHECKING:
    from simbert_hf.collators import PairCollator
    from simbert_hf.data import PairDataset
    from simbert_hf.modeling.simbert import SimBert
    from simbert_hf.objectives import SimBertObjective


SPEARMAN = "sts_spearman"
TOPS = tuple(f"top{k}" for k in KS)


class Evaluator(Protocol):
    """Measures a model while it trains."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the figures, known before anything is measured."""

    def __call__(self, model: Any) -> dict[str, float]:
        """Return the named figures."""


def check_sts(pairs: Sequence[tuple[str, str, float]]) -> None:
    """Raise a TypeError or ValueError unless scored pairs can be ranked."""
    check_rows("sts", pairs, "sentence", "sentence", "score")
    if not len(pairs):
        raise ValueError("sts is empty: provide scored pairs.")
    scores = {score for *_, score in pairs}
    if len(scores) < 2 or not all(map(is_finite, scores)):
        raise ValueError("The scores of sts are all equal, or not numbers: they rank nothing.")


def _encode_pairs(model: SimBert, pairs: Sequence[tuple[str, str, float]]) -> Reals:
    """Embed all first sentences, and then all second ones: (2P, D)."""
    first, second, _ = zip(*pairs, strict=True)
    return model.encode([*first, *second], normalize_embeddings=True)


def _spearman(vectors: Reals, pairs: Sequence[tuple[str, str, float]]) -> float:
    first, second = np.split(vectors, 2)
    scores = [score for *_, score in pairs]
    cosines = (first * second).sum(axis=1)  # all equal if the encoder has collapsed
    return float(spearmanr(cosines, scores).statistic) if np.ptp(cosines) else 0.0


@dataclass
class StsEvaluator:
    """Measures how well a model's cosines rank scored pairs: Spearman's correlation.

    Attributes:
        sts: (sentence, sentence, score) triples.

    Raises:
        TypeError: If they are not such triples.
        ValueError: If there are none, or their scores are all equal or not numbers.

    Example:
        >>> from simbert_hf import DEFAULT_MODEL, SimBert
        >>> sts = [("a cat sat", "the cat sat", 5), ("a cat sat", "stocks fell", 0)]
        >>> round(StsEvaluator(sts)(SimBert.from_pretrained(DEFAULT_MODEL))["sts_spearman"], 2)
        1.0
    """

    sts: Sequence[tuple[str, str, float]]
    _meter: CollapseMeter = field(default_factory=CollapseMeter, init=False, repr=False)

    def __post_init__(self) -> None:
        check_sts(self.sts)

    @property
    def names(self) -> tuple[str, ...]:
        """The figures' names."""
        return (SPEARMAN, *METER)

    def __call__(self, model: SimBert) -> dict[str, float]:
        """Return the named figures."""
        vectors = _encode_pairs(model, self.sts)
        return {SPEARMAN: _spearman(vectors, self.sts)} | self._meter(vectors)


@dataclass
class RetrievalEvaluator:
    """Measures how well held-out sentences find those of their group.

    Attributes:
        groups: Held-out groups, none of whose sentences is trained on.
        sts: (sentence, sentence, score) triples, if there are any.

    Example:
        >>> from simbert_hf import DEFAULT_MODEL, SimBert
        >>> texts = [["where is my card", "i lost my card"], ["i like tea", "tea is what i like"]]
        >>> groups = datasets.Dataset.from_dict({"texts": texts, "group": [0, 1]})
        >>> found = RetrievalEvaluator(groups)(SimBert.from_pretrained(DEFAULT_MODEL))
        >>> [*found], found["top1"]
        (['top1', 'top5', 'top10', 'mean_cosine', 'effective_rank'], 1.0)
    """

    groups: datasets.Dataset
    sts: Sequence[tuple[str, str, float]] = ()
    _meter: CollapseMeter = field(default_factory=CollapseMeter, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.sts:
            check_sts(self.sts)
        held_out = labelled_sentences(self.groups).columns
        self._sentences, self._labels = held_out["source"], np.array(held_out["label"])

    @property
    def names(self) -> tuple[str, ...]:
        """The figures' names."""
        return (*TOPS, *METER, *((SPEARMAN,) if self.sts else ()))

    def __call__(self, model: Any) -> dict[str, float]:
        """Return the named figures for anything with ``encode``."""
        vectors = model.encode(self._sentences, normalize_embeddings=True)
        found = rank_group_mates(vectors, self._labels).figures()
        figures = {name: float(found[name].mean()) for name in TOPS} | self._meter(vectors)
        if self.sts:
            figures[SPEARMAN] = _spearman(_encode_pairs(model, self.sts), self.sts)
        return figures


@dataclass
class SimBertEvaluator:
    """Measures a SimBert on held-out groups, an STS set and a few sentences.

    Attributes:
        pairs: Held-out pairs; each evaluation sees the same draws.
        collator: Makes batches of the pairs.
        objective: The training objective.
        sts: (sentence, sentence, score) triples, if there are any.
        sentences: Sentences to paraphrase for inspection.
        batch_size: Pairs per forward pass.
    """

    pairs: PairDataset
    collator: PairCollator
    objective: SimBertObjective
    sts: Sequence[tuple[str, str, float]] = ()
    sentences: Sequence[str] = ()
    batch_size: int = 64
    _retrieval: RetrievalEvaluator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.collator = dataclasses.replace(
            self.collator, mlm=False, denoising=False, texts=False, sentences=(), one_way=(),
            preferences=(),
        )  # fmt: skip
        self.objective = dataclasses.replace(self.objective, gather=False, teacher=None)
        self._retrieval = RetrievalEvaluator(self.pairs.groups, self.sts)

    @property
    def names(self) -> tuple[str, ...]:
        """The figures' names."""
        seq2seq, similarity = self.objective.seq2seq_weight, self.objective.similarity_weight
        summed = ("loss",) if seq2seq or similarity else ()  # a teacher's, MLM's are not measured
        written = ("seq2seq", "perplexity") if seq2seq else ()
        losses = (*summed, "similarity", "similarity_accuracy", *written)
        return (*losses, *self._retrieval.names)

    def __call__(self, model: SimBert) -> dict[str, float]:
        """Return the named figures; ``loss`` is the weighted sum of the objective's parts."""
        with evaluating(model), torch.no_grad():
            figures = self._losses(model)
        return figures | self._retrieval(model)

    def paraphrases(self, model: SimBert, k: int = 3) -> dict[str, list[Any]]:
        """Return the k best of 20 paraphrases of each fixed sentence, with scores."""
        longest = min(32, model.positions // 2)
        some = list(self.sentences)
        found = model.gen_synonyms(some, 20, k, max_new_tokens=longest, return_scores=True)
        return dict(zip(self.sentences, found, strict=True))

    def _losses(self, model: SimBert) -> dict[str, float]:
        sums: dict[str, float] = {}
        counts: dict[str, int] = {}
        count = -(-len(self.pairs) // self.batch_size)
        for rows in np.array_split(np.arange(len(self.pairs)), count):  # of like sizes
            batch = self.collator(self.pairs.__getitems__(rows.tolist()))
            parts = self.objective(model, {k: v.to(model.device) for k, v in batch.items()})
            for name, value in dataclasses.asdict(parts).items():
                if value is not None and name != "total":
                    size = len(batch["target_labels" if name == "seq2seq" else "input_ids"])
                    sums[name] = sums.get(name, 0.0) + float(value) * size
                    counts[name] = counts.get(name, 0) + size
        figures = {name: value / counts[name] for name, value in sums.items()}
        figures["loss"] = self.objective.similarity_weight * figures["similarity"]
        if "seq2seq" in figures:
            figures["loss"] += self.objective.seq2seq_weight * figures["seq2seq"]
            figures["perplexity"] = math.exp(min(figures["seq2seq"], 50.0))
        return {name: figures[name] for name in self.names if name in figures}
