"""Objectives: (model, batch) -> named loss parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from simbert_hf.distributed import gather_uneven_with_grad, gather_with_grad
from simbert_hf.losses import (
    InBatchLoss,
    angle_similarity,
    at_least_float32,
    cosent_loss,
    cosine_similarity,
    distillation_loss,
    one_way_loss,
    pair_loss,
    preference_loss,
)
from simbert_hf.utils.checks import check_choice, check_scale
from simbert_hf.utils.parsing import flag


@dataclass(frozen=True)
class LossParts:
    """The parts of a loss, each a scalar; None for what an objective or a batch does not have.

    Attributes:
        total: Their weighted sum, to be minimised.
        similarity: In-batch softmax loss of the sentence vectors, in nats.
        similarity_accuracy: Share of rows whose partner is the nearest candidate.
        seq2seq: Mean cross-entropy per target token, in nats.
        mlm: Mean cross-entropy per masked token, in nats.
        distillation: Mean squared difference between the cosines and a teacher's.
        simcse: In-batch softmax loss of unpaired sentences seen twice.
        preference: SimPO's loss of preferred paraphrases, in nats.
        preference_accuracy: Share of them that are likelier than the rejected ones.
        ranking: CoSENT's or AnglE's loss of scored pairs, in nats.
        ranking_accuracy: Share of the couples with different scores that are in the right order.
        classification: Mean cross-entropy over the classes, in nats.
        classification_accuracy: Share of sentences that score their own class highest.
        center: Half the mean squared distance to the class's mean.
        active: Share of triplets that the margin does not separate yet.
        accuracy: Share of sentences whose positive is the nearest candidate (``siamese``: of pairs
            classified correctly).
    """

    total: Tensor
    similarity: Tensor | None = None
    similarity_accuracy: Tensor | None = None
    seq2seq: Tensor | None = None
    mlm: Tensor | None = None
    distillation: Tensor | None = None
    simcse: Tensor | None = None
    preference: Tensor | None = None
    preference_accuracy: Tensor | None = None
    ranking: Tensor | None = None
    ranking_accuracy: Tensor | None = None
    classification: Tensor | None = None
    classification_accuracy: Tensor | None = None
    center: Tensor | None = None
    active: Tensor | None = None
    accuracy: Tensor | None = None


@dataclass(frozen=True)
class LossArguments:
    """Weights and scales of SimBERT's loss, for its flags and for the objective."""

    scale: float = flag(30.0, "Inverse temperature of the similarity.")
    seq2seq_weight: float = flag(1.0, "Weight of the seq2seq loss.")
    similarity_weight: float = flag(1.0, "Weight of the similarity loss.")
    mlm_weight: float = flag(1.0, "Weight of the MLM loss on masked sources.")
    distillation_weight: float = flag(100.0, "Weight of the distillation loss, with a teacher.")
    unrelated_weight: float = flag(
        1.0,
        "Weight, in the distillation loss, of sentences that the teacher finds unrelated, against "
        "1 for equal ones.",
    )
    unrelated_cosine: float = flag(
        0.0,
        "Target cosine of unrelated sentences, where the teacher's similarity is 0; 0.4 leaves "
        "room to copy several teachers closely.",
    )
    mask_false_negatives: bool = flag(True, "Do not use rows of the same group as negatives.")
    simcse_scale: float = flag(20.0, "SimCSE's inverse temperature.")
    simcse_weight: float = flag(
        1.0,
        "Weight of the SimCSE loss, with --sentences_file; with 0, these sentences are only for "
        "the teacher: each pair brings two, instead of one twice.",
    )
    preference_weight: float = flag(1.0, "Weight of SimPO's loss, with --preferences_file.")
    preference_scale: float = flag(2.0, "Weight of a nat per token of difference there (beta).")
    preference_margin: float = flag(0.5, "Nats per token by which the good one should be ahead.")

    def __post_init__(self) -> None:
        check_scale(self.scale)
        check_scale(self.simcse_scale, "simcse_scale")
        if not 0 < self.unrelated_weight <= 1:
            raise ValueError(f"--unrelated_weight {self.unrelated_weight}: it must be in (0, 1].")
        if not 0 <= self.unrelated_cosine < 1:
            raise ValueError(f"--unrelated_cosine {self.unrelated_cosine}: it must be in [0, 1).")


