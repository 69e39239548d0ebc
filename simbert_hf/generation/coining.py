"""Coining: words put together of pieces that the text does not have are made harder to write.

Most of them do not exist: of "sunflowers" and "sunlight" a small model makes "sunlightflowers", of
"climbing" "climbingers". Those that do ("delete") are written where the model is sure of them.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from simbert_hf.generation.search import Decoder

COINED = 4.0  # nats that a piece loses behind another one than in the text


class CoiningDecoder:
    """A decoder that goes on with a word less readily, but as the source does.

    Args:
        decoder: It has not started.
        sources: Token ids without special ones, padded with -1. Shape: (S, L).
        pieces: Ids of the tokens that go on with a word. Shape: (P,).
        loss: What their logits lose.
    """

    def __init__(self, decoder: Decoder, sources: Tensor, pieces: Tensor, loss: float) -> None:
        self.decoder, self.sources = decoder, decoder.sources
        self.ids, self.pieces, self.loss = sources, pieces, loss

    def start(self) -> Tensor:
        """Return the logits of each source's first new token: (S, V)."""
        return self.decoder.start()

    def step(self, parents: Tensor, sources: Tensor, tokens: Tensor) -> Tensor:
        """Feed one token to each of R prefixes; see ``Decoder.step``."""
        logits = self.decoder.step(parents, sources, tokens)
        known, tokens = self.ids[sources.to(logits.device)], tokens.to(logits.device)
        behind = (known[:, :-1] == tokens[:, None]) & (known[:, 1:] >= 0)
        following = known[:, 1:].clamp(min=0)
        as_there = logits.gather(1, following).masked_fill(~behind, -torch.inf)
        logits[:, self.pieces] -= self.loss
        return logits.scatter_reduce_(1, following, as_there, "amax")


@lru_cache(maxsize=4)
def pieces_of_words(tokenizer: PreTrainedTokenizerBase) -> Tensor:
    """Find the tokens that go on with a word, of a WordPiece tokenizer: (P,).

    But for "ing", which is mostly right, and spelled by :mod:`simbert_hf.generation.inflection`.

    Example:
        >>> from simbert_hf import DEFAULT_MODEL, SimBert
        >>> tokenizer = SimBert.from_pretrained(DEFAULT_MODEL).tokenizer
        >>> tokenizer.convert_ids_to_tokens(pieces_of_words(tokenizer)[:3])
        ['##s', '##a', '##e']
    """
    names = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    pieces = (i for i, name in enumerate(names) if (name or "").startswith("##"))
    return torch.tensor([i for i in pieces if names[i] != "##ing"])
