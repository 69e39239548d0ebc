"""Turn tokens into a sentence that is spelled like the text it paraphrases.

An uncased tokenizer loses case and accents, WordPiece the blanks, and NFKC the wide marks of
Chinese. The source shows how to spell them.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from itertools import pairwise

from transformers import PreTrainedTokenizerBase

from simbert_hf.generation.facts import is_english
from simbert_hf.generation.inflection import inflect_pieces
from simbert_hf.generation.languages import foreign_language
from simbert_hf.generation.sentences import cut, ends_in
from simbert_hf.utils.text import (
    CJK,
    CJK_CHAR,
    HAN,
    HAN_CHAR,
    is_wordpiece,
    join_wordpieces,
    pieces_of,
    place_spaces,
    raw_text,
)

RUN = re.compile(rf"[^\s{CJK}]+")
YEAR = re.compile(r"['’]\d\ds?\b")  # "'98"
OPENING, CLOSING = "\"'“‘«([{¿¡,;:!?…", "\"'”’»)]},;:!?…."  # marks around words, not in them
OWNED = re.compile(r"['’]s?$")
HYPHEN = re.compile("[-\u2013/]")
UNIT = re.compile("(?<=[0-9])(?=[a-z]?[A-Z])[A-Za-z]{2,3}$")  # "16GB" is also "16 GB"; but "1st"
QUOTED = re.compile('"([^"]+)"')
NEAR = 100  # characters before a word that are searched for its marks
CASED = re.compile(r"[^\W\d_]{2,}")
# What comes before a capital that may be due to its place: only marks, or one of these.
START = re.compile(r"(?:^|[:\n。！？：]|,\s*[\"“‘«]|(?:^|\s)[-\u2013—•*>])[^\w@#/]*$")
FIRST = re.compile(r"[^\w@#/.]*([^\W\d_]+)(?![^\s.]*[@#/_=(\\]|\w*\.\w)")  # and no address, no code
NARROW = re.compile(rf"(?<=[{CJK}])[!(),:;?]+|(?<![!(),:;?])[!(),:;?]++(?=[{CJK}])")
WIDE = {ord(mark): chr(ord(mark) + 0xFEE0) for mark in "!(),:;?"}
SIGNS = {sign: chr(ord(sign) + 0xFEE0) for sign in "%~/&+"}
HALVES = re.compile(r"（([^()（）]*)\)|\(([^()（）]*)）")
CLOSE = re.compile(rf"(?<=[{HAN}])(?=[^\W{CJK}])|(?<=[^\W{CJK}])(?=[{HAN}])")
APART = re.compile(rf"(?<=[{HAN}]) (?=[^\W{CJK}])|(?<=[^\W{CJK}]) (?=[{HAN}])")
END = re.compile(r"[?!]+$")
ELIDED = re.compile(r"(?<=[^\W\d_]) (['’]) (?=[^\W\d_])")  # "qu'il", "İstanbul'a"
APOSTROPHE = "(?<!['’])"  # not behind it
# Between other letters and figures, and not within "i.e." or "paypal.com"
BOUNDS = rf"(?<![^\W{CJK}])(?<!\w\.)", rf"(?![^\W{CJK}])(?!\.\w)"
STOPPED = re.compile(r"(\b\w\.\w\.)\.(?!\.)")  # "a.m.", and a full stop
ASKING = re.compile(  # what begins a question
    r"(?:(?:so|and|but) )?(?:what|why|how|who|whose|which|when|where|is|are|am|do|does|did|can"
    r"|could|will|would|should|may|has|have|was|were)(?:n't|'s|'re)? ",
    re.IGNORECASE,
)
UNSTOPPED = re.compile(r"\b([ap])\.m\b(?!\.)")
ARTICLE = re.compile(r"(?<![\w'’@#/-])(an?|An?) (\w+)")
# A vowel by its sound (that of u is unclear), but no word after a name, as in "plan a is"
VOWEL = re.compile(
    r"(?!eu|ew|one|once|oui|(?:a[mst]|after|also|and|are|i[fns]|into|o[fnr]|only|over|isn|aren)\b)"
    "[aeio][a-z]"
)
# A long word, as short ones may be spelled out ("an mba"), not beginning with h ("an hour")
CONSONANT = re.compile(r"[bcdfgjklmnpqrstvwyz][a-z]{4,}")
HYPHENED = re.compile(r"(?<!\w)(\w+)([-\u2013])(?=(\w+))")
DASHED = re.compile(r"\w [-\u2013] \w")
STANDIN = 0x17000  # letters of Tangut stand for words while the blanks between others are placed
TITLED = re.compile(r"(?<![^\s\"“‘(])[a-z]+(?:['’][a-z]+)?(?![\w@#/]|\.\w)")  # words in a title
UNTITLED = frozenset(  # but not these
    "a an and as at but by for from in into nor of off on or over per the to up via with".split()
)
# These may be other words than the source's US, IT or Will; "the US" is not "us".
COMMON = frozenset(
    "a all am an any as at be by can do go he if in is it may me my no of off on one or our out so "
    "the to up us we who why will you".split()
)


@cache
def known_names() -> frozenset[str]:
    """Return, in lower case, words that English capitalises wherever they stand.

    They were counted by ``scripts/data/prepare_names.py``.

    Example:
        >>> sorted(known_names() & {"tom", "paris", "monday", "will", "table"})
        ['monday', 'paris', 'tom']
    """
    return frozenset(files(__package__).joinpath("names.txt").read_text("utf-8").split())


class Spelling:
    """How a text spells what its tokenizer does not tell apart.

    The source's own words are spelled as there, unless it spells one in several ways; other words
    are left unchanged, except for English endings. "a" or "an" is chosen as there, in English "an"
    before other vowels, and a question keeps its mark. Sentences begin with a capital if the source
    does, as do a title's words, and marks next to Chinese are wide unless the source's are not.
    Blanks between Chinese and other words, and around dashes that are not hyphens, follow the
    source. Except for articles and endings, this applies only where the tokenizer loses the
    spelling: what a cased model writes is kept.

    Example:
        >>> from simbert_hf import DEFAULT_MODEL, SimBert
        >>> tokenizer = SimBert.from_pretrained(DEFAULT_MODEL).tokenizer
        >>> spelling = Spelling("Does the café take PayPal? I use C# and Node.js.", tokenizer)
        >>> spelling(tokenizer("my node.js works. can i pay by paypal in the cafe?")["input_ids"])
        'My Node.js works. Can I pay by PayPal in the café?'
    """

    def __init__(self, source: str, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer, self.wordpiece = tokenizer, is_wordpiece(tokenizer)
        words = list(words_in_context(source))
        given = [*(word for word, _, _ in words), "I", "，"]
        rows = tokenizer(given, add_special_tokens=False, verbose=False)["input_ids"]
        *flat, pronoun, comma = (raw_text(tokenizer, row) for row in rows)
        spelled: dict[str, set[str]] = defaultdict(set)
        first: dict[str, set[str]] = defaultdict(set)
        for (word, before, is_first), flattened, row in zip(words, flat, rows, strict=False):
            if not flattened or tokenizer.unk_token_id in row:
                continue
            if is_first and word.lower() not in known_names():
                first[flattened].add(word.lower())
            elif flattened in COMMON and word != flattened:
                spelled[f"{before.lower()} {flattened}"].add(f"{before} {word}")
            else:
                spelled[flattened].add(word)
        uncased = pronoun == "i"
        self.pairs: set[tuple[str, str]] = set()
        if self.wordpiece:
            own = tokenizer(source, add_special_tokens=False, verbose=False)["input_ids"]
            self.pairs = set(pairwise(pieces_of(tokenizer, own)))
        self.all_capitals = uncased and is_shouted(source)
        self.capitals = uncased and next(filter(str.isalpha, source), "").isupper()
        self.foreign = bool(foreign_language(source))
        self.titled = uncased and not self.foreign and is_titled(source)
        self.small = UNTITLED.union(word for word, _, _ in words if word.islower())
        if self.capitals and not self.foreign:  # "i" is Italian, Danish and Polish too
            spelled.setdefault("i", {"I"})
        self.dashed = self.wordpiece and bool(DASHED.search(source))
        self.hyphened = {(left, right) for left, _, right in HYPHENED.findall(source.lower())}
        self.wide = comma == "," and not NARROW.search(source)
        self.signs = {
            ord(sign): wide for sign, wide in SIGNS.items() if wide in source and sign not in source
        }
        apart, close = bool(APART.search(source)), bool(CLOSE.search(source))
        self.apart, self.close = apart and not close, close and not apart
        known = {key: forms.pop() for key, forms in (first | spelled).items() if len(forms) == 1}
        self.articles, self.english = articles_of(source), is_english(source)
        self.asks = source.rstrip().endswith("?")
        quoted = {*QUOTED.findall(source)} if uncased else set()
        folded = Counter(map(str.lower, quoted))
        self.quoted = {one.lower(): one for one in quoted if folded[one.lower()] == 1}
        self._set_words({key: form for key, form in known.items() if self._spaced(key) != form})

    def _set_words(self, known: dict[str, str]) -> None:
        """Separate words that WordPiece splits, which must be found before blanks are placed."""
        keys = [key for key in known if self.wordpiece and (" " in key or not key[0].isalnum())]
        self.parted = {key: known[key] for key in keys}
        self.words = {key: form for key, form in known.items() if key not in self.parted}
        self.standins = {key: chr(STANDIN + i) for i, key in enumerate(self.parted)}
        self.parted_pattern = any_of(self.parted, r"(?<!\S)", r"(?!\S)")
        self.pattern = any_of(self.words, *BOUNDS)
        self.forms = dict(zip(self.standins.values(), self.parted.values(), strict=True))

    def _article(self, found: re.Match[str]) -> str:
        usual = found[1].lower()
        if self.english and (VOWEL if usual == "a" else CONSONANT).match(found[2]):
            usual = "an" if usual == "a" else "a"
        article = self.articles.get(found[2].lower(), usual)
        return f"{found[1][0]}{article[1:]} {found[2]}"

    def _capital(self, found: re.Match[str]) -> str:
        return found[0] if found[0] in self.small else found[0].capitalize()

    def _dash(self, found: re.Match[str]) -> str:
        left, dash, right = found.groups()
        known = (left.lower(), right.lower()) in self.hyphened
        return found[0] if known else f"{left} {dash} "

    def _spaced(self, raw: str) -> str:
        if not self.wordpiece:
            return raw
        return place_spaces(ELIDED.sub(r"\1", raw) if self.foreign else raw)

    def __call__(self, tokens: list[int]) -> str:
        """Turn what the model wrote into text."""
        if self.wordpiece:
            pieces = pieces_of(self.tokenizer, tokens)
            raw = join_wordpieces(pieces if self.foreign else inflect_pieces(pieces, self.pairs))
        else:
            raw = raw_text(self.tokenizer, tokens)
        text = self._spaced(self.parted_pattern.sub(lambda found: self.standins[found[0]], raw))
        text = self.pattern.sub(lambda found: self.words[found[0]], text)
        text = "".join(self.forms.get(char, char) for char in text)
        text = UNSTOPPED.sub(r"\1.m.", STOPPED.sub(r"\1", text))
        if self.asks and "?" not in text and ASKING.match(text):
            text = f"{text if text.endswith('.m.') else text.rstrip('.')}?"
        text = ARTICLE.sub(self._article, text)
        text = HYPHENED.sub(self._dash, text) if self.dashed else text
        if self.all_capitals:
            text = text.upper()
        elif self.capitals:
            text = TITLED.sub(self._capital, text) if self.titled else text
            text = begin_sentences(text)
        text = QUOTED.sub(lambda found: f'"{self.quoted.get(found[1].lower(), found[1])}"', text)
        text = (widen(text) if self.wide else text).translate(self.signs)
        text = APART.sub("", text) if self.close else text
        return CLOSE.sub(" ", text) if self.apart else text


def words_in_context(source: str) -> Iterator[tuple[str, str, bool]]:
    """Yield a text's words, except Chinese ones, and their parts.

    Yields:
        The word, the one before it, and whether its capital may be due to its place.

    Example:
        >>> [word for word, _, _ in words_in_context("Is .net T-Mobile's? 我用iPhone。")]
        ['Is', '.net', "T-Mobile's", 'T-Mobile', 'Mobile', 'iPhone']
        >>> found = words_in_context("Is it? Or: Not in Paris.")
        >>> [word for word, _, is_first in found if is_first]
        ['Is', 'Or', 'Not']
    """
    starts = {0, *ends_in(source, "en")}
    before = ""
    for found in RUN.finditer(source):
        bare = found[0].lstrip("" if YEAR.match(found[0]) else OPENING).rstrip(CLOSING)
        if not any(map(str.isalnum, bare)):
            continue
        at = found.start() + found[0].index(bare)
        placed = found.start() in starts or bool(START.search(source, max(0, at - NEAR), at))
        placed = placed and not CJK_CHAR.search(source[max(0, found.start() - 1) : found.end() + 1])
        whole = f"{bare}." if "." in bare and f"{bare}." in found[0] else bare  # "U.S."
        owner = OWNED.sub("", bare)
        parts = [part for part in HYPHEN.split(owner) if len(part) > 2] + UNIT.findall(owner)
        for word in dict.fromkeys((whole, bare, owner, *parts)):
            letters = OWNED.sub("", word).replace("'", "").replace("’", "").isalpha()
            yield word, before, placed and letters and word == word.capitalize()
        before = bare.lower() if placed else bare


def articles_of(source: str) -> dict[str, str]:
    """Find which article the words of a text have, if it is always the same one.

    Example:
        >>> articles_of("An hour in a European ATM? A one, an one.")
        {'hour': 'an', 'european': 'a'}
    """
    found: dict[str, set[str]] = defaultdict(set)
    for article, word in ARTICLE.findall(source.lower()):
        found[word].add(article)
    return {word: forms.pop() for word, forms in found.items() if len(forms) == 1}


def is_titled(text: str) -> bool:
    """Whether All but Short Words Have Capitals, as in a Title, and most of these are no names.

    Example:
        >>> is_titled("How to Reset My Password?"), is_titled("Dog Rescues Boy After Flood")
        (True, True)
        >>> is_titled("Ask Anna Brown in London"), is_titled("Can Apple TV Plus play Hulu Live?")
        (False, False)
    """
    words: list[str] = [word for word in CASED.findall(text) if not word.isupper()]
    small = [word for word in words if word.islower()]
    capitals = [word.lower() for word in words if word[0].isupper()]
    names = sum(word in known_names() for word in capitals[1:])
    enough = max(3, len(small)) < len(capitals) > 2 * names
    return enough and UNTITLED.issuperset(small)


def is_shouted(text: str) -> bool:
    """Whether a text has only capitals, in more than one word.

    Example:
        >>> is_shouted("WHERE IS IT?"), is_shouted("ATM?"), is_shouted("我用VISA卡和ATM")
        (True, False, False)
    """
    return (
        text.lower() != text == text.upper()
        and len(CASED.findall(text)) > 1
        and not HAN_CHAR.search(text)
    )


def any_of(words: Iterable[str], before: str, behind: str) -> re.Pattern[str]:
    """Match any of some words, the longest first; "s" and "ll" are not words after a '."""
    by_length = sorted(map(re.escape, words), key=len, reverse=True)
    known = "|".join(word if len(word) > 2 else APOSTROPHE + word for word in by_length)
    return re.compile(f"{before}(?:{known or '(?!)'}){behind}")


