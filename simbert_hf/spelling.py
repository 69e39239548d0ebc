"""A sentence as a tokenizer flattens it -> spelled as the text that it paraphrases.

An uncased tokenizer forgets case and accents, WordPiece where blanks stood, and NFKC that Chinese
writes its marks wide. The source shows how it spells.
"""

from __future__ import annotations

import re
from string import punctuation, whitespace

from sentencex import segment  # type: ignore[import-untyped]
from transformers import PreTrainedTokenizerBase

from simbert_hf.text import CJK, HAN, decode

OUTSIDE = punctuation + whitespace + "“”‘’«»¿¡"  # of a sentence's first word
RUN = re.compile(rf"[^\s{CJK}]+")
PART = re.compile(rf"[^\W{CJK}]{{2,}}")
OWNED = re.compile(r"['’]s?$")
FIRST = re.compile(r"\W*([^\W\d_]+)")
NARROW = re.compile(rf"(?<=[{CJK}])[!(),:;?]+|[!(),:;?]+(?=[{CJK}])")
CLOSE = re.compile(rf"(?<=[{HAN}])(?=[^\W{CJK}])|(?<=[^\W{CJK}])(?=[{HAN}])")
APART = re.compile(rf"(?<=[{HAN}]) (?=[^\W{CJK}])|(?<=[^\W{CJK}]) (?=[{HAN}])")
WIDE = {ord(mark): chr(ord(mark) + 0xFEE0) for mark in "!(),:;?"}


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
        >>> spelling = Spelling("Does the café take PayPal? I use Node.js.", tokenizer)
        >>> spelling("my node. js works. can i pay by paypal in the cafe?")
        'My Node.js works. Can I pay by PayPal in the café?'
    """

    def __init__(self, source: str, tokenizer: PreTrainedTokenizerBase) -> None:
        words = inner_words(source)
        ids = tokenizer([*words, "I", "，"], add_special_tokens=False, verbose=False)["input_ids"]
        *flat, pronoun, comma = decode(tokenizer, ids)
        spelled: dict[str, set[str]] = {"": set(), "a": set()}  # "plan A" is no rule
        for word, flattened in zip(words, flat, strict=True):
            spelled.setdefault(flattened, set()).add(word)
        uncased = pronoun == "i"
        self.all_capitals = uncased and source.isupper()
        self.capitals = uncased and next(filter(str.isalpha, source), "").isupper()
        if self.capitals:
            spelled.setdefault("i", {"I"})
        self.wide = comma == "," and not NARROW.search(source)
        self.apart = bool(APART.search(source)) and not CLOSE.search(source)
        self.words = {
            flattened: forms.pop()
            for flattened, forms in spelled.items()
            if flattened not in ("", "a") and len(forms) == 1
        }
        longest_first = sorted(map(re.escape, self.words), key=len, reverse=True)
        known = "|".join(longest_first) or "(?!)"
        self.pattern = re.compile(rf"(?<![^\W{CJK}])(?<!['’])(?:{known})(?![^\W{CJK}])")

    def __call__(self, text: str) -> str:
        """Spell what the model wrote as the source does."""
        text = self.pattern.sub(lambda found: self.words[found[0]], text)
        if self.all_capitals:
            text = text.upper()
        elif self.capitals:
            text = "".join(map(begin, segment("en", text)))
        if self.wide:
            text = NARROW.sub(lambda marks: marks[0].translate(WIDE), text)
        return CLOSE.sub(" ", text) if self.apart else text


def inner_words(source: str) -> list[str]:
    """Return a text's words that are no Chinese, and their parts.

    Left out is what begins a sentence with one capital, which may stand for the place alone.

    Example:
        >>> inner_words("Paris? I like T-Mobile's. 我用iPhone。")
        ['like', "T-Mobile's", 'T-Mobile', 'Mobile', 'iPhone']
    """
    words: list[str] = []
    for sentence in segment("en", source):
        start = sentence.lstrip(OUTSIDE)
        for run in RUN.findall(sentence):
            bare = run.strip(OUTSIDE)
            whole = run if "." in bare else bare  # "U.S.", of which blanks part "U.S"
            for word in (whole, bare, OWNED.sub("", bare), *PART.findall(bare)):
                if word and not (start.startswith(word) and word == word.capitalize()):
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
