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
from simbert_hf.generation.search import Decoder


class ExcludingDecoder:
    """A decoder that never writes some tokens.

    Args:
        decoder: A decoder that has not started.
        excluded: Token ids for each source, the same number for each. Shape: (S, E).
    """

    def __init__(self, decoder: Decoder, excluded: Tensor) -> None:
        self.decoder, self.excluded = decoder, excluded

    def start(self) -> Tensor:
        """Return the logits of each source's first new token: (S, V)."""
        return self.decoder.start().scatter_(1, self.excluded, -torch.inf)

    def step(self, parents: Tensor, sources: Tensor, tokens: Tensor) -> Tensor:
        """Feed one token to each of R prefixes; see ``Decoder.step``."""
        logits = self.decoder.step(parents, sources, tokens)
        return logits.scatter_(1, self.excluded[sources.to(logits.device)], -torch.inf)


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
