"""A trigram model of tokens, which tells fluent sentences from others.

A model that learnt to write from few sentences ranks slips of grammar high ("where is i now").
Counting three tokens in a row of plain sentences takes a minute, and knows better.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from simbert_hf.modeling.reading import optional_file
from simbert_hf.rows import cuts_known
from simbert_hf.utils.arrays import Floats, Ints

if TYPE_CHECKING:
    from simbert_hf.modeling.simbert import SimBert

Row = Sequence[int] | Ints
FILE = "ngrams/model.safetensors"  # in a folder: some servers load all weights beside a config
NAMES = ("unigrams", "bigrams", "bigram_log_probs", "trigrams", "trigram_log_probs")
DISCOUNT = 0.75
BLOCK = 10_000  # sentences that are tokenized at once
LEAST = (2, 4)  # contexts of a bigram that is kept, and occurrences of a trigram


class NGramModel:
    """A trigram model with interpolated Kneser-Ney smoothing and one discount.

    Chen & Goodman 1999 (https://doi.org/10.1006/csla.1999.0128), section 4.1.6. Rare n-grams are
    left out, and their probability goes to the shorter ones, so that all still sum to 1.

    Args:
        unigrams: Natural logarithms of each token's probability. Shape: (V,).
        bigrams: Two tokens, sorted. Shape: (M, 2).
        bigram_log_probs: Of the second behind the first. Shape: (M,).
        trigrams: Three tokens, sorted. Shape: (N, 3).
        trigram_log_probs: Of the third behind the others. Shape: (N,).

    Example:
        >>> rows = [[0, 2, 3, 4, 1], [0, 2, 3, 5, 1]]  # [CLS] is 0, [SEP] is 1
        >>> model = NGramModel.fit(rows, vocab_size=6, least=(1, 1))
        >>> model.mean_log_probs([[0, 2, 3, 4, 1], [0, 4, 3, 2, 1]])
        array([-0.54..., -2.17...])
    """

    def __init__(
        self,
        unigrams: Floats,
        bigrams: Ints,
        bigram_log_probs: Floats,
        trigrams: Ints,
        trigram_log_probs: Floats,
    ) -> None:
        self.tables: tuple[NDArray[Any], ...]
        self.tables = (unigrams, bigrams, bigram_log_probs, trigrams, trigram_log_probs)
        for grams, log_probs in (self.tables[1:3], self.tables[3:]):
            if len(grams) != len(log_probs):
                raise ValueError(f"{len(grams)} n-grams, and {len(log_probs)} probabilities")
        self.size = len(unigrams)
        self.unigrams = unigrams.astype(np.float64)
        first, second = bigrams.astype(np.int64).T
        self.bigrams = Table(first * self.size + second, bigram_log_probs)
        self.words = Table(*self._left_over(first, bigram_log_probs, self.unigrams[second]))
        first, second, third = trigrams.astype(np.int64).T
        pairs = first * self.size + second
        self.trigrams = Table(pairs * self.size + third, trigram_log_probs)
        shorter = self._behind_one(second, third)
        self.pairs = Table(*self._left_over(pairs, trigram_log_probs, shorter))

    @staticmethod
    def _left_over(contexts: Ints, log_probs: Floats, shorter: Floats) -> tuple[Ints, Floats]:
        """Tell, for each context, by what the shorter model's probabilities are multiplied."""
        known, first = np.unique(contexts, return_index=True)
        if not len(known):
            return known, np.zeros(0)
        free, held = (
            1 - np.add.reduceat(np.exp(part.astype(np.float64)), first)
            for part in (log_probs, shorter)
        )
        return known, np.log(np.maximum(free, 1e-6) / np.maximum(held, 1e-6))

    def _behind_one(self, first: Ints, second: Ints) -> Floats:
        backed_off = self.words(first, 0.0) + self.unigrams[second]
        return self.bigrams(first * self.size + second, backed_off)

    def log_probs(self, first: Ints, second: Ints, third: Ints) -> Floats:
        """Natural logarithm of the third token's probability behind two; arrays of one shape."""
        pairs = first * self.size + second
        backed_off = self.pairs(pairs, 0.0) + self._behind_one(second, third)
        return self.trigrams(pairs * self.size + third, backed_off)

    def mean_log_probs(self, rows: Sequence[Row]) -> Floats:
        """Score sentences.

        Args:
            rows: R rows of two tokens or more; the first, [CLS], is a context alone.

        Returns:
            The mean log-probability of a token, [SEP] included where it is there, in nats. (R,).
        """
        if not rows:
            return np.zeros(0)
        first, second, third, counts = spans(rows)
        means: Floats = np.add.reduceat(
            self.log_probs(first, second, third), np.cumsum(counts) - counts
        )
        return means / counts

    @classmethod
    def fit(cls, rows: Iterable[Row], vocab_size: int, least: tuple[int, int] = LEAST) -> Self:
        """Count n-grams.

        Args:
            rows: ``[CLS] text [SEP]`` of each sentence.
            vocab_size: Number of tokens.
            least: In how many contexts a bigram must be, and how often a trigram, to be kept.

        Raises:
            ValueError: If there are no rows.
        """
        rows = list(rows)
        if not rows:
            raise ValueError("There are no sentences to count n-grams of.")
        first, second, third, _ = spans(rows)
        pairs = first * vocab_size + second
        grams, counts = np.unique(pairs * vocab_size + third, return_counts=True)
        endings, contexts = np.unique(grams % vocab_size**2, return_counts=True)
        # Of a shorter n-gram, what counts is in how many contexts it stands (Kneser & Ney 1995).
        unigrams = np.bincount(endings % vocab_size, minlength=vocab_size) + 1 / vocab_size
        unigrams = unigrams / unigrams.sum()
        behind_one = smoothed(endings // vocab_size, contexts, unigrams[endings % vocab_size])
        shorter = behind_one[np.searchsorted(endings, grams % vocab_size**2)]
        behind_two = smoothed(grams // vocab_size, counts, shorter)
        bigrams, trigrams = contexts >= least[0], counts >= least[1]
        return cls(
            np.log(unigrams),
            digits(endings[bigrams], vocab_size, 2),
            np.log(behind_one[bigrams]),
            digits(grams[trigrams], vocab_size, 3),
            np.log(behind_two[trigrams]),
        )


class Table:
    """Values by sorted keys; called with keys, it gives the others a default."""

    def __init__(self, keys: Ints, values: Floats) -> None:
        self.keys = np.append(keys, np.iinfo(np.int64).max)  # no key is beyond the end
        self.values = np.append(values.astype(np.float64), 0.0)

    def __call__(self, keys: Ints, default: Floats | float) -> Floats:
        """Look keys up."""
        at = np.searchsorted(self.keys, keys)
        found: Floats = np.where(self.keys[at] == keys, self.values[at], default)
        return found


def spans(rows: Sequence[Row]) -> tuple[Ints, Ints, Ints, Ints]:
    """Cut rows into three tokens each, the first one doubled; count those of each row.

    Example:
        >>> [column.tolist() for column in spans([[0, 5, 6, 1], [0, 7, 1]])]
        [[0, 0, 5, 0, 0], [0, 5, 6, 0, 7], [5, 6, 1, 7, 1], [3, 2]]
    """
    counts = np.array([len(row) - 1 for row in rows], dtype=np.int64)
    tokens = np.concatenate([np.array([row[0], *row], dtype=np.int64) for row in rows])
    ends = np.ones(len(tokens), dtype=bool)
    starts = np.cumsum(counts + 2) - counts - 2
    ends[starts] = ends[starts + 1] = False
    third = np.flatnonzero(ends)
    return tokens[third - 2], tokens[third - 1], tokens[third], counts


def smoothed(contexts: Ints, counts: Ints, shorter: Floats) -> Floats:
    """Discount the counts behind each context, sorted; what is taken off goes to the shorter."""
    _, first, kinds = np.unique(contexts, return_index=True, return_counts=True)
    totals = np.repeat(np.add.reduceat(counts, first), kinds)
    freed = DISCOUNT * np.repeat(kinds, kinds)
    found: Floats = (counts - DISCOUNT + freed * shorter) / totals
    return found


def digits(numbers: Ints, base: int, count: int) -> Ints:
    """Write numbers in a base.

    Example:
        >>> digits(np.array([203, 45]), 10, 3).tolist()
        [[2, 0, 3], [0, 4, 5]]
    """
    powers = base ** np.arange(count - 1, -1, -1)
    return numbers[:, None] // powers % base


def fit_ngrams(model: SimBert, sentences: Sequence[str]) -> None:
    """Give a model n-grams of plain sentences; each is counted once.

    Raises:
        ValueError: If there are none.
    """
    texts, rows = list(dict.fromkeys(sentences)), list[Ints]()
    with cuts_known():
        for first in range(0, len(texts), BLOCK):
            block = model.rows.sources(texts[first : first + BLOCK], model.max_length)
            rows += (np.array(row, dtype=np.int32) for row in block)
    model.ngrams = NGramModel.fit(rows, model.config.vocab_size)


def save_ngrams(ngrams: NGramModel | None, directory: str | os.PathLike[str]) -> None:
    """Write a model's n-grams into its directory, in few bits, or delete a former model's."""
    file = Path(directory, FILE)
    if ngrams is None:
        file.unlink(missing_ok=True)
        with suppress(OSError):  # of a folder that is not there, or holds something else
            file.parent.rmdir()
        return
    file.parent.mkdir(exist_ok=True)
    whole = np.uint16 if ngrams.size <= 2**16 else np.int32
    kinds = (np.float16, whole, np.float16, whole, np.float16)
    tables = zip(NAMES, ngrams.tables, kinds, strict=True)
    save_file({name: table.astype(kind) for name, table, kind in tables}, file)


def load_ngrams(
    name_or_path: str | os.PathLike[str], hub: dict[str, Any], vocab_size: int
) -> NGramModel | None:
    """Read a checkpoint's n-grams, if it has any.

    Args:
        name_or_path: Directory or ``org/name``.
        hub: Says where on the Hub; as transformers.
        vocab_size: Number of tokens that the model knows.

    Raises:
        ValueError: If they are damaged, or of a model with another vocabulary.
    """
    file = optional_file(name_or_path, FILE, hub)
    if file is None:
        return None
    try:
        arrays = load_file(file)
        ngrams = NGramModel(*(arrays[name] for name in NAMES))
    except (KeyError, IndexError, TypeError, ValueError, SafetensorError) as error:
        raise ValueError(f"{file} is damaged ({error}): copy it again, or delete it.") from None
    if ngrams.size != vocab_size:
        raise ValueError(
            f"{file} has n-grams of {ngrams.size} tokens, and the model knows {vocab_size}: delete "
            f"{file.parent}, and fit new ones with scripts/fit_ngrams.py."
        )
    return ngrams
