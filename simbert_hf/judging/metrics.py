"""Usual metrics of paraphrases: how similar, how varied and how likely they are.

BLEU-like scores run from 0 to 100, shares from 0 to 1. Texts are compared in lower case, and split
into tokens by sacrebleu's ``13a``, or by its ``zh``, which takes each Chinese character as a token.
Chinese texts are compared in NFKC, as some tokenizers write them: ？ and ? are the same mark.
Needs the extra ``eval`` (sacrebleu).
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

from simbert_hf.generation.scoring import score_pairs
from simbert_hf.modeling.simbert import SimBert
from simbert_hf.utils.extras import require
from simbert_hf.utils.text import HAN, HAN_CHAR, normalize_text

sacrebleu = require("sacrebleu", "eval")

TOKENIZERS = {name: sacrebleu.BLEU(tokenize=name).tokenizer for name in ("13a", "zh")}
WORDS = re.compile(rf"[^\W\d_{HAN}]+|[{HAN}]")
TWICE = re.compile(rf"(?<!\S)([^\W_{HAN}]+)\s+(?=\1(?![^\W_{HAN}]))")
IBLEU_ALPHA = 0.8


def tokenizer_for(texts: Sequence[str]) -> str:
    """Name sacrebleu's tokenizer: ``zh`` if any text is in Chinese, else ``13a``.

    Example:
        >>> tokenizer_for(["How are you？"]), tokenizer_for(["How are you?", "你好吗？"])
        ('13a', 'zh')
    """
    return "zh" if any(map(HAN_CHAR.search, texts)) else "13a"


def tokens_of(text: str, tokenizer: str) -> list[str]:
    """Split a text into lower-case tokens.

    Example:
        >>> tokens_of("I'm fine.", "13a"), tokens_of("我很好。", "zh")
        (["i'm", 'fine', '.'], ['我', '很', '好', '。'])
    """
    return list(TOKENIZERS[tokenizer](unified(text).lower()).split())


def unified(text: str) -> str:
    """Normalize a Chinese text to NFKC.

    Example:
        >>> unified("好吗？"), unified("OK？")
        ('好吗?', 'OK？')
    """
    return unicodedata.normalize("NFKC", text) if HAN_CHAR.search(text) else text


def check_lists(rows: Sequence[Sequence[str]]) -> None:
    """Raise a TypeError for a string in place of texts, as its letters would count as texts."""
    if text := next((row for row in rows if isinstance(row, str)), None):
        raise TypeError(f"{text!r:.60} is one text: pass a list of texts for each source.")


def copy_rate(sources: Sequence[str], candidates: Sequence[Sequence[str]]) -> float | None:
    """Compute the share of candidates that equal their source but for case, spaces, end marks.

    Example:
        >>> copy_rate(["Is it late?"], [["is it late", "is it late now?"]])
        0.5
    """
    check_lists(candidates)
    copies = [
        normalize_text(candidate) == normalize_text(source)
        for source, row in zip(sources, candidates, strict=True)
        for candidate in row
    ]
    return fmean(copies) if copies else None


def repeat_rate(sources: Sequence[str], candidates: Sequence[Sequence[str]]) -> float | None:
    """Compute the share of candidates with a word more often than in their source, and than once.

    Words are those of four letters or more, and any two adjacent Chinese characters; other words,
    and numbers, count only if repeated immediately ("the the", not "bye-bye"). None without
    candidates.

    Example:
        >>> repeat_rate(["When will I get my card?"], [["when will my card get my card", "my my"]])
        1.0
        >>> repeat_rate(["微信好用，微信快"], [["微信快，微信好", "微信和支付宝和微信和支付宝"]])
        0.5
    """
    check_lists(candidates)
    rates = [
        any(n > max(1, known[word]) for word, n in found.items())
        for source, row in zip(sources, candidates, strict=True)
        for known in [repeatable(source)]
        for found in map(repeatable, row)
    ]
    return fmean(rates) if rates else None


def repeatable(text: str) -> Counter[str]:
    """Count what a text should not repeat too often, an immediate repetition as two.

    Example:
        >>> sorted(repeatable("Very very good, 你好吗").items())
        [('good', 1), ('very', 2), ('very very', 2), ('你好', 1), ('好吗', 1)]
    """
    words = WORDS.findall(text.lower())
    twice = [f"{word} {word}" for word in TWICE.findall(text.lower())]
    chinese = [a + b for a, b in pairwise(words) if HAN_CHAR.match(a) and HAN_CHAR.match(b)]
    return Counter([word for word in words if len(word) > 3] + 2 * twice + chinese)


def distinct_n(texts: Sequence[str], n: int, tokenizer: str = "13a") -> float | None:
    """Divide the number of distinct n-grams in all texts by that of tokens (Li et al. 2016).

    It falls with the amount of text: compare it only between equally many texts.

    Example:
        >>> distinct_n(["a b a", "a b"], 1), distinct_n(["a b a", "a b"], 2)
        (0.4, 0.4)
    """
    rows = [tokens_of(text, tokenizer) for text in texts]
    total = sum(map(len, rows))
    grams = {tuple(row[i : i + n]) for row in rows for i in range(len(row) - n + 1)}
    return len(grams) / total if total else None


def self_bleu(candidates: Sequence[Sequence[str]], tokenizer: str = "13a") -> float | None:
    """Measure how alike a source's candidates are (Zhu et al. 2018, Texygen); less is more varied.

    Each candidate's sentence BLEU with the others as references, averaged over the candidates of a
    source, then over the sources.

    Returns:
        Self-BLEU; None if no source has two candidates.

    Example:
        >>> self_bleu([["it is so late", "it is so late"], ["only one"]])
        100.0
        >>> self_bleu([["it is late"], []]) is None
        True
    """
    check_lists(candidates)
    metric = sacrebleu.BLEU(lowercase=True, force=True, tokenize=tokenizer, effective_order=True)
    means = [
        fmean(
            metric.sentence_score(text, [*row[:i], *row[i + 1 :]]).score
            for i, text in enumerate(row)
        )
        for row in ([unified(text) for text in row] for row in candidates)
        if len(row) > 1
    ]
    return fmean(means) if means else None


def bleu(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], tokenizer: str = "13a"
) -> float:
    """Compute the corpus BLEU of one hypothesis per source (sacrebleu, Post 2018).

    Args:
        hypotheses: One for each source; empty if a model gave none.
        references: One or more for each source.
        tokenizer: ``13a`` or ``zh``.

    Example:
        >>> bleu(["It is so late."], [["it is so late.", "How late it is!"]])
        100.0
    """
    metric = sacrebleu.BLEU(lowercase=True, force=True, tokenize=tokenizer)
    return float(metric.corpus_score(list(map(unified, hypotheses)), streams(references)).score)


def signature(references: Sequence[Sequence[str]], tokenizer: str) -> str:
    """Return sacrebleu's signature of :func:`bleu` with these references, to reproduce a score.

    Example:
        >>> signature([["a", "b"], ["c"]], "zh")
        'nrefs:var|case:lc|eff:no|tok:zh|smooth:exp|version:...'
    """
    metric = sacrebleu.BLEU(lowercase=True, force=True, tokenize=tokenizer)
    metric.corpus_score([row[0] for row in references], streams(references))
    return str(metric.get_signature())


def chrf(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Compute the corpus chrF of one hypothesis per source (Popovic 2015), which needs no tokens.

    Example:
        >>> chrf(["It is late."], [["it is late."]])
        100.0
    """
    metric = sacrebleu.CHRF(lowercase=True)
    return float(metric.corpus_score(list(map(unified, hypotheses)), streams(references)).score)


