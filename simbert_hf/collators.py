"""Pairs of sentences -> padded tensors."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from simbert_hf.data import Pair
from simbert_hf.rows import RowBuilder

SEPARATORS = ("\n", "。！？!?", "；;", "，,", " ")  # strongest first


def cut_at_punctuation(text: str, max_chars: int) -> str:
    """Keep the first whole clauses of a text, at most ``max_chars`` characters where they fit.

    Cuts at the strongest separator (line end, sentence end, semicolon, comma, blank) that leaves
    something, as the original SimBERT's data preparation does; a text without one stays whole.

    Example:
        >>> cut_at_punctuation("Is it late? I think so, yes.", 14)
        'Is it late?'
    """
    text = text.strip()
    for separators in SEPARATORS:
        if len(text) <= max_chars:
            break
        ends = [i + 1 for i, char in enumerate(text) if char in separators]
        fitting = [end for end in ends if end <= max_chars]
        text = text[: (fitting[-1] if fitting else ends[0] if ends else None)].strip()
    return text


@dataclass(frozen=True)
class Corruption:
    """Replaces tokens of a source sentence, 80 % by [MASK], 10 % by a random one, 10 % kept.

    Attributes:
        mask_id: Id of the mask token.
        vocab_size: Number of tokens that a random one is drawn from.
        special_ids: Ids that are never drawn.
        rate: Share of words that is corrupted.
    """

    mask_id: int
    vocab_size: int
    special_ids: frozenset[int]
    rate: float = 0.15

    def __call__(
        self, ids: Sequence[int], words: Sequence[int | None], rng: random.Random
    ) -> tuple[list[int], list[int]]:
        """Corrupt whole words.

        Args:
            ids: Token ids of a source.
            words: Word index of each token, None for special tokens, which stay.
            rng: Source of randomness.

        Returns:
            The corrupted ids, and the positions that were chosen (kept ones included).
        """
        chosen = {
            w for w in sorted({w for w in words if w is not None}) if rng.random() < self.rate
        }
        positions = [i for i, word in enumerate(words) if word in chosen]
        corrupted = list(ids)
        for i in positions:
            draw = rng.random()
            if draw < 0.8:
                corrupted[i] = self.mask_id
            elif draw < 0.9:
                corrupted[i] = self._random_id(rng)
        return corrupted, positions

    def _random_id(self, rng: random.Random) -> int:
        while (token := rng.randrange(self.vocab_size)) in self.special_ids:
            pass
        return token


@dataclass
class PairCollator:
    """Pairs -> SimBERT's rows: (A, B) and (B, A) in adjacent rows.

    Attributes:
        rows: Builds token rows.
        max_length: Longest source and longest target, in tokens with their special ones.
        max_chars: Cut sentences at punctuation to this many characters first; None does not.
        mlm: Mask words of every source; the LM head restores them (an MLM loss on the source
            beside the seq2seq loss on the target).
        texts: Put the source sentences into the batch, for a teacher to embed.
        denoising: Corrupt words of half of the sources, without a loss of their own
            (RoFormer-Sim); the target stays clean.
    """

    rows: RowBuilder
    max_length: int = 64
    max_chars: int | None = None
    mlm: bool = False
    denoising: bool = False
    texts: bool = False

    def __post_init__(self) -> None:
        tokenizer = self.rows.tokenizer
        if not (self.mlm or self.denoising):
            return
        if tokenizer.mask_token_id is None:
            raise ValueError("MLM and denoising need a tokenizer with a mask token.")
        special = frozenset(tokenizer.all_special_ids)
        self.corruption = Corruption(tokenizer.mask_token_id, len(tokenizer), special)

    def __call__(self, pairs: Sequence[Pair]) -> dict[str, Any]:
        """Build one batch from P pairs, so B = 2P rows of L tokens.

        Args:
            pairs: Items with ``source``, ``target``, ``group`` and ``seed``.

        Returns:
            ``input_ids``, ``attention_mask``, ``token_type_ids``: (B, L); ``groups``: (B,);
            ``target_positions``, ``target_labels``: (N,), where in the flattened B * L positions
            a target token is predicted, and which; with ``mlm``, ``mlm_positions`` and
            ``mlm_labels``: (M,); with ``texts``, ``texts``: B strings.
        """
        first, second = ([self._cut(pair[side]) for pair in pairs] for side in ("source", "target"))
        texts = [text for pair in zip(first, second, strict=True) for text in pair]
        partners = [text for pair in zip(second, first, strict=True) for text in pair]
        sources = self.rows.sources(texts, self.max_length)
        targets = self.rows.targets(partners, self.max_length)
        seeds = [pair["seed"] * 2 + side for pair in pairs for side in (0, 1)]
        corrupted, chosen = self._corrupt(texts, sources, seeds)
        batch: dict[str, Any] = self.rows.pad(corrupted, targets)
        batch["groups"] = torch.tensor([pair["group"] for pair in pairs for _ in (0, 1)])
        batch |= target_labels(batch)
        if self.mlm:
            width = batch["input_ids"].shape[1]
            batch["mlm_positions"] = torch.tensor(
                [i * width + at for i, row in enumerate(chosen) for at in row], dtype=torch.long
            )
            batch["mlm_labels"] = torch.tensor(
                [sources[i][at] for i, row in enumerate(chosen) for at in row], dtype=torch.long
            )
        if self.texts:
            batch["texts"] = texts
        return batch

    def _cut(self, text: str) -> str:
        return cut_at_punctuation(text, self.max_chars) if self.max_chars else text

    def _corrupt(
        self, texts: Sequence[str], sources: list[list[int]], seeds: Sequence[int]
    ) -> tuple[list[list[int]], list[list[int]]]:
        if not (self.mlm or self.denoising):
            return sources, [[] for _ in sources]
        encoded = self.rows.tokenizer(list(texts), add_special_tokens=False, verbose=False)
        corrupted, chosen = [], []
        for i, (ids, seed) in enumerate(zip(sources, seeds, strict=True)):
            rng = random.Random(seed)
            positions: list[int] = []
            if self.mlm or rng.random() < 0.5:
                words = [None, *encoded.word_ids(i)[: len(ids) - 2], None]
                ids, positions = self.corruption(ids, words, rng)
            corrupted.append(ids)
            chosen.append(positions)
        return corrupted, chosen


def target_labels(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Find where target tokens are predicted: at the position before each, in its row.

    The source's [SEP] predicts the first target token, and the final [SEP] is a target too.

    Returns:
        ``target_positions`` into the flattened B * L positions, and ``target_labels``: both (N,).
    """
    is_target = batch["token_type_ids"][:, 1:].bool()  # (B, L - 1), at the predicting position
    row, column = is_target.nonzero(as_tuple=True)
    width = batch["input_ids"].shape[1]
    return {
        "target_positions": row * width + column,
        "target_labels": batch["input_ids"][:, 1:][is_target],
    }
