"""Token ids -> text as people write it; and text -> normalised text, for comparisons."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Chinese and Japanese writing and its punctuation; Korean puts spaces between words.
CJK = "\u2e80-\u9fff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff65\U00020000-\U0003ffff"
HAN = r"\u3400-\u4dbf\u4e00-\u9fff"  # Chinese characters in common use
KANA = r"\u3041-\u3096\u30a1-\u30fa\u30fc-\u30fe"  # syllables of Japanese
UNSPACED = r"\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese and Khmer
INDIC = r"\u0900-\u0963\u0966-\u0dff"  # with vowel signs, which "\w" lacks
HAN_CHAR = re.compile(f"[{HAN}]")
CJK_CHAR = re.compile(f"[{CJK}]")
LATIN_WORD = re.compile("[a-z]+")  # of a text in lower case
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")  # but tabs and line breaks
# Marks of direction, soft hyphens and blanks without width, which no reader sees
INVISIBLE = re.compile("[\xad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]")
# Cut before what joins nothing before it, as a run of accents takes time by its square
PIECE = re.compile(rf"(?s:.){{1,1000}}(?=[\0-\x7f{HAN}]|\Z)|(?s:.){{1,1000}}")
ENDINGS = "s|t|d|m|re|ve|ll|clock|am|all"  # don't, tom's, o'clock, ma'am, y'all

SPACE_IN_CJK = re.compile(rf"(?<=[{CJK}]) (?=[{CJK}])")
SPACE_BY_CJK = re.compile(rf" (?=[{CJK}])|(?<=[{CJK}]) ")

# WordPiece splits off every punctuation mark; each rule takes back the spaces around one kind.
SPACING = [
    (re.compile(pattern), joined)
    for pattern, joined in [
        (r'" ([^"]+?) "', r'"\1"'),  # quotation marks stand in pairs,
        (r"„ ([^„“”]+?) ([“”])", r"„\1\2"),
        (r'(?<=\d) "(?=[^"]*$)|^" | "$', '"'),  # or alone behind a figure (inches), or at an end
        (rf"(\w) ([’']) (?=(?:{ENDINGS})\b)", r"\1\2"),
        (r"\b([odl]) ([’']) (?=\w)", r"\1\2"),  # o'neil, d'accord, l'amour
        (r"([’']) (?=(?:em|til|cause|twas|tis)\b)", r"\1"),
        (r"(?<!\S)' ([^']+?) '(?!\S)", r"'\1'"),  # single ones too
        (r"(?<=s) ([’'])(?= )", r"\1"),  # a few days' rest
        (r"(?<=\d) ([.:/]) (?=\d)", r"\1"),  # 3.5, 10:30, 9/11
        (r"(?<=\d) , (?=\d{3}\b)", ","),  # 86,400
        (r"(?<=\w) ([-\u2010-\u2013_]) (?=\w)", r"\1"),
        (r"(?<=[\w.]) ([@/]) (?=\w)", r"\1"),
        (r"([(\[{«‘¿¡]|(?<!\S)“) ", r"\1"),  # "“" may also close a quotation
        (r"(?<!\S)(?<!\d )\u2212 (?=\d)", "\u2212"),  # -5, and 5 - 3
        (r"(?<!\d )([£€¥]) (?=\d)|(\$) (?=\d)", r"\1\2"),  # $5, and 5 € or 6 £
        (r"(?<!\b[cf] )# (?=\w)", "#"),  # but for C# and F#
        (r" ([.,!?;:%°…)\]}»”،؛؟।॥])", r"\1"),  # Arabic and Devanagari ones too
        (r"(?<=°) (?=[CcFf]\b)", ""),
        (r"\b([A-Za-z])\. (?=[A-Za-z]\.)", r"\1."),  # 5 a.m., the u.s.
        (r"(?<=—) (?=—)", ""),  # the Chinese dash is a pair
        (r"\b([A-Za-z]) \+ \+", r"\1++"),
        (SPACE_BY_CJK.pattern, ""),
    ]
]

# Marks that change what a sentence says, however they are spaced (WordPiece forgets spaces).
SIGN = re.compile(r" ?([#%]) ?")
MINUS = re.compile(r"(?<!\S)- ?(?=\d)")
# Candidates for punctuation or a space, not between two digits; also vowel signs, or a plus.
MARK = re.compile(r"(?<!\d)(?:[^\w#%]|_)|(?:[^\w#%]|_)(?!\d)")


def read_sides(lines: str) -> list[list[frozenset[str]]]:
    r"""Read lines of words: blanks separate the sides of a line, bars the words of one side.

    Example:
        >>> [[sorted(side) for side in sides] for sides in read_sides("up down\nbig|large small")]
        [[['up'], ['down']], [['big', 'large'], ['small']]]
    """
    return [[frozenset(side.split("|")) for side in line.split()] for line in lines.splitlines()]


def words_of(text: str) -> set[str]:
    """Find the words in Latin letters of a text.

    Example:
        >>> sorted(words_of("怎么用 Wi-Fi 上网，要 APP 吗"))
        ['app', 'fi', 'wi']
    """
    return {*LATIN_WORD.findall(text.lower())}


def counted(count: int, noun: str) -> str:
    """Return a count and its noun, in the singular or with an s.

    Example:
        >>> counted(1, "row"), counted(2000, "empty row")
        ('1 row', '2,000 empty rows')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def is_wordpiece(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether the tokenizer marks the inside of words (``##ing``), not starts (``▁go``)."""
    model = getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)
    return type(model).__name__ == "WordPiece" if model else "Bert" in type(tokenizer).__name__


def raw_text(tokenizer: PreTrainedTokenizerBase, row: list[int]) -> str:
    """Join a row's tokens, with a space between any two words or marks of WordPiece."""
    if not is_wordpiece(tokenizer):
        text = str(tokenizer.decode(row, skip_special_tokens=True))
        return SPACE_IN_CJK.sub("", " ".join(text.split()))  # which models generate anyway
    return join_wordpieces(pieces_of(tokenizer, row))


def pieces_of(tokenizer: PreTrainedTokenizerBase, row: list[int]) -> list[str]:
    """Return a row's tokens, except the special ones."""
    return list(tokenizer.convert_ids_to_tokens(row, skip_special_tokens=True))


def join_wordpieces(pieces: Iterable[str]) -> str:
    """Join word pieces into words, separated by spaces.

    Example:
        >>> join_wordpieces("they don ' t re ##pay".split())
        "they don ' t repay"
    """
    return " ".join(pieces).removeprefix("##").replace(" ##", "")


def place_spaces(text: str) -> str:
    """Keep only the spaces between words and marks that people write.

    Example:
        >>> place_spaces("they don ' t repay ( a well - known ) $ 5 . 00 !")
        "they don't repay (a well-known) $5.00!"
        >>> place_spaces("我 喜 欢 python ， 你 呢 ？")
        '我喜欢python，你呢？'
    """
    for pattern, joined in SPACING:
        text = pattern.sub(joined, text)
    return text.strip()


def compose(text: str, form: Literal["NFC", "NFKC"] = "NFC") -> str:
    r"""Compose characters (NFC) or unify them (NFKC), in time that grows linearly.

    Example:
        >>> compose("e\u0301") == "\xe9", compose("？", "NFKC")
        (True, '?')
    """
    return "".join(unicodedata.normalize(form, piece) for piece in PIECE.findall(text))


def fold(text: str) -> str:
    r"""Normalise case, white space and the encoding of characters, for comparisons.

    Invisible marks are left out, and a Turkish capital "İ" is an "i".

    Example:
        >>> fold("  How are\tYou？ ")
        'how are you?'
    """
    visible = INVISIBLE.sub("", compose(text, "NFKC"))
    return " ".join(visible.split()).casefold().replace("i\u0307", "i")


def normalize_text(text: str) -> str:
    """Return a normalised text, which is equal for two texts that are the same sentence.

    It unifies compatibility characters (NFKC), ignores case and spacing (next to Chinese, all
    spaces), and drops punctuation at both ends. What changes the meaning stays: ``#``, ``%`` and a
    minus (c# is not c, -5 not 5%).

    Example:
        >>> normalize_text("How  are YOU？") == normalize_text("how are you")
        True
        >>> normalize_text("C#!"), normalize_text("- 5 %"), normalize_text("我的 iPhone 13 呢？")
        ('c#', '−5%', '我的iphone 13呢')
    """
    words = SPACE_BY_CJK.sub("", fold(text))
    chars = set(words)
    marks = set(filter(is_mark, chars))
    if marks == chars:
        return ""
    words = MINUS.sub("\N{MINUS SIGN}", SIGN.sub(r"\1", words))
    return words.strip("".join(marks.difference("#%")))


def is_whole(text: str) -> bool:
    r"""Return whether a text has no half characters (surrogates), which cannot be encoded.

    Example:
        >>> is_whole("né"), is_whole("n\ud83d")
        (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def letters_of(text: str) -> str:
    """Return :func:`normalize_text` without inner punctuation and spaces.

    Those between two digits stay, as 1.5 is not 15.

    Example:
        >>> letters_of("Is it 1.5 kg?"), letters_of("C++ and C#, please")
        ('isit1.5kg', 'c++andc#please')
    """
    return MARK.sub(lambda found: "" if is_mark(found[0]) else found[0], normalize_text(text))


@lru_cache(maxsize=4096)
def is_mark(char: str) -> bool:
    """Return whether a character is punctuation or a space (not a currency sign or a digit)."""
    return char.isspace() or unicodedata.category(char).startswith("P")
