"""Random changes of sentences: masked tokens, or deleted and replaced words."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Self, get_args

from transformers import PreTrainedTokenizerBase

from simbert_hf.utils.text import CJK

Augmenting = Literal["crop", "delete", "replace"]
WORDS = re.compile(rf"(?:[{CJK}]|[^\s{CJK}]+)\s*")  # each with the spaces after it
MASKED = 0.15  # share of words, as in BERT
LETTERS = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True)
class Corruption:
    """Replaces tokens of a source sentence, 80 % by [MASK], 10 % by a random one, 10 % kept.

    BERT's masking (Devlin et al. 2019, https://arxiv.org/abs/1810.04805) of whole words, 15 % of
    them.

    Attributes:
        mask_id: Id of the mask token.
        vocab_size: Number of tokens from which random ones are drawn.
        special_ids: Ids that are never drawn.

    Example:
        >>> corruption = Corruption(mask_id=4, vocab_size=99, special_ids=frozenset(range(5)))
        >>> ids, words = [2, 10, 11, 12, 13, 3], [None, 0, 0, 1, 2, None]  # 10 and 11: one word
        >>> corruption(ids, words, random.Random(1))
        ([2, 4, 4, 12, 13, 3], [1, 2])
    """

    mask_id: int
    vocab_size: int
    special_ids: frozenset[int]

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase) -> Self:
        """Make the corruption for a tokenizer.

        Raises:
            ValueError: If it has no mask token.
        """
        if tokenizer.mask_token_id is None:
            raise ValueError("MLM and denoising need a tokenizer with a mask token.")
        return cls(tokenizer.mask_token_id, len(tokenizer), frozenset(tokenizer.all_special_ids))

    def __call__(
        self, ids: Sequence[int], words: Sequence[int | None], rng: random.Random
    ) -> tuple[list[int], list[int]]:
        """Corrupt whole words.

        Args:
            ids: Token ids of a source.
            words: Word index of each token, None for special tokens, which stay.
            rng: Random number generator.

        Returns:
            The corrupted ids, and the positions that were chosen (including kept ones).
        """
        chosen = {w for w in sorted({w for w in words if w is not None}) if rng.random() < MASKED}
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

    def sources(
        self,
        sources: Sequence[list[int]],
        words: Sequence[Sequence[int | None]],
        seeds: Sequence[int],
        share: float = 1.0,
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Corrupt a share of the rows of ``RowBuilder.sources_and_words``, by their seeds.

        Returns:
            The rows, corrupted or not, and the chosen positions of each.
        """
        corrupted, chosen = [], []
        for ids, row_words, seed in zip(sources, words, seeds, strict=True):
            rng = random.Random(seed)
            positions: list[int] = []
            if share == 1 or rng.random() < share:
                ids, positions = self(ids, row_words, rng)
            corrupted.append(ids)
            chosen.append(positions)
        return corrupted, chosen


@dataclass(frozen=True)
class Augmentation:
    """Changes a sentence: crops it, deletes or replaces words (in Chinese, characters).

    Attributes:
        kind: ``crop`` keeps one span, ``delete`` drops random words, ``replace`` puts others in
            their place.
        rate: Share of the words that is changed (for ``replace``, if they have synonyms).
        synonyms: For ``replace``, the substitutes of each word in lower case.

    Example:
        >>> Augmentation("crop", 0.5)("a b c d", random.Random(1))
        'a b'
    """

    kind: Augmenting
    rate: float = 0.1
    synonyms: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in get_args(Augmenting) or not 0 <= self.rate < 1:
            raise ValueError(
                f"Augmentation {self.kind!r} at rate {self.rate}: choose one of "
                f"{', '.join(get_args(Augmenting))}, and a rate in [0, 1)."
            )

    def __call__(self, text: str, rng: random.Random) -> str:
        """Return the changed text, which keeps at least one word."""
        words = WORDS.findall(text.strip())
        if self.kind == "crop":
            size = max(1, len(words) - round(self.rate * len(words)))
            start = rng.randint(0, len(words) - size)
            return "".join(words[start : start + size]).strip()
        if self.kind == "replace":
            return "".join(
                self._replace(word, rng) if rng.random() < self.rate else word for word in words
            ).strip()
        kept = [word for word in words if rng.random() >= self.rate]
        return "".join(kept or [rng.choice(words)]).strip()

    def _replace(self, word: str, rng: random.Random) -> str:
        """Replace the letters of a word, but not marks and spaces around it; keep a capital."""
        letters = LETTERS.search(word)
        found = self.synonyms.get(letters[0].lower(), ()) if letters else ()
        if not letters or not found:
            return word
        new = rng.choice(found)
        new = new[:1].upper() + new[1:] if letters[0][0].isupper() else new
        return word[: letters.start()] + new + word[letters.end() :]
