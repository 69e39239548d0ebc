"""Packing: running embeddings and layers on real tokens only, during training."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.modeling_outputs import BaseModelOutput

from simbert_hf.masking import prefix_mask
from simbert_hf.modeling.simbert import CACHE, SimBert

NAME = "simbert_packed"  # of this attention in transformers' registry


def use_packing(model: Any) -> None:
    """Exclude the padding from a model's layers during training.

    The real tokens of the B rows become one row of T, which only attention pads again; hidden
    states return to their places among (B, L), with zeros elsewhere, so that pooling, losses,
    GradCache, DDP and FSDP see no difference. Without gradients, with a cache or with a prepared
    mask, the model runs as before.

    Args:
        model: A ``SimBert`` on BERT or ELECTRA; it is changed in place.

    Raises:
        ValueError: If the model has its own attention.

    Example:
        >>> from simbert_hf import SimBertConfig
        >>> sizes = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=1)
        >>> model = SimBert(SimBertConfig(vocab_size=10, intermediate_size=8, **sizes)).eval()
        >>> ids, real = torch.tensor([[5, 6, 7], [8, 0, 0]]), torch.tensor([[1, 1, 1], [1, 0, 0]])
        >>> whole = model(input_ids=ids, attention_mask=real).sentence_embedding
        >>> use_packing(model)
        >>> packed = model(input_ids=ids, attention_mask=real).sentence_embedding
        >>> torch.allclose(packed, whole, atol=1e-6)
        True
    """
    fits = isinstance(model, SimBert) and model._supports_sdpa
    if not fits:
        raise ValueError(
            "--packing is for BERT and ELECTRA checkpoints in SimBert; "
            f"{type(model).__name__} has its own attention: drop the flag."
        )
    run_layers = model.run_layers.__func__  # so that a copy of the model runs its own weights

    @functools.wraps(run_layers)
    def run_packed(
        self: SimBert, input_ids: Tensor, real: Tensor, segments: Tensor, **kwargs: Any
    ) -> Any:
        caching = kwargs.get(CACHE) is not None
        if real.dim() != 2 or caching or not torch.is_grad_enabled():
            return run_layers(self, input_ids, real, segments, **kwargs)
        positions = kwargs.pop("position_ids", None)
        if positions is None:
            positions = torch.arange(real.shape[1], device=real.device).expand_as(real)
        places = real.flatten().nonzero().squeeze(1)  # (T,)
        types = self.token_types(segments)
        inputs = {"input_ids": input_ids, "token_type_ids": types, "position_ids": positions}
        for name, values in inputs.items():
            kwargs[name] = values.flatten()[places][None]
        mask = prefix_mask(segments, real, torch.get_default_dtype())
        outputs = self.base_model(packed=Packed(mask, places), **kwargs)
        hidden = [
            put(states[0], places, real.numel()).unflatten(0, real.shape)
            for states in outputs.hidden_states or (outputs.last_hidden_state,)
        ]
        return BaseModelOutput(hidden[-1], tuple(hidden))

    model.set_attn_implementation(NAME)
    model.run_layers = MethodType(run_packed, model)


@dataclass(frozen=True)
class Packed:
    """What attention needs to know of packed rows.

    Attributes:
        mask: The prefix mask. Shape: (B, 1, L, L).
        places: Positions of the real tokens among B * L. Shape: (T,).
    """

    mask: Tensor
    places: Tensor

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, scale: float | None, dropout: float
    ) -> Tensor:
        """Attend under the mask, and return the outputs of the real tokens."""
        rows, _, length, _ = self.mask.shape

        def part(states: Tensor) -> Tensor:  # (1, H, T, d) -> (B, H, L, d)
            placed = put(states[0].transpose(0, 1), self.places, rows * length)
            return placed.view(rows, length, *placed.shape[1:]).transpose(1, 2)

        mask = self.mask.to(query.dtype)
        found = scaled_dot_product_attention(
            part(query), part(key), part(value), mask, dropout_p=dropout, scale=scale
        )
        return _Take.apply(found.transpose(1, 2).flatten(0, 1), self.places)[None]


def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    packed: Packed | None = None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend with the interface of transformers' layers; use SDPA if rows are not packed."""
    if packed is not None:
        return packed.attend(query, key, value, scaling, dropout), None
    return sdpa_attention_forward(
        module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
    )


AttentionInterface.register(NAME, packed_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)


class _Take(torch.autograd.Function):
    """Takes rows at distinct places, so that the gradient is copied, where torch would add."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.size = len(values)
        return values.index_select(0, places)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (places,) = ctx.saved_tensors
        return put(gradient, places, ctx.size), None


def put(values: Tensor, places: Tensor, size: int) -> Tensor:
    """Put rows into their places among zeros: (T, ...) -> (size, ...)."""
    return values.new_zeros(size, *values.shape[1:]).index_copy(0, places, values)
