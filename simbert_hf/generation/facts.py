"""Facts: what a paraphrase must have as its text has it, which vectors hardly see."""

from __future__ import annotations

import re

# Runs of ASCII, since Chinese sets no blanks around them.
RUN = re.compile(r"[!-~]+")
NUMBERS = "two three four five six seven eight nine ten eleven twelve".split()
FIGURES = {word: str(value) for value, word in enumerate(NUMBERS, start=2)}  # "one" is a pronoun
AROUND = "\"'`.,!?;:()[]{}<>*$%"
# A capital behind a dot begins a sentence; the blank between them was forgotten.
INSIDE = re.compile(r"\d|[^\W_](?:[@+#_]|//|:/+)[^\W_]|[^\W_]\.[^\W_A-Z]|[^\W_](?:#|\+\+)$")
ABBREVIATIONS = frozenset(("e.g", "i.e", "a.m", "p.m"))
DENIAL = re.compile(
    r"\b(?:not|no|never|cannot|nobody|nothing|none|nowhere|neither|nor|without)\b"
    r"|n['’]t\b|\b(?:do|does|did|ca|wo|is|are|was|were|has|have|had|must|need|could|would|should)nt\b",
    re.IGNORECASE,
)


def facts_of(text: str) -> frozenset[str]:
    """Find numbers, addresses, words with marks inside, and whether English denies anything.

    Example:
        >>> sorted(facts_of("Don't send $5 to a.b@c.com, or 3.5% of it."))
        ['3.5', '5', 'a.b@c.com', 'not']
        >>> facts_of("C# 和 iPhone13 不 well-known?") == {"c#", "iphone13"}
        True
    """
    words = [run.strip(AROUND) for run in RUN.findall(text)]
    found = {word.lower() for word in words if INSIDE.search(word)} - ABBREVIATIONS
    found |= {FIGURES[word.lower()] for word in words if word.lower() in FIGURES}
    return frozenset(found | {"not"} if DENIAL.search(text) else found)
