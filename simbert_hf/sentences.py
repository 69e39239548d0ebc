"""A text -> its sentences, and sentences -> a text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sentencex import segment  # type: ignore[import-untyped]

from simbert_hf.text import HAN, SPACE_BY_CJK, is_mark

WORD = re.compile(rf"[{HAN}]|\w+")
LEAST = 3  # words of a sentence that stands alone; "Thanks." says too little to be paraphrased


def split_sentences(text: str) -> list[str]:
    """Cut a text behind the sentences that it consists of; very short ones join the next.

    Args:
        text: English, or any language that ends its sentences alike, as Chinese does.

    Returns:
        At least one sentence, without the blanks between them.

    Example:
        >>> split_sentences("Hi! Does Mr. Smith work here? i lost my card. thanks")
        ['Hi! Does Mr. Smith work here?', 'i lost my card. thanks']
        >>> split_sentences("我的卡丢了。可以补办吗？")
        ['我的卡丢了。', '可以补办吗？']
    """
    sentences: list[str] = []
    short = ""
    for part in segment("en", text):
        short = join_sentences([short, part.strip()])
        if len(WORD.findall(short)) >= LEAST:
            sentences.append(short)
            short = ""
    if short or not sentences:
        sentences[-1:] = [join_sentences([*sentences[-1:], short])]
    return sentences


def join_sentences(sentences: Sequence[str]) -> str:
    """Put sentences together, with a blank between those that want one.

    Example:
        >>> join_sentences(["i lost my card.", "我的卡丢了。", "可以补办吗？"])
        'i lost my card.我的卡丢了。可以补办吗？'
    """
    text = ""
    for sentence in sentences:
        close = not text or not sentence or SPACE_BY_CJK.search(f"{text[-1]} {sentence[0]}")
        text += sentence if close else f" {sentence}"
    return text


def end_as(sentence: str, source: str) -> str:
    """End a sentence with the mark that another ends with, if it has none.

    Example:
        >>> end_as("my account is locked", "I cannot log in."), end_as("what now?", "What now.")
        ('my account is locked.', 'what now?')
    """
    unended = not is_mark(sentence[-1:]) and is_mark(source[-1:])
    return sentence + source[-1] if unended else sentence
