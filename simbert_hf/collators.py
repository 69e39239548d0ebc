"""Pairs of sentences -> padded tensors, one class per recipe."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simbert_hf.data import Pair, Triplet
from simbert_hf.data.noising import Augmentation, Corruption
from simbert_hf.rows import RowBuilder, Rows, target_labels
from simbert_hf.utils.arrays import Ints
from simbert_hf.utils.checks import check_rows

SEPARATORS = ("\n", "。！？!?", "；;", "，,", " ")  # strongest first
COMMA_IN_NUMBER = re.compile(r"(?<=\d)[，,](?=\d)")


def cut_at_punctuation(text: str, max_chars: int | None) -> str:
    """Keep the first complete clauses of a text, at most ``max_chars`` characters if they fit.

    Cuts at the strongest separator (line end, sentence end, semicolon, comma, space) that leaves
    something, as the original SimBERT's data preparation does. A text without separators is not
    cut, nor is any if ``max_chars`` is None. A comma between two digits is part of their number.

    Example:
        >>> cut_at_punctuation("Is it late? I think so, yes.", 14)
        'Is it late?'
    """
    if max_chars is None:
        return text
    text = text.strip()
    for separators in SEPARATORS:
        if len(text) <= max_chars:
            break
        first = next((i for i, char in enumerate(text) if char.isalnum()), len(text))
        marks = COMMA_IN_NUMBER.sub("0", text)
        ends = [i + 1 for i, char in enumerate(marks) if i > first and char in separators]
        fitting = [end for end in ends if end <= max_chars]
        text = text[: (fitting[-1] if fitting else ends[0] if ends else None)].strip()
    return text


@dataclass
class TextCollator:
    """Texts -> padded rows.

    Attributes:
        rows: Builds token rows: ``model.rows``.
        max_length: Maximum tokens of a sentence, including special tokens.
        max_chars: Cut sentences at punctuation to this many characters first; None: do not.

    Raises:
        TypeError: If ``rows`` cannot build rows.
        ValueError: If ``max_length`` leaves no room for a token besides the special ones.

    Example:
        >>> from transformers import AutoTokenizer
        >>> from simbert_hf import DEFAULT_MODEL
        >>> rows = RowBuilder(AutoTokenizer.from_pretrained(DEFAULT_MODEL))  # as ``model.rows``
        >>> batch = TextCollator(rows, max_chars=12).pad(["Yes.", "Is it late? I think so."])
        >>> [rows.tokenizer.decode(row) for row in batch["input_ids"]]
        ['[CLS] yes. [SEP] [PAD] [PAD]', '[CLS] is it late? [SEP]']
    """

    rows: Rows
    max_length: int = 64
    max_chars: int | None = None

    def __post_init__(self) -> None:
        if not hasattr(self.rows, "lengths"):
            raise TypeError(f"rows is a {type(self.rows).__name__}: give a model's `rows`.")
        least = 1 + getattr(self.rows, "n_special", 2)
        if self.max_length < least:
            raise ValueError(f"max_length={self.max_length} leaves no token: give {least} or more.")

    def pad(self, texts: Iterable[str]) -> dict[str, Tensor]:
        """Build a row for each text, and pad them: (B, L)."""
        return self.rows.pad(self.rows.sources(list(map(self._cut, texts)), self.max_length))

    def row_lengths(self, texts: Iterable[str]) -> Ints:
        """Count the tokens of each text's row: (N,)."""
        return self.rows.lengths(list(map(self._cut, texts)), self.max_length)

    def _cut(self, text: str) -> str:
        return cut_at_punctuation(text, self.max_chars)


