"""Apostrophes and quotation marks, curly in the text and straight for the model.

Phones and word processors write "it’s" where most text that models learnt from has "it's". To a
tokenizer these are other words, and one for the other would pass for a paraphrase.
"""

from __future__ import annotations

import re

from simbert_hf.utils.text import CJK

CHINESE = re.compile(f"[{CJK}]")
BETWEEN = re.compile(r"(?<=[^\W\d_])[’\u02bc\u00b4`](?=[^\W\d_])")
OPENED = re.compile(r'(?<![^\s([{\u2014\u2013-])"')  # at a word's beginning


def straighten(text: str) -> str:
    r"""Write a text's apostrophes and pairs of quotation marks straight, unless it has Chinese.

    Example:
        >>> straighten("I’m “out” of the boys’ room"), straighten("‘out’ isn’t «in»")
        ('I\'m "out" of the boys\' room', "‘out’ isn't «in»")
    """
    if CHINESE.search(text):
        return text
    text = BETWEEN.sub("'", text)
    if "‘" not in text:  # else it may be a quotation mark
        text = text.replace("’", "'")
    return text.replace("“", '"').replace("”", '"') if has_pairs(text) else text


def has_pairs(text: str) -> bool:
    """Whether all double quotation marks are English ones, in pairs."""
    return 0 < text.count("“") == text.count("”") and not any(mark in text for mark in '"„»')


def curl(text: str, source: str) -> str:
    r"""Write the marks that :func:`straighten` knows as a source does, which has no straight ones.

    Example:
        >>> curl("I'm \"out\", isn't it?", "We’re “in”."), curl("I'm out", "we're in, aren’t we")
        ('I’m “out”, isn’t it?', "I'm out")
    """
    if CHINESE.search(source):
        return text
    marks = {*BETWEEN.findall(source)} or {*"’"}.intersection(source)
    if "'" not in source and len(marks) == 1:
        text = text.replace("'", marks.pop())
    return OPENED.sub("“", text).replace('"', "”") if has_pairs(source) else text
