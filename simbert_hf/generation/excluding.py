"""Exclusion: words of one token that would change a text's facts are not written.

Paraphrases with such words are dropped (``facts``); not writing them leaves more to choose from.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from simbert_hf.generation.facts import KNOWN_WORDS, excluded_words
from simbert_hf.generation.search import Prefixes


def exclude(excluded: Tensor, logits: Tensor, prefixes: Prefixes) -> Tensor:
    """Never write some tokens, as many for each source: (S, E)."""
    return logits.scatter_(1, excluded[prefixes.sources], -torch.inf)


def excluded_tokens(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], rows: Sequence[Sequence[int]]
) -> Tensor:
    """Find words of one token that no paraphrase of each text may have, and its row lacks.

    Args:
        tokenizer: The model's.
        texts: Texts to paraphrase.
        rows: Their token ids with special tokens; the first one, [CLS], is never written, and
            fills shorter rows of the result.

    Returns:
        Shape: (S, E).
    """
    ids = ids_of_words(tokenizer)
    found = [
        {ids[word] for word in excluded_words(text) & ids.keys()}.difference(row)
        for text, row in zip(texts, rows, strict=True)
    ]
    longest = max(map(len, found), default=0)
    filled = [
        [*sorted(some), *[row[0]] * (longest - len(some))]
        for some, row in zip(found, rows, strict=True)
    ]
    return torch.tensor(filled, dtype=torch.long, device="cpu").reshape(len(rows), longest)


@lru_cache(maxsize=4)
def ids_of_words(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """Map the words of ``KNOWN_WORDS`` that are one token to its id."""
    words = sorted(KNOWN_WORDS)
    encoded = tokenizer(words, add_special_tokens=False)["input_ids"]
    return {word: row[0] for word, row in zip(words, encoded, strict=True) if len(row) == 1}