@dataclass(frozen=True)
class SimBertObjective(LossArguments):
    """Seq2seq loss + similarity loss from one forward pass (Su 2020, SimBERT).

    Weights and scales are those of :class:`LossArguments`. The MLM, SimCSE and SimPO losses apply
    where the collator masks sources, adds unpaired sentences or adds preferences, respectively.
    With a ``seq2seq_weight`` of 0 the LM head is unused: under DDP, call the model's
    ``freeze_idle()``.

    Attributes:
        gather: Contrast against the rows of every process, not only of this one.
        teacher: Maps this process's sentences to the similarities (N, N) of the sentences of all
            processes, one process after the other; the model's cosines are drawn to them
            (RoFormer-Sim's second stage). None for no teacher.

    Raises:
        ValueError: If a scale is not above 0, or a number for unrelated sentences is out of range.

    Example:
        >>> from simbert_hf import DEFAULT_MODEL, SimBert
        >>> from simbert_hf.collators import PairCollator
        >>> model = SimBert.from_pretrained(DEFAULT_MODEL)
        >>> pairs = [
        ...     {"source": "where is my card", "target": "i lost my card", "group": 0, "seed": 0},
        ...     {"source": "i like tea", "target": "tea is nice", "group": 1, "seed": 0},
        ... ]
        >>> loss = SimBertObjective(seq2seq_weight=0.5)(model, PairCollator(model.rows)(pairs))
        >>> bool(loss.total.isclose(loss.similarity + 0.5 * loss.seq2seq))
        True
        >>> loss.similarity_accuracy, loss.mlm
        (tensor(1.), None)
    """

    gather: bool = True
    teacher: Callable[[Sequence[str]], Tensor] | None = None

    def __call__(self, model: nn.Module, batch: Mapping[str, Any]) -> LossParts:
        """Run the model once and compute every part.

        Args:
            model: A ``SimBert``, wrapped (DDP, ...) or not.
            batch: What ``PairCollator`` returns.

        Raises:
            ValueError: If another collator made the batch, or it lacks the teacher's texts.
        """
        targets = lm_targets(batch)
        if "target" not in targets:
            raise ValueError("The batch has no targets to generate: make it with a PairCollator.")
        if self.teacher is not None and "texts" not in batch:
            raise ValueError("The teacher needs the sentences: give the PairCollator texts=True.")
        if not self.seq2seq_weight:
            del targets["target"]  # scoring the vocabulary is much of a step's work
        compared = batch.get("compared_positions")
        output = model(**model_inputs(batch), lm_targets=targets or None, lm_positions=compared)
        losses = mean_token_losses(output.lm_losses or {}, batch)
        groups = batch["groups"]
        vectors = output.sentence_embedding
        idle = len(batch.get("one_way_rows", ())) + len(batch.get("compared_lengths", ()))
        vectors = vectors[: len(vectors) - idle]
        paired, alone = vectors[: len(groups)], vectors[len(groups) :]
        masked = groups if self.mask_false_negatives else None
        found = gathered_pair_loss(paired, masked, scale=self.scale, gather=self.gather)
        named = {"target": "seq2seq", "mlm": "mlm"}
        parts = {"similarity": found.loss} | {named[n]: loss for n, loss in losses.items()}
        accuracies = {"similarity_accuracy": found.accuracy}
        if self.teacher is not None:
            wanted = self.teacher(batch["texts"]).to(vectors.device)
            (taught,) = gather_uneven_with_grad(vectors)
            parts["distillation"] = distillation_loss(
                taught, wanted, self.unrelated_weight, self.unrelated_cosine
            )
        if "sentence_groups" in batch:
            drawn = batch["sentence_groups"]
            parts["simcse"] = gathered_pair_loss(
                alone, drawn, scale=self.simcse_scale, gather=self.gather
            ).loss
        if compared is not None:
            preference = self._preference(output.logits, batch)
            parts["preference"] = preference.loss
            accuracies["preference_accuracy"] = preference.accuracy
        return weigh(self, parts, accuracies)

    def _preference(self, logits: Tensor, batch: Mapping[str, Tensor]) -> InBatchLoss:
        tokens, lengths = batch["compared_tokens"], batch["compared_lengths"]
        found = -cross_entropy(at_least_float32(logits), tokens, reduction="none")
        sums = found.new_zeros(len(lengths)).index_add(0, batch["compared_rows"], found)
        chosen, rejected = (sums / lengths).view(-1, 2).unbind(dim=1)
        scale, margin = self.preference_scale, self.preference_margin
        return preference_loss(chosen, rejected, scale=scale, margin=margin)


def weigh(
    objective: object, parts: Mapping[str, Tensor], accuracies: Mapping[str, Tensor]
) -> LossParts:
    """Sum the parts of a loss, each times the objective's weight for it."""
    weighted = (getattr(objective, f"{name}_weight") * part for name, part in parts.items())
    return LossParts(reduce(add, weighted), **parts, **accuracies)


def contrasts(objective: object) -> bool:
    """Return whether a batch of a single pair cannot train every part of the objective."""
    ranks = isinstance(objective, ScoredPairObjective)
    return ranks or getattr(objective, "similarity_weight", 0) > 0


