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

from simbert_hf.generation.search import Prefixes
from simbert_hf.utils.text import CJK, HAN, is_wordpiece

# A token for a word of four letters, or of two Chinese characters; shorter ones, such as "the",
# may be repeated, and so may pieces inside words.
WORDPIECE = re.compile(rf"[^\W\d_{HAN}]{{4,}}|[{HAN}]{{2,}}")
OTHERS = re.compile(rf"▁[^\W\d_{HAN}]{{4,}}|▁?[{HAN}]{{2,}}")
LETTERS = re.compile(rf"(?:##|▁)?[^\W\d_{CJK}]+")  # Chinese characters may be doubled


def ban_repeats(
    sources: Tensor, long: Tensor, letters: Tensor, logits: Tensor, prefixes: Prefixes
) -> Tensor:
    """Write no long word more often than the source has it, or than once.

    Nor letters twice in a row ("the the") unless the source does.

    Args:
        sources: Token ids without special tokens, padded with -1. Shape: (S, L).
        long: For each token, whether it is a long word. Shape: (V,).
        letters: For each token, whether it consists of letters only. Shape: (V,).
        logits: Shape: (R, V).
        prefixes: What they follow.
    """
    written, newest = prefixes.tokens, prefixes.tokens[:, -1:]  # (R, T), (R, 1)
    if not written.shape[1]:
        return logits
    known = sources[prefixes.sources]  # (R, L)
    over = long[written] & (count(written, written) >= count(written, known))
    twice = ((known[:, 1:] == newest) & (known[:, :-1] == newest)).any(dim=1, keepdim=True)
    over |= (written == newest) & letters[newest] & ~twice
    left = logits.gather(1, written).masked_fill(over, -torch.inf)
    return logits.scatter_(1, written, left)


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
