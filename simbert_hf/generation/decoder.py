"""A SimBert as the search sees it: tokens in, next-token logits out, everything computed once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from simbert_hf.modeling.simbert import SimBert


class BranchingLayer(DynamicLayer):
    """Keys and values of a layer, copied once per step, where transformers copies them twice.

    Chosen rows are copied only when those of the next token are appended.
    """

    parents: Tensor | None = None

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Continue with these rows at the next update. Shape: (R,)."""
        self.parents = beam_idx if self.parents is None else self.parents[beam_idx]

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append new tokens' keys and values, (R, heads, N, D) each, to the cached ones."""
        parents, self.parents = self.parents, None
        if parents is None or self.keys is None or self.values is None:
            return super().update(key_states, value_states, *args, **kwargs)
        self.keys = append(self.keys, parents, key_states)
        self.values = append(self.values, parents, value_states)
        return self.keys, self.values


def append(cached: Tensor, rows: Tensor, new: Tensor) -> Tensor:
    """Append N tokens' states, (R, heads, N, D), to those of R chosen rows."""
    length = cached.shape[2]
    grown = new.new_empty(*new.shape[:2], length + new.shape[2], new.shape[3])
    torch.index_select(cached, 0, rows, out=grown[:, :, :length])
    grown[:, :, length:] = new
    return grown


class BertDecoder:
    """Feeds tokens to the model and keeps their keys and values.

    Each source is encoded once. A row of the cache is copied only where prefixes diverge.

    Args:
        model: A model in evaluation mode.
        sources: ``[CLS] text [SEP]`` rows, S of them.
        max_new_tokens: Maximum number of tokens to feed.
        banned: Ids never to write. Shape: (N,).
    """

    def __init__(
        self, model: SimBert, sources: Sequence[list[int]], max_new_tokens: int, banned: Tensor
    ) -> None:
        self.model = model
        self.banned = banned
        self.sep_id = model.rows.sep_id
        inputs = {k: v.to(model.device) for k, v in model.rows.pad(sources).items()}
        self.lengths = inputs["attention_mask"].sum(dim=1)
        self.width = inputs["attention_mask"].shape[1]
        # Rotary positions count from the cache's start, so the padding must be on the left.
        places = torch.arange(self.width, device=model.device) - self.width
        places = (places + self.lengths[:, None]) % self.width  # where each token stood, (S, L)
        self.inputs = {k: v.gather(1, places) for k, v in inputs.items()}
        self.inputs["position_ids"] = places
        real = self.inputs["attention_mask"]
        hidden = torch.nn.functional.pad(real == 0, (0, max_new_tokens))  # (S, L + T), bool
        mask = torch.zeros(hidden.shape, dtype=model.dtype, device=model.device)
        self.mask = mask.masked_fill_(hidden, torch.finfo(model.dtype).min)[:, None, None]
        self.cache = Cache(layer_class_to_replicate=BranchingLayer)
        self.rows = len(sources)  # in the cache

    def start(self) -> Tensor:
        """Encode the sources; return the logits of each one's first new token, (S, V)."""
        output = self.model(**self.inputs, cache=self.cache, logits_to_keep=1)
        logits = self._ban(output.logits[:, 0])
        logits[:, self.sep_id] = -torch.inf  # an empty sentence is not a paraphrase
        return logits

    def step(self, parents: Tensor, sources: Tensor, tokens: Tensor) -> Tensor:
        """Feed one token to each of R prefixes; see ``Decoder.step``."""
        # The search may run on another device: see `with_float64`.
        parents, sources, tokens = (t.to(self.mask.device) for t in (parents, sources, tokens))
        if len(parents) != self.rows or (parents.diff() != 1).any():  # else the rows stay the same
            self.cache.reorder_cache(parents)  # type: ignore[arg-type]  # it is int64
            self.rows = len(parents)
        cached = self.cache.get_seq_length()
        output = self.model(
            tokens[:, None],
            attention_mask=self.mask[sources, :, :, : cached + 1],
            token_type_ids=torch.ones_like(tokens)[:, None],
            position_ids=(self.lengths[sources] + cached - self.width)[:, None],
            cache=self.cache,
            logits_to_keep=1,
        )
        return self._ban(output.logits[:, 0])

    def read(self, tokens: Tensor) -> Iterator[Tensor]:
        """Feed L tokens to each source after ``start``, and forget them; see ``Decoder.read``."""
        count = tokens.shape[1]
        if not count:
            return
        seen = self.mask[..., : self.width].expand(-1, -1, count, -1)  # (S, 1, L, width)
        later = seen.new_full((count, count), torch.finfo(seen.dtype).min).triu(1)
        output = self.model(
            tokens,
            attention_mask=torch.cat([seen, later.expand(len(seen), 1, -1, -1)], dim=-1),
            token_type_ids=torch.ones_like(tokens),
            position_ids=self.lengths[:, None] + torch.arange(count, device=seen.device),
            cache=self.cache,
        )
        self.cache.crop(-count)
        for hidden in output.last_hidden_state.unbind(dim=1):  # all logits at once may be too many
            yield self._ban(self.model.lm_logits(hidden))

    def _ban(self, logits: Tensor) -> Tensor:
        return logits.float().index_fill_(1, self.banned, -torch.inf)