def lm_targets(batch: Mapping[str, Any]) -> dict[str, tuple[Tensor, Tensor]]:
    """Collect a batch's positions and labels for the LM head, by the name of their loss."""
    names = (key.removesuffix("_labels") for key in batch if key.endswith("_labels"))
    return {name: (batch[f"{name}_positions"], batch[f"{name}_labels"]) for name in names}


def mean_token_losses(losses: Mapping[str, Tensor], batch: Mapping[str, Any]) -> dict[str, Tensor]:
    """Divide sums of losses over tokens by the number of tokens.

    Micro-batches and processes hold different numbers of tokens, so the mean of their means is not
    the mean over all tokens. The trainer therefore adds the number per average micro-batch of the
    step, over all processes, to each batch as ``..._count``; without it, the batch's own is used.

    Example:
        >>> import torch
        >>> batch = {"mlm_labels": torch.tensor([5, 6, 7]), "mlm_count": torch.tensor(2.0)}
        >>> mean_token_losses({"mlm": torch.tensor(3.0)}, batch)
        {'mlm': tensor(1.5000)}
    """
    return {
        name: total / batch.get(f"{name}_count", max(len(batch[f"{name}_labels"]), 1))
        for name, total in losses.items()
    }


def gathered_pair_loss(
    vectors: Tensor, groups: Tensor | None, *, scale: float, gather: bool = True
) -> InBatchLoss:
    """Compute the :func:`pair_loss` of this process's rows against those of every process.

    Args:
        vectors: Sentence vectors, partners in adjacent rows. Shape: (B, D).
        groups: Group of each row; None keeps rows of one group as negatives. Shape: (B,).
        scale: Inverse temperature.
        gather: Contrast against every process's rows, not only this one's.

    Returns:
        The loss and its accuracy over the B rows.
    """
    if not gather:
        return pair_loss(vectors, scale=scale, groups=groups)
    keys, offset = gather_with_grad(vectors)
    key_groups = None if groups is None else gather_with_grad(groups)[0]
    return pair_loss(
        vectors, scale=scale, groups=groups, keys=keys, key_groups=key_groups, offset=offset
    )


@dataclass(frozen=True)
class SimCseObjective:
    """SimCSE: pull a sentence's other view nearer than all other sentences.

    (Gao et al. 2021, https://arxiv.org/abs/2104.08821.) One forward pass serves every view, the
    hard negatives and the masked copies.

    Attributes:
        scale: Inverse temperature.
        symmetric: Every row picks its partner among all other rows, 2N - 1 columns; otherwise
            sources pick theirs among the targets, N columns (2N with hard negatives), as in the
            paper. Hard negatives need the latter.
        hard_negative_weight: Added to the scaled cosine of a source and its own hard negative.
        similarity_weight: Weight of the similarity loss, where the collator makes views.
        mlm_weight: Weight of the MLM loss, where the collator adds masked copies.
        mask_false_negatives: Leave other rows of a row's group out of the softmax; in the
            one-directional form, those of its partner's group as well.

    Raises:
        ValueError: If the scale is not above 0.

    Example:
        >>> from simbert_hf import DEFAULT_MODEL, SimBert
        >>> from simbert_hf.collators import SimCseCollator
        >>> from simbert_hf.data import FixedPairs
        >>> model = SimBert.from_pretrained(DEFAULT_MODEL).train()  # two views by its dropout
        >>> sentences = ["where is my card", "i like tea"]
        >>> pairs = FixedPairs({"source": sentences, "target": sentences})
        >>> loss = SimCseObjective()(model, SimCseCollator(model.rows)([pairs[0], pairs[1]]))
        >>> loss.similarity_accuracy, loss.mlm
        (tensor(1.), None)
    """

    scale: float = 20.0
    symmetric: bool = True
    hard_negative_weight: float = 0.0
    similarity_weight: float = 1.0
    mlm_weight: float = 1.0
    mask_false_negatives: bool = True

    def __post_init__(self) -> None:
        check_scale(self.scale)

    def __call__(self, model: nn.Module, batch: Mapping[str, Tensor]) -> LossParts:
        """Run the model once and compute every part.

        Args:
            model: A ``SimBert`` or another encoder, wrapped (DDP, ...) or not.
            batch: What ``SimCseCollator`` returns.

        Raises:
            ValueError: If there are hard negatives and the loss is symmetric, or pairs are scored.
        """
        targets = lm_targets(batch)
        output = model(**model_inputs(batch), **({"lm_targets": targets} if targets else {}))
        parts, accuracies = {}, {}
        if "groups" in batch:
            found = self._similarity(output.sentence_embedding, batch)
            parts["similarity"], accuracies["similarity_accuracy"] = found.loss, found.accuracy
        if "mlm_labels" in batch:
            parts |= mean_token_losses(output.lm_losses, batch)
        return weigh(self, parts, accuracies)

    def _similarity(self, vectors: Tensor, batch: Mapping[str, Tensor]) -> InBatchLoss:
        paired = vectors[: len(batch["groups"])]
        refuse_scores(batch)
        if self.symmetric:
            if "negative_rows" in batch:
                raise ValueError("Hard negatives need the one-directional loss (symmetric=False).")
            masked = batch["groups"] if self.mask_false_negatives else None
            return gathered_pair_loss(paired, masked, scale=self.scale)
        positives, offset = gather_with_grad(paired[1::2])
        negatives = own = every = None
        if "negative_rows" in batch:
            negatives, _ = gather_with_grad(vectors[batch["negative_rows"]])
        if self.mask_false_negatives:
            own, *others = key_groups(batch)
            every = torch.cat([gather_with_grad(each)[0] for each in (own, *others)])
        return one_way_loss(
            paired[0::2],
            positives,
            negatives,
            scale=self.scale,
            hard_negative_weight=self.hard_negative_weight,
            offset=offset,
            groups=own,
            key_groups=every,
        )