@dataclass
class PairCollator(TextCollator):
    """Pairs -> SimBERT's rows: (A, B) and (B, A) in adjacent rows.

    Attributes:
        max_length: Maximum tokens of a source and of a target, each with its special tokens.
        mlm: Mask words of every source; the LM head restores them (an MLM loss on the source
            besides the seq2seq loss on the target).
        texts: Put every row's sentence into the batch, for a teacher to compare.
        denoising: Corrupt words of half of the sources, without a loss of their own
            (RoFormer-Sim); the target stays clean.
        sentences: Unpaired sentences: each pair's seed draws two rows of them, without targets or
            corruption, placed after the pairs' rows.
        twice: Both rows are the same sentence, for SimCSE beside SimBERT; otherwise they are
            neighbours, the first and second, third and fourth, ..., for a teacher to compare.
        targets: Append each sentence's partner as its target. Without targets the rows are half
            as long, and their vectors are the same, as these do not attend to the target.
        preferences: A sentence, a good paraphrase and a bad one: each pair's seed draws one, which
            makes two rows after all others.
        one_way: Pairs whose second sentence is the target of the first, never the other way
            around: each pair's seed draws two, a row each, placed before those of preferences.

    Raises:
        TypeError: If preferences or one-way pairs are not tuples, or ``sentences`` is a string.
        ValueError: If words are to be corrupted and the tokenizer has no mask token.

    Example:
        >>> from transformers import AutoTokenizer
        >>> from simbert_hf import DEFAULT_MODEL
        >>> rows = RowBuilder(AutoTokenizer.from_pretrained(DEFAULT_MODEL))  # as ``model.rows``
        >>> pair = {"source": "where is it", "target": "i lost it", "group": 7, "seed": 0}
        >>> batch = PairCollator(rows)([pair])
        >>> [rows.tokenizer.decode(row) for row in batch["input_ids"]]
        ['[CLS] where is it [SEP] i lost it [SEP]', '[CLS] i lost it [SEP] where is it [SEP]']
        >>> batch["token_type_ids"][0].tolist(), batch["groups"].tolist()
        ([0, 0, 0, 0, 0, 1, 1, 1, 1], [7, 7])
        >>> rows.tokenizer.decode(batch["target_labels"])
        'i lost it [SEP] where is it [SEP]'
    """

    rows: RowBuilder
    mlm: bool = False
    denoising: bool = False
    texts: bool = False
    sentences: Sequence[str] = ()
    twice: bool = True
    targets: bool = True
    preferences: Sequence[Triplet] = ()
    one_way: Sequence[tuple[str, str]] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_rows("preferences", self.preferences, "sentence", "chosen", "rejected")
        check_rows("one_way", self.one_way, "source", "target")
        if isinstance(self.sentences, str):
            raise TypeError(f"sentences is the string {self.sentences!r:.40}: give a list.")
        if self.mlm or self.denoising:
            self.corruption = Corruption.of(self.rows.tokenizer)

    def __call__(self, pairs: Sequence[Pair]) -> dict[str, Any]:
        """Build one batch from P pairs: B rows of L tokens.

        B is 2P, plus 2P for each of ``sentences``, ``one_way`` and ``preferences`` that is given,
        in this order.

        Args:
            pairs: Items with ``source``, ``target``, ``group`` and ``seed``.

        Returns:
            Always:

            - ``input_ids``, ``attention_mask``, ``token_type_ids``: (B, L); the last is 1 for
              target tokens.
            - ``groups``: of the pairs' rows, (2P,).
            - ``target_positions``, ``target_labels``: where in the flattened B * L positions a
              target token is predicted, and which, (N,) each.

            Depending on attributes:

            - ``mlm_positions``, ``mlm_labels``, with ``mlm``: the same for masked tokens, (M,)
              each.
            - ``texts``, with ``texts``: those of pairs and then of ``sentences``, a list.
            - ``sentence_groups``, with ``sentences`` and ``twice``: of their rows, (2P,).
            - ``one_way_rows``, with ``one_way``: indices of its rows, whose vectors have no loss,
              (2P,).
            - ``compared_lengths``, with ``preferences``: token counts of chosen and rejected
              paraphrases in turn, (2P,); ``compared_positions`` and ``compared_tokens``, like the
              targets', and ``compared_rows``, each token's row among the 2P, (K,) each.

        Raises:
            ValueError: If pairs have a ``score`` or a ``negative``, which it would ignore.
        """
        for name in pairs[0].keys() & {"score", "negative"}:
            raise ValueError(
                f"The pairs have a {name}, and SimBERT would train on each as a paraphrase alone: "
                "use a SimCseCollator, or drop that column."
            )
        first, second = ([self._cut(pair[side]) for pair in pairs] for side in ("source", "target"))
        texts = [text for pair in zip(first, second, strict=True) for text in pair]
        targets: list[list[int]] = [[] for _ in texts]
        if self.targets:
            partners = [text for pair in zip(second, first, strict=True) for text in pair]
            targets = self.rows.targets(partners, self.max_length)
        if self.mlm or self.denoising:
            sources, words = self.rows.sources_and_words(texts, self.max_length)
            seeds = [pair["seed"] * 2 + side for pair in pairs for side in (0, 1)]
            share = 1.0 if self.mlm else 0.5
            corrupted, chosen = self.corruption.sources(sources, words, seeds, share)
        else:
            corrupted, chosen = self.rows.sources(texts, self.max_length), []
        drawn = self._draw_sentences(pairs)
        unpaired = [self._cut(self.sentences[i]) for i in drawn]
        alone = self.rows.sources(unpaired, self.max_length)
        read, written = self._draw_one_way(pairs)
        prompts, answers = self._draw_preferences(pairs)
        batch: dict[str, Any] = self.rows.pad(
            corrupted + alone + read + prompts, targets + [[] for _ in alone] + written + answers
        )
        if read:
            batch["one_way_rows"] = torch.arange(len(read)) + len(corrupted + alone)
        batch["groups"] = torch.tensor([pair["group"] for pair in pairs for _ in (0, 1)])
        if drawn and self.twice:
            batch["sentence_groups"] = torch.tensor(drawn)
        batch |= target_labels(batch)
        if answers:
            batch |= compared_tokens(batch, answers)
        if self.mlm:
            batch |= mlm_labels(sources, chosen, width=batch["input_ids"].shape[1])
        if self.texts:
            batch["texts"] = texts + unpaired
        return batch

    def lengths(self, pairs: Sequence[Pair]) -> Ints:
        """Count the tokens of the longest row that each of P pairs brings: (P,)."""
        first, second = (
            self.rows.lengths([self._cut(pair[side]) for pair in pairs], sys.maxsize)
            for side in ("source", "target")
        )
        both = [  # as a target, a sentence has no [CLS]
            source.clip(max=self.max_length) + self.targets * (target - 1).clip(max=self.max_length)
            for source, target in ((first, second), (second, first))
        ]
        longest: Ints = np.maximum(both[0], both[1])
        if self.sentences:
            alone = self.row_lengths(self.sentences[i] for i in self._draw_sentences(pairs))
            longest = np.maximum(longest, alone.reshape(-1, 2).max(axis=1))
        for prompts, answers in (self._draw_one_way(pairs), self._draw_preferences(pairs)):
            if prompts:
                whole = [len(one + other) for one, other in zip(prompts, answers, strict=True)]
                longest = np.maximum(longest, np.reshape(whole, (-1, 2)).max(axis=1))
        return longest

    def _draw_one_way(self, pairs: Sequence[Pair]) -> tuple[list[list[int]], list[list[int]]]:
        """Make the rows of two one-way pairs for each pair: their sources, and their targets."""
        n = len(self.one_way)
        drawn = [self.one_way[(2 * pair["seed"] + i) % n] for pair in pairs for i in (0, 1) if n]
        return (
            self.rows.sources([self._cut(source) for source, _ in drawn], self.max_length),
            self.rows.targets([self._cut(target) for _, target in drawn], self.max_length),
        )

    def _draw_preferences(self, pairs: Sequence[Pair]) -> tuple[list[list[int]], list[list[int]]]:
        """Make the rows of a preference for each pair: its sentence twice, and both answers."""
        n = len(self.preferences)
        other = max(1, len(self.sentences))  # else it would always meet the same sentences
        drawn = [self.preferences[pair["seed"] // other % n] for pair in pairs] if n else []
        prompts = [self._cut(prompt) for prompt, _, _ in drawn for _ in (0, 1)]
        answers = [self._cut(answer) for _, *both in drawn for answer in both]
        return (
            self.rows.sources(prompts, self.max_length),
            self.rows.targets(answers, self.max_length),
        )

    def _draw_sentences(self, pairs: Sequence[Pair]) -> list[int]:
        """Choose two sentences per pair: the same one, or lines 1 and 2, 3 and 4, ...; or none."""
        n = len(self.sentences)
        if n and self.twice:
            return [pair["seed"] % n for pair in pairs for _ in (0, 1)]
        if n < 2:  # a single one has no neighbour but itself
            return [0, 0] * len(pairs) if n else []
        return [2 * (pair["seed"] % (n // 2)) + side for pair in pairs for side in (0, 1)]


@dataclass
class SimCseCollator(TextCollator):
    """Pairs -> rows of single sentences, partners in adjacent rows: [A, A', B, B', ...].

    The hard negatives follow, if pairs have one, and then, with ``mlm``, a masked copy of every
    source: thus the contrastive loss sees clean sentences, and one forward pass serves both.

    Attributes:
        rows: A ``RowBuilder`` for ``mlm``.
        views: Make the rows of sentences; otherwise only the masked copies.
        mlm: Add the masked copies.
        augmentation: Applied to every target; None leaves targets unchanged.

    Raises:
        ValueError: If words are to be masked and the tokenizer has no mask token.

    Example:
        >>> from transformers import AutoTokenizer
        >>> from simbert_hf import DEFAULT_MODEL
        >>> rows = RowBuilder(AutoTokenizer.from_pretrained(DEFAULT_MODEL))  # as ``model.rows``
        >>> pair = {"source": "it rains", "target": "it is wet", "negative": "it is dry"}
        >>> batch = SimCseCollator(rows)([pair | {"group": 0, "seed": 0}])
        >>> [rows.tokenizer.decode(row, skip_special_tokens=True) for row in batch["input_ids"]]
        ['it rains', 'it is wet', 'it is dry']
        >>> batch["groups"].tolist(), batch["negative_rows"].tolist()
        ([0, 0], [2])
    """

    views: bool = True
    mlm: bool = False
    augmentation: Augmentation | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mlm:
            self.corruption = Corruption.of(self.rows.tokenizer)

    def __call__(self, pairs: Sequence[Pair]) -> dict[str, Tensor]:
        """Build one batch from P pairs.

        Returns:
            ``input_ids``, ``attention_mask``, ``token_type_ids``: (B, L); with ``views``,
            ``groups``, of the 2P rows of the pairs: (2P,); ``negative_rows``, the rows of hard
            negatives, ``target_groups``, ``negative_groups`` and ``scores``, only if pairs have
            them: (P,); with ``mlm``, ``mlm_positions`` in the flattened B * L positions and
            ``mlm_labels``: (M,).
        """
        clean = self.rows.sources(self._views(pairs), self.max_length) if self.views else []
        if not self.mlm:
            return self._labelled(self.rows.pad(clean), len(clean), pairs)
        assert isinstance(self.rows, RowBuilder)
        sources = [self._cut(pair["source"]) for pair in pairs]
        originals, words = self.rows.sources_and_words(sources, self.max_length)
        copies, chosen = self.corruption.sources(originals, words, [p["seed"] for p in pairs])
        batch = self._labelled(self.rows.pad(clean + copies), len(clean), pairs)
        width = batch["input_ids"].shape[1]
        batch |= mlm_labels(originals, chosen, width)
        batch["mlm_positions"] += len(clean) * width
        return batch

    def lengths(self, pairs: Sequence[Pair]) -> Ints:
        """Count the tokens of the longest sentence of each of P pairs, unaugmented: (P,)."""
        sides = [[pair[name] for pair in pairs] for name in ("source", "target")]
        if sides[0] == sides[1]:
            del sides[1]
        if "negative" in pairs[0]:
            sides.append([pair["negative"] for pair in pairs])
        return np.max([self.row_lengths(side) for side in sides], axis=0)

    def _views(self, pairs: Sequence[Pair]) -> list[str]:
        """List sources and targets alternately, and then the hard negatives."""
        texts = [text for pair in pairs for text in (self._cut(pair["source"]), self._target(pair))]
        return texts + [self._cut(pair["negative"]) for pair in pairs if "negative" in pair]

    def _labelled(
        self, batch: dict[str, Tensor], n_clean: int, pairs: Sequence[Pair]
    ) -> dict[str, Tensor]:
        """Label the rows before the masked copies."""
        if self.views:
            batch["groups"] = torch.tensor([pair["group"] for pair in pairs for _ in (0, 1)])
        if n_clean > 2 * len(pairs):
            batch["negative_rows"] = torch.arange(2 * len(pairs), n_clean)
        for name in ("target_group", "negative_group"):
            if name in pairs[0]:
                batch[f"{name}s"] = torch.tensor([pair[name] for pair in pairs])
        if "score" in pairs[0]:
            batch["scores"] = torch.tensor([pair["score"] for pair in pairs])
        return batch

    def _target(self, pair: Pair) -> str:
        text = self._cut(pair["target"])
        if self.augmentation is None:
            return text
        return self.augmentation(text, random.Random(pair["seed"]))


def mlm_labels(
    clean: Sequence[list[int]], chosen: Sequence[list[int]], width: int
) -> dict[str, Tensor]:
    """Find where masked tokens are predicted, and which they were.

    Args:
        clean: Each row's ids before the corruption.
        chosen: The chosen positions of each row.
        width: L, the length of the padded rows.

    Returns:
        ``mlm_positions`` into the flattened B * L positions, and ``mlm_labels``: both (M,).

    Example:
        >>> mlm_labels([[101, 7, 8, 102], [101, 9, 102]], [[2], [1]], width=4)
        {'mlm_positions': tensor([2, 5]), 'mlm_labels': tensor([8, 9])}
    """
    at = [(i, column) for i, row in enumerate(chosen) for column in row]
    return {
        "mlm_positions": torch.tensor([i * width + column for i, column in at], dtype=torch.long),
        "mlm_labels": torch.tensor([clean[i][column] for i, column in at], dtype=torch.long),
    }


def compared_tokens(batch: dict[str, Tensor], answers: Sequence[list[int]]) -> dict[str, Tensor]:
    """Separate the tokens of preferences, which are in the last rows, from other targets.

    Returns:
        The four ``compared_...`` of ``PairCollator``, and the remaining ``target_...``.
    """
    lengths = torch.tensor([len(answer) for answer in answers])
    count = int(lengths.sum())
    positions, labels = batch["target_positions"], batch["target_labels"]
    return {
        "target_positions": positions[:-count],
        "target_labels": labels[:-count],
        "compared_positions": positions[-count:],
        "compared_tokens": labels[-count:],
        "compared_rows": torch.arange(len(answers)).repeat_interleave(lengths),
        "compared_lengths": lengths,
    }
