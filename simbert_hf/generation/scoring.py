"""Score pairs with a model: the first sentence's vector, and how likely the second is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from simbert_hf.generation.writing import check_can_write
from simbert_hf.losses import at_least_float32, chunk_rows
from simbert_hf.modeling.cpu_layers import quick_layers
from simbert_hf.modeling.embedding import evaluating
from simbert_hf.modeling.simbert import SimBert
from simbert_hf.pooling import normalize
from simbert_hf.rows import target_labels, warn_of_cuts
from simbert_hf.utils.checks import check_rows

BATCH_SIZE = 64  # pairs in a forward pass


class PairScores(NamedTuple):
    """What a model finds in pairs; tensors on the CPU.

    Attributes:
        vectors: Vectors of the sources, of length 1, as from ``SimBert.encode``. Shape: (N, D).
        log_probs: Log-probabilities of the targets, [SEP] included, given their sources: sums
            over the tokens, in nats. Shape: (N,).
        tokens: Number of these tokens. Shape: (N,).
    """

    vectors: Tensor
    log_probs: Tensor
    tokens: Tensor

    @property
    def means(self) -> Tensor:
        """Mean log-probability per target token. Shape: (N,)."""
        return self.log_probs / self.tokens


@torch.no_grad()
def score_pairs(model: SimBert, pairs: Sequence[tuple[str, str]]) -> PairScores:
    """Embed each pair's source and score its target, given the source, in one forward pass.

    The source sees nothing of its target, so its vector is that of the source alone. Targets are
    cut to half of the model's positions, sources to what is left and to the model's
    ``max_length``.

    Args:
        model: A model with an LM head; its dropout is switched off meanwhile.
        pairs: Sources and targets. Shape: (N,).

    Raises:
        TypeError: If the pairs are not tuples.
        ValueError: If the model has no LM head.

    Example:
        >>> from simbert_hf import DEFAULT_MODEL
        >>> model = SimBert.from_pretrained(DEFAULT_MODEL)
        >>> reading = score_pairs(model, [("thank you", "thanks"), ("thank you", "blue")])
        >>> bool(reading.log_probs[0] > reading.log_probs[1]), reading.tokens.tolist()
        (True, [2, 2])
    """
    check_can_write(model)
    check_rows("pairs", pairs, "source", "target")
    sources, targets = [a for a, _ in pairs], [b for _, b in pairs]
    different = list(dict.fromkeys(targets))
    rows_of = dict(zip(different, model.rows.targets(different, model.positions // 2), strict=True))
    written = [rows_of[target] for target in targets]
    rooms = (model.positions - len(row) for row in written)
    whole = model.rows.sources(sources, model.max_length)
    read = [cut(row, room) for row, room in zip(whole, rooms, strict=True)]
    tokens = torch.tensor([len(row) for row in written], device="cpu")
    vectors = torch.zeros(len(read), model.dimension, dtype=torch.float32, device="cpu")
    log_probs = torch.zeros(len(read), dtype=torch.float64, device="cpu")
    order = sorted(range(len(read)), key=lambda i: len(read[i]) + len(written[i]))
    with evaluating(model), quick_layers(model):
        for start in range(0, len(order), BATCH_SIZE):
            rows = order[start : start + BATCH_SIZE]
            batch = model.rows.pad([read[i] for i in rows], [written[i] for i in rows])
            batch = {name: tensor.to(model.device) for name, tensor in batch.items()}
            output = model(**batch)
            vectors[rows] = normalize(output.sentence_embedding.float()).cpu()
            owners = torch.tensor(rows, device="cpu").repeat_interleave(tokens[rows])
            nats = target_losses(model, output.last_hidden_state, batch)
            log_probs.index_add_(0, owners, -nats.cpu().double())
    return PairScores(vectors, log_probs, tokens)


def cut(row: list[int], room: int) -> list[int]:
    """Cut a source row to the available room; its separator is kept."""
    if len(row) <= room:
        return row
    warn_of_cuts(room)
    return [*row[: room - 1], row[-1]]


def target_losses(model: SimBert, hidden: Tensor, batch: dict[str, Tensor]) -> Tensor:
    """Return each target token's cross-entropy in nats, (N,); few logits exist at a time."""
    positions, labels = target_labels(batch).values()
    size = chunk_rows(hidden.device, model.config.vocab_size)
    states = hidden.flatten(0, 1)
    losses = [
        cross_entropy(at_least_float32(model.lm_logits(states[some])), right, reduction="none")
        for some, right in zip(positions.split(size), labels.split(size), strict=True)
    ]
    return torch.cat(losses)
