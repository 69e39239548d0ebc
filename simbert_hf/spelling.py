"""Tokens -> a sentence spelled as the text that it paraphrases.

An uncased tokenizer forgets case and accents, WordPiece where blanks stood, and NFKC that Chinese
writes its marks wide. The source shows how it spells.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sentencex import segment  # type: ignore[import-untyped]
from transformers import PreTrainedTokenizerBase

from simbert_hf.text import CJK, HAN, is_wordpiece, place_spaces, raw_text

RUN = re.compile(rf"[^\s{CJK}]+")
HYPHEN = re.compile("[-\u2013/]")
FIRST_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
OPENING, CLOSING = "\"'“‘«([{¿¡,;:!?…", "\"'”’»)]},;:!?…."  # marks around words, not in them
OWNED = re.compile(r"['’]s?$")
FIRST = re.compile(r"\W*([^\W\d_]+)")
NARROW = re.compile(rf"(?<=[{CJK}])[!(),:;?]+|[!(),:;?]+(?=[{CJK}])")
CLOSE = re.compile(rf"(?<=[{HAN}])(?=[^\W{CJK}])|(?<=[^\W{CJK}])(?=[{HAN}])")
APART = re.compile(rf"(?<=[{HAN}]) (?=[^\W{CJK}])|(?<=[^\W{CJK}]) (?=[{HAN}])")
APOSTROPHE = r"(?<!['’])(?<!['’] )"  # not behind it
BOUNDS = rf"(?<![^\W{CJK}])", rf"(?![^\W{CJK}])"
WIDE = {ord(mark): chr(ord(mark) + 0xFEE0) for mark in "!(),:;?"}
STANDIN = 0x17000  # letters of Tangut stand for words while the blanks between others are placed


class Spelling:
    """How a text spells what its tokenizer does not tell apart.

    The source's own words are spelled as there, unless it spells one in several ways; other words
    are left as they are. Sentences begin with a capital if the source does, marks beside Chinese
    are wide unless the source's are not, and blanks set off its other words if they do there. All
    of it only where the tokenizer forgets it: what a cased model writes stays.

    Args:
        source: The text.
        tokenizer: Of the model that writes.

    Example:
        >>> from simbert_hf import DEFAULT_MODEL, SimBert
        >>> tokenizer = SimBert.from_pretrained(DEFAULT_MODEL).tokenizer
        >>> spelling = Spelling("Does the café take PayPal? I use C# and Node.js.", tokenizer)
        >>> spelling(tokenizer("my node.js works. can i pay by paypal in the cafe?")["input_ids"])
        'My Node.js works. Can I pay by PayPal in the café?'
    """

    def __init__(self, source: str, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer, self.wordpiece = tokenizer, is_wordpiece(tokenizer)
        words = inner_words(source)
        rows = tokenizer([*words, "I", "，"], add_special_tokens=False, verbose=False)["input_ids"]
        *flat, pronoun, comma = (raw_text(tokenizer, row) for row in rows)
        spelled: dict[str, set[str]] = {"": set(), "a": set()}  # "plan A" is no rule
        for word, flattened, row in zip(words, flat, rows, strict=False):
            if tokenizer.unk_token_id not in row:
                spelled.setdefault(flattened, set()).add(word)
        uncased = pronoun == "i"
        self.all_capitals = uncased and source.isupper()
        self.capitals = uncased and next(filter(str.isalpha, source), "").isupper()
        if self.capitals:
            spelled.setdefault("i", {"I"})
        self.wide = comma == "," and not NARROW.search(source)
        self.apart = bool(APART.search(source)) and not CLOSE.search(source)
        known = {
            flattened: forms.pop()
            for flattened, forms in spelled.items()
            if flattened not in ("", "a") and len(forms) == 1
        }
        self.words = {chr(STANDIN + i): word for i, word in enumerate(known.values())}
        self.standins = dict(zip(known, self.words, strict=True))
        self.pattern = pattern_of(known, self.wordpiece)

    def __call__(self, tokens: list[int]) -> str:
        """Turn what the model wrote into text."""
        text = raw_text(self.tokenizer, tokens)
        text = self.pattern.sub(lambda found: self.standins[found[0]], text)
        text = place_spaces(text) if self.wordpiece else text
        text = "".join(self.words.get(char, char) for char in text)
        if self.all_capitals:
            text = text.upper()
        elif self.capitals:
            text = "".join(map(begin, segment("en", text)))
        if self.wide:
            text = NARROW.sub(lambda marks: marks[0].translate(WIDE), text)
        return CLOSE.sub(" ", text) if self.apart else text


def pattern_of(words: Iterable[str], wordpiece: bool) -> re.Pattern[str]:
    """Find words in a raw text, the longest first; "s" and "ll" are no words behind a '."""
    by_length = sorted(map(re.escape, words), key=len, reverse=True)
    known = "|".join(word if len(word) > 2 else APOSTROPHE + word for word in by_length)
    before, behind = (r"(?<!\S)", r"(?!\S)") if wordpiece else BOUNDS
    return re.compile(f"{before}(?:{known or '(?!)'}){behind}")


def inner_words(source: str) -> list[str]:
    """Return a text's words that are no Chinese, and their parts.

    Left out is what begins a sentence with one capital, which may stand for the place alone.

    Example:
        >>> inner_words("Paris? I like .net and T-Mobile's. 我用iPhone。")
        ['like', '.net', 'and', "T-Mobile's", 'T-Mobile', 'Mobile', 'iPhone']
    """
    words: list[str] = []
    for sentence in segment("en", source):
        start = sentence.lstrip().lstrip(OPENING)
        for run in RUN.findall(sentence):
            bare = run.lstrip(OPENING).rstrip(CLOSING)
            whole = f"{bare}." if "." in bare and f"{bare}." in run else bare  # "U.S."
            owner = OWNED.sub("", bare)
            parts = [part for part in HYPHEN.split(owner) if len(part) > 2]
            for word in (whole, bare, owner, *parts):
                first = FIRST_WORD.fullmatch(word) and start.startswith(word)
                if any(map(str.isalnum, word)) and not (first and word == word.capitalize()):
                    words.append(word)
    return list(dict.fromkeys(words))


def begin(sentence: str) -> str:
    """Begin a sentence with a capital.

    Example:
        >>> begin("(what's new?) "), begin("iPhone or not?"), begin("3d prints")
        ("(What's new?) ", 'iPhone or not?', '3d prints')
    """
    found = FIRST.match(sentence)
    if not found or not found[1].islower():
        return sentence
    at = found.start(1)
    return sentence[:at] + sentence[at].upper() + sentence[at + 1 :]
