"""Placeholders: what a model cannot write is one letter in the text that it paraphrases.

These are words with signs or in a script that the tokenizer does not know, template variables,
code, command options, links, tags and entities, emoticons, long addresses and, if the model does
not copy them, formulas, paths through menus and long figures. Each has its own letter, so that it
stays intact and comes where the paraphrase has that (as in Luong et al. 2015, arXiv:1410.8206).
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

from simbert_hf.generation.facts import ADDRESS, HANDLE, is_chinese, is_english
from simbert_hf.generation.sentences import EMOTICON
from simbert_hf.generation.spelling import CLOSING, OPENING, OWNED
from simbert_hf.rows import SPELT
from simbert_hf.utils.text import CJK, CJK_CHAR, HAN_CHAR, KANA, is_wordpiece, words_of

# Caseless letters of rare scripts, phonetic ones first, up to Korean, whose letters are composed.
FIRST, BEHIND = "\u0250", "\u1100"
LONG = 5  # tokens
_ATTRIBUTES = r"(?: +[\w:-]+=(?:\"[^\"<>]*\"|'[^'<>]*'|[^\s<>\"']+))*"
_OPEN = rf"<[a-zA-Z][a-zA-Z\d]*{_ATTRIBUTES} ?/?>"
_CLOSE = r"</[a-zA-Z][a-zA-Z\d]*>"
_TAGGED = rf"(?!<(?:br|hr|img|input)\b){_OPEN}[^<>\n]{{1,40}}{_CLOSE}"
_WORDS = (
    r"(?:I|no|so|as|is|in|on|at|to|an|my|we|he|me|or|if|by|do|up|us|am|be|go|of)\b"  # behind a dash
)
_ITEM = rf"[^\W{CJK}](?:(?:[^\W{CJK}]|[.,'’-])*[^\W{CJK}])?%?"
_SIGN = r"(?:[+=<>→×*^]|(?<=\d )x(?= \d))"
# "2x + 1 = 7", "File > Save", "30 x 20 cm"
_CHAIN = rf"(?<![^\s(]){_ITEM}(?: {_SIGN} {_ITEM})+(?: [cmk]?m\b)?(?!\S*[@/])"
CHAIN = re.compile(_CHAIN)
_VARIABLE = (  # of a template; or code, a link, what is tagged, or a character's name in HTML
    r"\{\{ ?[^{}\s]+ ?\}\}|\{[^{}\s]+\}|\[[A-Z][A-Z\d_]+\]|<[A-Z][A-Z\d_]+>|%[sd]\b"
    r"|`(?!\s)[^`\n]+(?<!\s)`"
    rf"|!?\[[^\[\]\n]+\]\([^()\s]+\)|{_TAGGED}|{_OPEN}|{_CLOSE}|&(?:[a-zA-Z][a-zA-Z\d]+|#\w+);"
    rf"|{_CHAIN}|{EMOTICON}|(?<!\S)(?:--[a-zA-Z][\w-]*|-(?!{_WORDS})[a-zA-Z]{{1,2}}(?!\w))"
)
VARIABLE = re.compile(_VARIABLE)
MARKS = "\"'“”‘’«»(),;:!?…."
WORD = re.compile(rf"(?:{_VARIABLE}|\S)+")
APART = re.compile(rf"(?:{_VARIABLE}|[^\s{CJK}])+|[{CJK}]")  # where no blanks separate words
EDGES = f"{OPENING}{CLOSING}。，！？、；：（）「」《》"
FIGURE = re.compile(r"(?=.*\d)(?!.*[a-z]{2})")  # or a code


class Held(NamedTuple):
    """A text in which placeholders stand for words.

    Attributes:
        text: The text with placeholders.
        words: The word of each placeholder.

    Example:
        >>> held = Held("Is ɕ or ɴ up?", {"ɕ": "a.com/b-c", "ɴ": "你好"})
        >>> held.restore("Are ɴ or ɕ up?"), held.is_in("Are ɴ or ɕ up?"), held.is_in("Is ɕ up?")
        ('Are 你好 or a.com/b-c up?', True, False)
    """

    text: str
    words: dict[str, str]

    def restore(self, written: str) -> str:
        """Put the words back."""
        return "".join(self.words.get(char, char) for char in written)

    def is_in(self, written: str) -> bool:
        """Whether another text has each placeholder as often."""
        return all(written.count(letter) == self.text.count(letter) for letter in self.words)

    def says_something(self) -> bool:
        """Whether the text has a letter or figure besides its placeholders."""
        return any(char.isalnum() and char not in self.words for char in self.text)


def hold_words(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], *, figures: bool = False
) -> list[Held]:
    """Put placeholders in texts, if a fast WordPiece tokenizer knows suitable letters.

    Args:
        tokenizer: The model's.
        texts: Texts to paraphrase.
        figures: Also for formulas, and for figures of five tokens or more.

    Example:
        >>> from simbert_hf import DEFAULT_MODEL, SimBert
        >>> tokenizer = SimBert.from_pretrained(DEFAULT_MODEL).tokenizer
        >>> hold_words(tokenizer, ["Ask 李雷's boss at x_y@b-c.de or 谢谢."], figures=True)[0].words
        {'ɕ': '李雷', 'ɴ': 'x_y@b-c.de', 'ɹ': '谢谢'}
    """
    known = is_wordpiece(tokenizer) and tokenizer.is_fast
    letters = letters_known(tokenizer) if known else ()
    if not letters or not texts:
        return [Held(text, {}) for text in texts]
    encoded = tokenizer(
        list(texts), add_special_tokens=False, return_offsets_mapping=True, verbose=False
    )
    tokens = map(tokenizer.convert_ids_to_tokens, encoded["input_ids"])
    rows, unknown = zip(texts, tokens, encoded["offset_mapping"], strict=True), tokenizer.unk_token
    return [hold(*row, letters, str(unknown), figures) for row in rows]


def hold(
    text: str,
    tokens: Sequence[str],
    places: Sequence[tuple[int, int]],
    letters: Sequence[str],
    unknown: str,
    figures: bool,
) -> Held:
    """Put placeholders in a text whose tokens and their places are known."""
    free = (letter for letter in letters if letter not in text)
    given: dict[str, str] = {}
    parts, until = [], 0
    starts = [start for start, _ in places]
    in_words = is_english(text) or not (is_chinese(text) or is_japanese(text))
    for start, word in words_at(text, in_words):
        end = start + len(word)
        pieces = tokens[bisect_left(starts, start) : bisect_left(starts, end)]
        if not cannot_be_written(word, pieces, in_words, unknown, figures):
            continue
        letter = given.get(word) or next(free, None)
        if letter is None:
            break
        given[word] = letter
        parts += [text[until:start], letter]
        until = end
    return Held("".join((*parts, text[until:])), {letter: word for word, letter in given.items()})


def is_japanese(text: str) -> bool:
    """Whether a text has syllables of Japanese, and many more of its letters than Latin words.

    Example:
        >>> is_japanese("Wi-Fiがつながらない"), is_japanese("translate ありがとう to English")
        (True, False)
    """
    kana = len(re.findall(f"[{KANA}]", text))
    return kana > 0 and kana + len(HAN_CHAR.findall(text)) > 3 * len(words_of(text))


def words_at(text: str, in_words: bool) -> Iterator[tuple[int, str]]:
    """Yield where words begin, and the words without the marks around them."""
    for found in (WORD if in_words else APART).finditer(text):
        if variables := list(VARIABLE.finditer(found[0])):  # one alone, or parts of an address
            alone = not found[0].replace(variables[0][0], "", 1).strip(EDGES)
            until = max(len(found[0].rstrip(MARKS)), variables[-1].end())  # "caf&eacute;"
            word = variables[0][0] if alone else found[0][:until].lstrip(MARKS)
        else:
            word = OWNED.sub("", found[0].strip(EDGES)) or found[0]
        yield found.start() + found[0].index(word), word


def cannot_be_written(
    word: str, pieces: Sequence[str], in_words: bool, unknown: str, figures: bool
) -> bool:
    """Whether a word, given its tokens, cannot be left to the model."""
    foreign = in_words and any(map(str.isalnum, CJK_CHAR.findall(word)))
    return bool(
        foreign
        or unknown in pieces
        or SPELT.search(" ".join(pieces))
        or HANDLE.match(word)
        or (VARIABLE.search(word) and (figures or not CHAIN.fullmatch(word)))
        or (len(pieces) >= LONG and (figures if FIGURE.match(word) else ADDRESS.search(word)))
    )


@lru_cache(maxsize=4)
def letters_known(tokenizer: PreTrainedTokenizerBase) -> tuple[str, ...]:
    """Find letters that can be placeholders: one token each, wherever they stand."""
    names = sorted(name for name in tokenizer.get_vocab() if len(name) == 1)
    letters = [name for name in names if FIRST <= name < BEHIND and is_caseless(name)]
    if not letters:
        return ()
    rows = tokenizer([f"a {name} a" for name in letters], add_special_tokens=False)["input_ids"]
    pairs = zip(letters, map(tokenizer.convert_ids_to_tokens, rows), strict=True)
    return tuple(name for name, tokens in pairs if tokens[1:-1] == [name])


def is_caseless(char: str) -> bool:
    """Whether a character is a letter that has no capital."""
    return unicodedata.category(char) in ("Ll", "Lo") and char.upper() == char
