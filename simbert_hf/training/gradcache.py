"""GradCache: a large contrastive batch in the memory of a small one."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from types import MethodType
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from simbert_hf.modeling.simbert import SimBertOutput


def use_gradcache(model: Any, size: int) -> None:
    """Make a model process training rows in micro-batches (Gao et al. 2021, arXiv 2101.06983).

    Each micro-batch keeps only its sentence vectors and the sums of its token losses, which is all
    that the objective needs. The backward pass takes the micro-batches one by one, computes each
    again with the same dropout masks, and propagates the gradients of its vectors. So memory grows
    with the micro-batch, not with the batch, at the cost of a second forward pass (including the
    token losses, whose gradients are formed both times).

    Loss and gradients are those of the full batch, for every objective that is a function of these
    outputs. DDP and FSDP wrap the model outside of this and see one forward pass per step.

    Args:
        model: An ``Embedder``. Its forward pass takes (B, L) tensors and optionally ``lm_targets``
            by keyword, and returns a ``SimBertOutput``; it is changed in place.
        size: Rows per micro-batch.

    Example:
        >>> from simbert_hf import SimBert, SimBertConfig
        >>> sizes = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=1)
        >>> model = SimBert(SimBertConfig(vocab_size=10, intermediate_size=8, **sizes)).eval()
        >>> ids = torch.arange(10).view(5, 2)
        >>> whole = model(input_ids=ids).sentence_embedding
        >>> use_gradcache(model, 2)
        >>> torch.allclose(model(input_ids=ids).sentence_embedding, whole, atol=1e-6)
        True
    """
    forward = model.forward.__func__  # so that a copy of the model runs its own weights
    trim = getattr(model.config, "mask_padding", True)  # a GRU may read its padding

    def outputs(self: Any, part: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        found = forward(self, **part)  # its hidden states are dropped
        return found.sentence_embedding, found.lm_losses or {}

    @functools.wraps(forward)
    def in_micro_batches(self: Any, *args: Any, **inputs: Any) -> SimBertOutput:
        if args or not torch.is_grad_enabled() or len(inputs["input_ids"]) <= size:
            return forward(self, *args, **inputs)
        if inputs.get("lm_positions") is not None:
            raise ValueError("Preferences need whole batches: do not use GradCache.")
        # A checkpoint keeps inputs, random state and autocast, and drops activations; autograd
        # visits the newest nodes first, and so finishes one micro-batch before the next.
        parts = [
            checkpoint(outputs, self, part, use_reentrant=False)
            for part in micro_batches(inputs, size, trim)
        ]
        losses = {
            name: torch.stack([sums[name] for _, sums in parts]).sum()
            for name in inputs.get("lm_targets") or ()
        }
        return SimBertOutput(torch.cat([vectors for vectors, _ in parts]), lm_losses=losses or None)

    model.forward = MethodType(in_micro_batches, model)


def micro_batches(
    inputs: Mapping[str, Any], size: int, trim: bool = True
) -> Iterator[dict[str, Any]]:
    """Cut a batch into parts of ``size`` rows.

    Args:
        inputs: (B, L) tensors, and optionally ``lm_targets`` with flat positions in them.
        size: Rows per part.
        trim: Cut columns on the right that are only padding in the part.

    Example:
        >>> ids, mask = torch.tensor([[5, 6, 7], [8, 9, 0]]), torch.tensor([[1, 1, 1], [1, 1, 0]])
        >>> targets = {"mlm": (torch.tensor([2, 3]), torch.tensor([70, 80]))}
        >>> batch = {"input_ids": ids, "attention_mask": mask, "lm_targets": targets}
        >>> for part in micro_batches(batch, 1):
        ...     print(part["input_ids"].tolist(), part["lm_targets"]["mlm"])
        [[5, 6, 7]] (tensor([2]), tensor([70]))
        [[8, 9]] (tensor([0]), tensor([80]))
    """
    rows, width = inputs["input_ids"].shape
    starts = range(0, rows, size)
    mask = inputs.get("attention_mask") if trim else None
    ends = [width] * rows if mask is None else row_ends(mask)
    targets = {
        name: _split(positions, labels, size * width, len(starts))
        for name, (positions, labels) in (inputs.get("lm_targets") or {}).items()
    }
    for i, start in enumerate(starts):
        real = max(ends[start : start + size]) or width
        part: dict[str, Any] = {
            name: values[start : start + size, :real]
            for name, values in inputs.items()
            if isinstance(values, Tensor)
        }
        if targets:
            part["lm_targets"] = {
                name: (places[i] // width * real + places[i] % width, labels[i])
                for name, (places, labels) in targets.items()
            }
        yield part


def row_ends(mask: Tensor) -> list[int]:
    """Return where each row's last token ends, in one transfer from the device: (B, L) -> B.

    Example:
        >>> row_ends(torch.tensor([[1, 1, 0], [0, 0, 1], [0, 0, 0]]))
        [2, 3, 0]
    """
    columns = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    return ((mask != 0) * columns).amax(dim=1).tolist()


def _split(
    positions: Tensor, labels: Tensor, size: int, parts: int
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Distribute N flat positions and their labels to parts of ``size`` positions each."""
    part = positions // size
    counts = torch.bincount(part, minlength=parts).tolist()
    order = part.argsort(stable=True)
    return (positions % size)[order].split(counts), labels[order].split(counts)
