"""Facts: what a paraphrase must have as its text has it, which vectors hardly see."""

from __future__ import annotations

import re

# Runs of ASCII, since Chinese sets no blanks around them.
RUN = re.compile(r"[!-~]+")
AROUND = "\"'`.,!?;:()[]{}<>*$%"
# A capital behind a dot begins a sentence; the blank between them was forgotten.
INSIDE = re.compile(r"\d|[^\W_](?:[@+#_]|//|:/+)[^\W_]|[^\W_]\.[^\W_A-Z]|[^\W_](?:#|\+\+)$")
ABBREVIATIONS = frozenset(("e.g", "i.e", "a.m", "p.m"))
DENIAL = re.compile(
    r"\b(?:not|no|never|cannot|nobody|nothing|none|nowhere|neither|nor|without)\b"
    r"|n['’]t\b|\b(?:do|does|did|ca|wo|is|are|was|were|has|have|had|must|need|could|would|should)nt\b",
    re.IGNORECASE,
)
# Which a vector hardly tells apart, and a paraphrase is not to exchange.
RIVALS = [
    [re.compile(rf"\b(?:{words})\b", re.IGNORECASE) for words in both]
    for both in (
        ("my|mine|myself", "your|yours|yourself"),
        ("he|him|his|himself", "she|her|hers|herself"),
    )
]

SMALL = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen".split()
)
SMALLTH = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth "
    "fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth".split()
)
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
TENTHS = [f"{word[:-1]}ieth" for word in TENS]
VALUES = {word: i for words in (SMALL, SMALLTH) for i, word in enumerate(words, start=1)}
VALUES |= {word: 10 * i for words in (TENS, TENTHS) for i, word in enumerate(words, start=2)}
SELDOM = frozenset(("one", "first", "second"))  # alone they are pronouns, adverbs and times
_UNITS = [*SMALL[:9], *SMALLTH[:9]]
_TENS, _UNIT, _TIMELESS, _ANY = map(
    "|".join, (TENS, _UNITS, (unit for unit in _UNITS if unit != "second"), VALUES)
)  # "a thirty second ad" is one of thirty seconds
_BELOW_100 = rf"(?:(?:{_TENS})(?:-(?:{_UNIT})| (?:{_TIMELESS}))|{_ANY})(?![a-z])"
_BELOW_1000 = (
    rf"(?:(?:(?:{_BELOW_100}|a)[ -])?hundred(?![a-z])(?: (?:and )?{_BELOW_100}(?! hundred))?"
    rf"|{_BELOW_100})"
)
NUMBER = re.compile(
    rf"(?<![a-z])(?:(?:(?:{_BELOW_1000}|a)[ -])?thousand(?![a-z])"
    rf"(?: (?:and )?{_BELOW_1000}(?! thousand))?|{_BELOW_1000})"
)


def figures_of(text: str) -> set[str]:
    """Find numbers in English words, below a million, as figures.

    Example:
        >>> sorted(figures_of("Twenty-five of a hundred and two; one on the third"))
        ['102', '25', '3rd']
    """
    return {_figure(found[0]) for found in NUMBER.finditer(text.lower())} - {""}


def _figure(number: str) -> str:
    thousands = part = 0
    words = re.findall("[a-z]+", number)
    for word in words:
        if word == "hundred":
            part = 100 * (part or 1)
        elif word == "thousand":
            thousands, part = 1000 * (part or 1), 0
        else:
            part += VALUES.get(word, 0)  # "a" and "and" have none
    ending = number[-2:] if words[-1] in (*SMALLTH, *TENTHS) else ""
    return "" if number in SELDOM else f"{thousands + part}{ending}"


def swaps_persons(text: str, other: str) -> bool:
    """Tell whether English speaks of "your" or "she" where a text has only "my" or "he".

    Example:
        >>> swaps_persons("reset my password", "reset your password")
        True
        >>> swaps_persons("She saw her brother", "Her brother was seen")
        False
    """
    return any(
        one.search(text) and not rival.search(text) and rival.search(other)
        for pair in RIVALS
        for one, rival in (pair, pair[::-1])
    )


def facts_of(text: str) -> frozenset[str]:
    """Find numbers, addresses, words with marks inside, and whether English denies anything.

    Numbers in English words count as their figures do, except a lone "one", "first" or "second".

    Example:
        >>> sorted(facts_of("Don't send $5 to a.b@c.com, or 3.5% of it."))
        ['3.5', '5', 'a.b@c.com', 'not']
        >>> facts_of("C# 和 iPhone13 不 well-known?") == {"c#", "iphone13"}
        True
    """
    words = [run.strip(AROUND) for run in RUN.findall(text)]
    found = {word.lower() for word in words if INSIDE.search(word)} - ABBREVIATIONS
    found |= figures_of(text) | ({"not"} if DENIAL.search(text) else set())
    return frozenset(found)
