"""Coining: words made of pieces that the text does not combine are made harder to write.

Most of them do not exist: from "sunflowers" and "sunlight" a small model makes "sunlightflowers",
from "climbing" "climbingers". Those that exist ("delete") are written if the model is sure of them.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from simbert_hf.generation.search import Prefixes

COINED = 4.0  # nats that a piece loses after another one than in the text


def hinder_coining(
    sources: Tensor, pieces: Tensor, loss: float, logits: Tensor, prefixes: Prefixes
) -> Tensor:
    """Continue a word less readily, unless the source continues it so.

    Args:
        sources: Token ids without special tokens, padded with -1. Shape: (S, L).
        pieces: Ids of the tokens that continue a word. Shape: (P,).
        loss: What is subtracted from their logits.
        logits: Shape: (R, V).
        prefixes: What they follow.
    """
    if not prefixes.tokens.shape[1]:
        return logits
    known = sources[prefixes.sources]
    behind = (known[:, :-1] == prefixes.tokens[:, -1:]) & (known[:, 1:] >= 0)
    following = known[:, 1:].clamp(min=0)
    as_there = logits.gather(1, following).masked_fill(~behind, -torch.inf)
    logits[:, pieces] -= loss
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
