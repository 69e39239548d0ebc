"""Coining: words made of pieces that the text does not combine are made harder to write.

Most of them do not exist: from "sunflowers" and "sunlight" a small model makes "sunlightflowers",
from "climbing" "climbingers". Those that exist ("delete") are written if the model is sure of them.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from simbert_hf.generation.search import Decoder

COINED = 4.0  # nats that a piece loses after another one than in the text


class CoiningDecoder:
    """A decoder that continues a word less readily, unless the source continues it so.

    Args:
        decoder: A decoder that has not started.
        sources: Token ids without special tokens, padded with -1. Shape: (S, L).
        pieces: Ids of the tokens that continue a word. Shape: (P,).
        loss: What is subtracted from their logits.
    """

    def __init__(self, decoder: Decoder, sources: Tensor, pieces: Tensor, loss: float) -> None:
        self.decoder = decoder
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
    """Find the tokens of a WordPiece tokenizer that continue a word: (P,).

    Except "ing", which is mostly right, and spelled by :mod:`simbert_hf.generation.inflection`.

    Example:
        >>> from simbert_hf import DEFAULT_MODEL, SimBert
        >>> tokenizer = SimBert.from_pretrained(DEFAULT_MODEL).tokenizer
        >>> tokenizer.convert_ids_to_tokens(pieces_of_words(tokenizer)[:3])
        ['##s', '##a', '##e']
    """
    names = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    pieces = (i for i, name in enumerate(names) if (name or "").startswith("##"))
    return torch.tensor([i for i in pieces if names[i] != "##ing"], device="cpu")
