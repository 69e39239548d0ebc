"""Find sentences that are near each other by their words alone (BM25)."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.sparse import csc_array, csr_array

from simbert_hf.utils.arrays import Ints
from simbert_hf.utils.extras import require
from simbert_hf.utils.text import HAN, INDIC, KANA, UNSPACED

BLOCK = 1024  # sentences that search at a time
# Words in more sentences than this, and in more than a hundredth of them, are not searched for.
COMMON = 2000
_ALONE = HAN + KANA + UNSPACED  # letters of scripts without blanks
WORDS = rf"(?u)[{_ALONE}]|[{INDIC}]+|[^\W{_ALONE}{INDIC}]+"  # these, and words of other scripts


def nearest_by_words(texts: Sequence[str], k: int) -> Iterator[Ints]:
    """Find each sentence's k nearest by BM25 (Lucene's form, k1 = 1.5, b = 0.75), itself included.

    bm25s weighs the words; a product of sparse matrices sums the weights, which is exact. Words in
    very many sentences weigh little and cost most, so they are left out of large sets.

    Args:
        texts: N sentences.
        k: Number of nearest sentences.

    Yields:
        For the next block of sentences, the numbers of the nearest, best first, -1 where no other
        sentence has a word in common. Shape: (rows, k).

    Raises:
        ImportError: If bm25s is not installed.

    Example:
        >>> texts = ["open the door", "shut the door", "go home"]
        >>> next(nearest_by_words(texts, 2)).tolist()
        [[0, 1], [1, 0], [2, -1]]
    """
    bm25s = require("bm25s", "index")
    plain = [unicodedata.normalize("NFKC", text) for text in texts]
    tokens = bm25s.tokenize(plain, token_pattern=WORDS, stopwords=[], show_progress=False)
    if not any(tokens.ids):  # no text has a word, which bm25s does not accept
        yield np.full((len(texts), k), -1, dtype=np.int64)
        return
    index = bm25s.BM25()
    index.index(tokens, show_progress=False)
    size = (len(texts), len(index.scores["indptr"]) - 1)
    parts = (index.scores[name] for name in ("data", "indices", "indptr"))
    weights = csc_array(tuple(parts), shape=size)
    frequency = np.diff(weights.indptr)
    rare = (frequency <= max(COMMON, len(texts) // 100)).astype(np.float32)
    asked = csr_array(_counts(tokens.ids, size) * rare)  # older SciPy returns COO
    by_word = weights.T.tocsr()
    for start in range(0, len(texts), BLOCK):
        yield _best(csr_array(asked[start : start + BLOCK] @ by_word), k)


def _counts(ids: Sequence[Sequence[int]], size: tuple[int, int]) -> csr_array:
    """Count the words of each sentence, one entry for each occurrence. Shape: (N, words)."""
    ends = np.cumsum([0, *map(len, ids)])
    flat = np.fromiter((i for row in ids for i in row), dtype=np.int32, count=ends[-1])
    return csr_array((np.ones(len(flat), dtype=np.float32), flat, ends), shape=size)


def _best(scores: csr_array, k: int) -> Ints:
    numbers = np.full((scores.shape[0], k), -1, dtype=np.int64)
    for row in range(len(numbers)):
        part = slice(scores.indptr[row], scores.indptr[row + 1])
        found, where = scores.data[part], scores.indices[part]
        if len(found) > 4 * k:
            top = found >= np.partition(found, -k)[-k]
            found, where = found[top], where[top]
        order = np.lexsort((where, -found))[:k]  # equal scores: the first sentence first
        numbers[row, : len(order)] = where[order]
    return numbers
