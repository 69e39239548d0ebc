"""Objectives: (model, batch) -> named loss parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from simbert_hf.distributed import gather_with_grad
from simbert_hf.losses import InBatchLoss, distillation_loss, pair_loss, token_loss


@dataclass(frozen=True)
class SimBertLoss:
    """The parts of SimBERT's loss, each a scalar.

    Attributes:
        total: Their weighted sum, to be minimised.
        seq2seq: Mean cross-entropy of a target token, in nats.
        similarity: In-batch softmax loss of the sentence vectors, in nats.
        similarity_accuracy: Share of rows whose partner is the nearest other row.
        mlm: Mean cross-entropy of a masked source token, in nats; None without MLM.
        distillation: Mean squared difference of the cosines to a teacher's; None without one.
    """

    total: Tensor
    seq2seq: Tensor
    similarity: Tensor
    similarity_accuracy: Tensor
    mlm: Tensor | None = None
    distillation: Tensor | None = None


@dataclass(frozen=True)
class SimBertObjective:
    """Seq2seq loss + similarity loss from one forward pass (Su 2020, SimBERT).

    Attributes:
        scale: Inverse temperature of the similarity loss.
        seq2seq_weight: Weight of the seq2seq loss.
        similarity_weight: Weight of the similarity loss.
        mlm_weight: Weight of the MLM loss on the source, where the collator masks it.
        mask_false_negatives: Leave other rows of a row's group out of its softmax.
        gather: Contrast against the rows of every process, not of this one alone.
        teacher: Embeds the batch's source sentences; the cosines of its vectors are kept (RoFormer-
            Sim's second stage). None for no teacher.
        distillation_weight: Weight of the distillation loss.
    """

    scale: float = 30.0
    seq2seq_weight: float = 1.0
    similarity_weight: float = 1.0
    mlm_weight: float = 1.0
    mask_false_negatives: bool = True
    gather: bool = True
    teacher: Callable[[Sequence[str]], Tensor] | None = None
    distillation_weight: float = 100.0

    def __call__(self, model: nn.Module, batch: Mapping[str, Any]) -> SimBertLoss:
        """Run the model once and compute every part.

        Args:
            model: A ``SimBert``, wrapped (DDP, ...) or not.
            batch: What ``PairCollator`` gives.

        Returns:
            The named parts.
        """
        n_target = len(batch["target_positions"])
        positions = [batch["target_positions"], batch.get("mlm_positions")]
        output = model(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            token_type_ids=batch["token_type_ids"],
            lm_positions=torch.cat([p for p in positions if p is not None]),
        )
        seq2seq = token_loss(output.logits[:n_target], batch["target_labels"])
        similarity = self._similarity(output.sentence_embedding, batch["groups"])
        total = self.seq2seq_weight * seq2seq + self.similarity_weight * similarity.loss
        mlm = distillation = None
        if "mlm_labels" in batch:
            mlm = token_loss(output.logits[n_target:], batch["mlm_labels"])
            total = total + self.mlm_weight * mlm
        if self.teacher is not None:
            wanted = self.teacher(batch["texts"]).to(total.device)
            distillation = distillation_loss(output.sentence_embedding, wanted)
            total = total + self.distillation_weight * distillation
        return SimBertLoss(total, seq2seq, similarity.loss, similarity.accuracy, mlm, distillation)

    def _similarity(self, vectors: Tensor, groups: Tensor) -> InBatchLoss:
        keys, key_groups, offset = vectors, groups, 0
        if self.gather:
            keys, offset = gather_with_grad(vectors)
            key_groups, _ = gather_with_grad(groups)
        if not self.mask_false_negatives:
            return pair_loss(vectors, scale=self.scale, keys=keys, offset=offset)
        return pair_loss(
            vectors,
            scale=self.scale,
            groups=groups,
            keys=keys,
            key_groups=key_groups,
            offset=offset,
        )
