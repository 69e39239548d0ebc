"""Repeats: no long word of one token is written more often than the source has it.

Small models repeat words ("when will my card get my card?"), which vectors hardly show but people
notice. (Coverage, See et al. 2017, learns to avoid it; this needs no training.)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from simbert_hf.generation.search import Decoder
from simbert_hf.utils.text import CJK, HAN, is_wordpiece

# A token for a word of four letters, or of two Chinese characters; shorter ones, such as "the",
# may be repeated, and so may pieces inside words.
WORDPIECE = re.compile(rf"[^\W\d_{HAN}]{{4,}}|[{HAN}]{{2,}}")
OTHERS = re.compile(rf"▁[^\W\d_{HAN}]{{4,}}|▁?[{HAN}]{{2,}}")
LETTERS = re.compile(rf"(?:##|▁)?[^\W\d_{CJK}]+")  # Chinese characters may be doubled


class UnrepeatingDecoder:
    """A decoder that writes no long word more often than the source has it, or than once.

    Nor does it write letters twice in a row ("the the") unless the source does.

    Args:
        decoder: A decoder that has not started.
        sources: Token ids without special tokens, padded with -1. Shape: (S, L).
        long: For each token, whether it is a long word. Shape: (V,).
        letters: For each token, whether it consists of letters only. Shape: (V,).
    """

    def __init__(self, decoder: Decoder, sources: Tensor, long: Tensor, letters: Tensor) -> None:
        self.decoder = decoder
        self.ids, self.long, self.letters = sources, long, letters

    def start(self) -> Tensor:
        """Return the logits of each source's first new token: (S, V)."""
        self.written = self.ids[:, :0]
        return self.decoder.start()

    def step(self, parents: Tensor, sources: Tensor, tokens: Tensor) -> Tensor:
        """Feed one token to each of R prefixes; see ``Decoder.step``."""
        logits = self.decoder.step(parents, sources, tokens)
        parents, sources, tokens = (t.to(logits.device) for t in (parents, sources, tokens))
        self.written = torch.cat([self.written[parents], tokens[:, None]], dim=1)  # (R, T)
        known = self.ids[sources]  # (R, L)
        has = count(self.written, known)
        over = self.long[self.written] & (count(self.written, self.written) >= has)
        twice = ((known[:, 1:] == tokens[:, None]) & (known[:, :-1] == tokens[:, None])).any(dim=1)
        again = self.letters[tokens] & ~twice
        over |= (self.written == tokens[:, None]) & again[:, None]
        left = logits.gather(1, self.written).masked_fill(over, -torch.inf)
        return logits.scatter_(1, self.written, left)


def count(tokens: Tensor, among: Tensor) -> Tensor:
    """Count each token, (R, T), among those of its row, (R, L): (R, T)."""
    return (tokens[:, :, None] == among[:, None, :]).sum(dim=2)


@lru_cache(maxsize=4)
def kinds_of_tokens(tokenizer: PreTrainedTokenizerBase, size: int) -> tuple[Tensor, Tensor]:
    """Tell which of ``size`` tokens are long words, and which are only letters: (V,) each.

    Example:
        >>> from simbert_hf import DEFAULT_MODEL, SimBert
        >>> tokenizer = SimBert.from_pretrained(DEFAULT_MODEL).tokenizer
        >>> ids = tokenizer.convert_tokens_to_ids(["card", "##card", "the", "5", "[SEP]"])
        >>> [kind[ids].tolist() for kind in kinds_of_tokens(tokenizer, len(tokenizer))]
        [[True, False, False, False, False], [True, True, True, False, False]]
    """
    names: Sequence[str | None] = tokenizer.convert_ids_to_tokens(
        list(range(min(size, len(tokenizer))))
    )
    patterns = (WORDPIECE if is_wordpiece(tokenizer) else OTHERS), LETTERS
    unnamed = [False] * (size - len(names))
    kinds = ([bool(p.fullmatch(name or "")) for name in names] + unnamed for p in patterns)
    long, letters = (torch.tensor(kind, device="cpu") for kind in kinds)
    return long, letters
