"""Copying: source tokens that a model would not write by itself are made easier to write.

A model writes what it was trained to write. Instead of a rare name or number, it finds another one
likelier, though it reads it well. How foreign a token is to it shows when it is fed the source as
its own paraphrase: by the token's negative log-probability. Raised by this much, the token is
about as likely as all others together. (Pointer networks, See et al. 2017, learn to copy; this
needs no training.)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from simbert_hf.generation.search import Decoder, Prefixes
from simbert_hf.utils.text import HAN

KNOWN = 2.0  # nats; a token that lacks less is left to the model, which may paraphrase it
ELSEWHERE = 0.5  # share of its raise that a token gets after another one than in the source
GOES_ON = re.compile(rf"[^\s{HAN}]{{2}}")  # two characters of one word


class Copying:
    """A restraint that raises the logits of the source's tokens by what they lack.

    A token is raised until it is written as often as in the source: fully after the token that
    precedes it there; by half elsewhere, if it begins a word, as words may change their order.

    Args:
        decoder: The decoder of the search; each search needs a restraint of its own, its first.
        sources: Token ids without special tokens, as many of each as can be fed, padded with -1.
            Shape: (S, L).
        inside: For these and later ones, whether they continue the word before. Shape: (S, L) or
            wider.
        weight: Factor of the raise.
    """

    left: Tensor  # what each token still lacks, (R, L)
    rises: Tensor  # what was added to it last

    def __init__(self, decoder: Decoder, sources: Tensor, inside: Tensor, weight: float) -> None:
        self.decoder = decoder
        self.ids, self.weight = sources, weight
        self.before = sources.roll(1, dims=1)  # (S, L), as the next
        self.before[:, 0] = -1
        self.elsewhere = torch.where(inside[:, : sources.shape[1]] == 0, ELSEWHERE, 0.0).float()

    def __call__(self, logits: Tensor, prefixes: Prefixes) -> Tensor:
        """Raise the logits, (R, V)."""
        parents, sources, tokens = prefixes
        if tokens.shape[1]:
            newest = tokens[:, -1:]
            rises = self.rises[parents].masked_fill(self.ids[sources] != newest, 0)
            written = (rises == rises.amax(1, keepdim=True)) & (rises > 0)
            written &= written.cumsum(1) == 1  # of several, the most raised one, or the first
            self.left = self.left[parents].masked_fill(written, 0)
        else:
            newest = torch.full_like(sources, -1)[:, None]
            lacking = torch.threshold(foreignness(self.decoder, logits, self.ids), KNOWN, 0)
            self.left = self.weight * lacking
        share = self.elsewhere[sources].masked_fill(self.before[sources] == newest, 1)
        self.rises = self.left * share
        ids = self.ids[sources].clamp(min=0)  # after a row's end nothing is lacking
        return logits.scatter_reduce_(1, ids, logits.gather(1, ids) + self.rises, "amax")


def padded(rows: Sequence[Sequence[int]]) -> Tensor:
    """Pad rows with -1, to at least one column: (S, L)."""
    tensors = [torch.tensor([*row] or [-1], dtype=torch.long, device="cpu") for row in rows]
    return pad_sequence(tensors, batch_first=True, padding_value=-1)


@torch.no_grad()
def foreignness(decoder: Decoder, first: Tensor, ids: Tensor) -> Tensor:
    """Feed tokens, and return the negative log-probability of each, in nats.

    Args:
        decoder: Of S sources; it has just started.
        first: The logits that it started with. Shape: (S, V).
        ids: Tokens to feed, -1 after a row's end. Shape: (S, L).

    Returns:
        0 after a row's end, and for banned tokens, which nothing makes likelier. Shape: (S, L).
    """
    fed = ids.clamp(min=0)
    found = [
        -logits.log_softmax(dim=1).gather(1, column[:, None])
        for logits, column in zip(chain([first], decoder.read(fed[:, :-1])), fed.T, strict=True)
    ]
    lacking = torch.cat(found, dim=1)
    return lacking.masked_fill((ids < 0) | lacking.isinf(), 0)


def inside_words(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[bool]]:
    """Tell of each token whether it continues a word; blanks and Chinese characters end one.

    Example:
        >>> from simbert_hf import DEFAULT_MODEL, SimBert
        >>> tokenizer = SimBert.from_pretrained(DEFAULT_MODEL).tokenizer
        >>> tokenizer.tokenize("open 24/7 in paris")
        ['open', '24', '/', '7', 'in', 'paris']
        >>> inside_words(tokenizer, ["open 24/7 in paris"])
        [[False, False, True, True, False, False]]
    """
    encoded = tokenizer(
        list(texts),
        add_special_tokens=False,
        return_offsets_mapping=tokenizer.is_fast,  # others have none
        verbose=False,
    )
    unknown = ([(0, 0)] * len(row) for row in encoded["input_ids"])
    return [
        [start > 0 and bool(GOES_ON.fullmatch(text[start - 1 : start + 1])) for start, _ in spans]
        for text, spans in zip(texts, encoded.get("offset_mapping", unknown), strict=True)
    ]
