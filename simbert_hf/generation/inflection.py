"""Inflection: words whose ending the model wrote as a piece of its own, spelled as English is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

# Verbs whose last consonant is doubled, but for those whose "-ing" every vocabulary has
DOUBLED = frozenset(
    "admit beg blog blur chat chip chop clap clip clog commit concur crop deter dig dip drag drip "
    "drum equip excel expel flap flip forbid forget format grin handicap hop hug hum input jog "
    "kidnap knit knot log mop nap nod offset omit outfit output overlap overrun pad patrol peg "
    "permit plug prefer program propel quit quiz rebel recap refer refit regret rehab rerun reset "
    "rev rip rob rub scan scrub shed ship shop shred shrug shut skip slam slim slip snap spam spot "
    "squat stir strap strip submit sum swap swat tag tap tip transfer transmit trap trek trim trip "
    "tug unplug unwrap unzip upset wag wed whip wrap zip".split()
)


def inflect(stem: str, ending: str) -> str:
    """Put an English word and "ing", "ed" or "s" together, any other as they are.

    Example:
        >>> inflect("reset", "ing"), inflect("balance", "ing"), inflect("cry", "s")
        ('resetting', 'balancing', 'cries')
        >>> inflect("see", "ing"), inflect("visit", "ed"), inflect("toss", "s")
        ('seeing', 'visited', 'tosses')
    """
    if ending in {"ing", "ed"}:
        if stem in DOUBLED:
            return stem + stem[-1] + ending
        if re.search("e$" if ending == "ed" else "[^eioy]e$", stem):
            return stem[:-1] + ending
    if ending == "s":
        if re.search("[^aeiou]y$", stem):
            return f"{stem[:-1]}ies"
        if re.search("(?:ss|us|sh|tch|x|z)$", stem):
            return f"{stem}es"
    return stem + ending


def inflect_pieces(pieces: Sequence[str], known: AbstractSet[tuple[str, str]]) -> list[str]:
    """Spell WordPiece's words with :func:`inflect` if they are a whole word and its ending.

    Args:
        pieces: What was written.
        known: Pieces that stand side by side in the source, which stay as they are.

    Example:
        >>> inflect_pieces("reset ##ing and ping ##ing".split(), {("ping", "##ing")})
        ['resetting', 'and', 'ping', '##ing']
    """
    words: list[str] = []
    for before, piece, behind in zip(["", *pieces], pieces, [*pieces[1:], ""], strict=False):
        whole = not (before.startswith("##") or behind.startswith("##"))
        if before.isalpha() and piece.startswith("##") and whole and (before, piece) not in known:
            words[-1] = inflect(before, piece[2:])
        else:
            words.append(piece)
    return words