def begin_sentences(text: str) -> str:
    """Begin sentences with capitals, except addresses and code.

    Example:
        >>> begin_sentences("(what's new?) iPhone or 3d? or a.com?")
        "(What's new?) iPhone or 3d? Or a.com?"
    """
    parts: list[str] = []
    for part in cut(text, ""):
        if parts and not parts[-1][-1].isspace():  # "www.", "Foo.com"
            part = parts.pop() + part
        parts.append(part)
    return "".join(map(begin, parts))


def begin(sentence: str) -> str:
    """Begin a sentence with a capital.

    Example:
        >>> begin("what's new?"), begin("f(x) is new"), begin("@bob"), begin(".net")
        ("What's new?", 'f(x) is new', '@bob', '.net')
    """
    found = FIRST.match(sentence)
    if not found or not found[1].islower():
        return sentence
    at = found.start(1)
    return sentence[:at] + sentence[at].upper() + sentence[at + 1 :]


def widen(text: str) -> str:
    """Make marks of a Chinese text wide: next to Chinese, at the end, and a bracket's partner.

    Example:
        >>> widen("好吗(iPhone)?"), widen("5,000元, 100%?"), widen("ok?")
        ('好吗（iPhone）？', '5,000元， 100%？', 'ok?')
    """
    if not HAN_CHAR.search(text):
        return text
    text = NARROW.sub(lambda found: found[0].translate(WIDE), text)
    text = HALVES.sub(lambda found: f"（{found[1] or found[2] or ''}）", text)
    return END.sub(lambda found: found[0].translate(WIDE), text)