def refuse_scores(batch: Mapping[str, Tensor]) -> None:
    """Raise a ValueError if a batch has scored pairs, for a loss that takes each for alike."""
    if "scores" in batch:
        raise ValueError("Scored pairs may be dissimilar: use a ScoredPairObjective.")


def key_groups(batch: Mapping[str, Tensor]) -> list[Tensor]:
    """Return the groups of both sentences of each pair, and twice that of each hard negative.

    Returns:
        Those of the pairs, (P, 2), and of the negatives, if any, (P, 2); -1 is unknown.
    """
    sources, targets = batch["groups"].view(-1, 2).unbind(1)
    found = [torch.stack([sources, batch.get("target_groups", targets)], dim=1)]
    if "negative_rows" in batch:
        negatives = batch.get("negative_groups", torch.full_like(sources, -1))
        found.append(negatives[:, None].repeat(1, 2))
    return found


def model_inputs(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Select a batch's inputs for an encoder; not all encoders have segments."""
    names = ("input_ids", "attention_mask", "token_type_ids")
    return {name: batch[name] for name in names if name in batch}


@dataclass(frozen=True)
class ScoredPairObjective:
    """CoSENT (Su 2022) or AnglE (Li & Li 2023): rank pairs by similarity as their scores do.

    Attributes:
        loss: ``cosent`` ranks by the cosine, ``angle`` by AnglE's similarity.
        scale: Inverse temperature.

    Raises:
        ValueError: If the loss is unknown, or the scale is not above 0.

    Example:
        >>> from simbert_hf import DEFAULT_MODEL, SimBert
        >>> from simbert_hf.collators import SimCseCollator
        >>> from simbert_hf.data import FixedPairs
        >>> model = SimBert.from_pretrained(DEFAULT_MODEL)
        >>> columns = {"source": ["a cat sat"] * 2, "target": ["the cat sat", "stocks fell"]}
        >>> pairs = FixedPairs(columns | {"score": [5.0, 1.0]})
        >>> batch = SimCseCollator(model.rows)([pairs[0], pairs[1]])
        >>> ScoredPairObjective()(model, batch).ranking_accuracy  # 5 is more alike than 1
        tensor(1.)
    """

    loss: Literal["cosent", "angle"] = "cosent"
    scale: float = 20.0

    def __post_init__(self) -> None:
        check_choice("loss", self.loss, ("cosent", "angle"))
        check_scale(self.scale)

    def __call__(self, model: nn.Module, batch: Mapping[str, Tensor]) -> LossParts:
        """Run the model once and rank the pairs.

        Args:
            model: A ``SimBert`` or another encoder, wrapped (DDP, ...) or not.
            batch: What ``SimCseCollator`` returns for scored pairs.

        Raises:
            ValueError: If the pairs have no scores.
        """
        if "scores" not in batch:
            raise ValueError("The pairs have no scores to rank them by: add a column `score`.")
        vectors = model(**model_inputs(batch)).sentence_embedding[: len(batch["groups"])]
        similarity = angle_similarity if self.loss == "angle" else cosine_similarity
        own = similarity(vectors[0::2], vectors[1::2]), batch["scores"]
        # Every process ranks all pairs, so DDP's mean is the gradient of this one loss.
        similarities, scores = (gather_with_grad(each)[0] for each in own)
        found = cosent_loss(similarities, scores, scale=self.scale)
        return LossParts(found.loss, ranking=found.loss, ranking_accuracy=found.accuracy)