def ibleu(to_references: float, to_source: float) -> float:
    """Reward BLEU with the references and penalize BLEU with the source (Sun and Zhou 2012).

    Example:
        >>> ibleu(to_references=30.0, to_source=60.0)
        12.0
    """
    return IBLEU_ALPHA * to_references - (1 - IBLEU_ALPHA) * to_source


def streams(references: Sequence[Sequence[str]]) -> list[list[Any]]:
    """Convert references of each source to sacrebleu's streams, None where there are no more.

    Example:
        >>> streams([["a", "b"], ["c"]])
        [['a', 'c'], ['b', None]]
    """
    check_lists(references)
    depth = max(map(len, references))
    return [[unified(row[i]) if i < len(row) else None for row in references] for i in range(depth)]


def reference_perplexity(
    model: SimBert, sources: Sequence[str], references: Sequence[Sequence[str]]
) -> float:
    """Compute the perplexity of the references' tokens, [SEP] included, given the source.

    Models with different tokenizers cannot be compared by it.

    Args:
        model: A model with an LM head.
        sources: The sentences that it reads.
        references: One or more for each source.
    """
    pairs = [(a, b) for a, row in zip(sources, references, strict=True) for b in row]
    reading = score_pairs(model, pairs)
    return math.exp(-float(reading.log_probs.sum() / reading.tokens.sum()))
