"""Choose the best of many texts, none much like an earlier one (maximal marginal relevance)."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from simbert_hf.utils.arrays import Vectors
from simbert_hf.utils.text import is_mark, normalize_text

# Short and long forms of English words; what one short form stands for has one form.
FORMS = [
    (re.compile(pattern), form)
    for pattern, form in {
        r"\bwon't\b": "will not",
        r"\b(?:cannot|can't)\b": "can not",
        r"n't\b": " not",
        r"'ll\b": " will",
        r"'re\b": " are",
        r"'m\b": " am",
        r"'ve\b": " have",
        r"'s\b|\bhas\b": " is",
        r"'d\b|\bhad\b": " would",
    }.items()
]
OTHER = re.compile(r"[^\w\s#%]|_")


def wording(text: str) -> str:
    """Return a form that is equal for texts in the same words.

    Punctuation and English contractions are ignored, as is what
    :func:`simbert_hf.utils.text.normalize_text` ignores; "it's" may be "it is" or "it has", so
    these are equal, too.

    Example:
        >>> wording("It's late, isn't it?") == wording("it is late - is not it")
        True
    """
    plain = normalize_text(text).replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    for pattern, form in FORMS:
        plain = pattern.sub(form, plain)
    return normalize_text(OTHER.sub(lambda char: " " if is_mark(char[0]) else char[0], plain))


def choose_diverse(
    texts: Sequence[str], scores: Sequence[float], k: int, diversity: float
) -> list[int]:
    """Choose texts one by one, each the best by score minus its similarity to an earlier one.

    (Maximal marginal relevance, Carbonell & Goldstein 1998,
    https://doi.org/10.1145/290941.291025.) The similarity of two texts is the Jaccard index of
    their pairs of neighbouring characters, in [0, 1].

    Args:
        texts: Shape: (N,).
        scores: The higher, the better. Shape: (N,).
        k: How many to choose; all if there are fewer.
        diversity: What a text equal to an earlier one loses of its score.

    Returns:
        Indices, in the order chosen.

    Example:
        >>> texts = ["where is my card?", "where is the card?", "how do i find my card?"]
        >>> choose_diverse(texts, [0.9, 0.8, 0.7], 2, 0.0)
        [0, 1]
        >>> choose_diverse(texts, [0.9, 0.8, 0.7], 2, 0.5)
        [0, 2]
    """
    pairs = character_pairs(texts)
    sizes = pairs.sum(axis=1)
    left, alike = np.array(scores, dtype=float), np.zeros(len(texts))
    chosen: list[int] = []
    for _ in range(min(k, len(texts))):
        best = int(np.argmax(left - diversity * alike))
        chosen.append(best)
        left[best] = -np.inf
        shared = pairs @ pairs[best]
        alike = np.maximum(alike, shared / (sizes + sizes[best] - shared))
    return chosen


def character_pairs(texts: Sequence[str]) -> Vectors:
    """Mark which pairs of neighbouring characters each text has, ends included: (N, P) of 0 and 1.

    Case and marks at the ends are ignored; see :func:`simbert_hf.utils.text.normalize_text`.
    """
    spaced = [f" {normalize_text(text)} " for text in texts]
    found = [{text[i : i + 2] for i in range(len(text) - 1)} for text in spaced]
    column = {pair: i for i, pair in enumerate(set[str]().union(*found))}
    marked = np.zeros((len(texts), len(column)), dtype=np.float32)
    for row, pairs in zip(marked, found, strict=True):
        row[[column[pair] for pair in pairs]] = 1
    return marked
