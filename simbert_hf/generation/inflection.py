"""English words and their endings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache

# Verbs whose last consonant is doubled, except those whose "-ing" every vocabulary has
DOUBLED = frozenset(
    "admit beg blog blur chat chip chop clap clip clog commit concur crop deter dig dip drag drip "
    "drum equip excel expel flap flip forbid forget format grin handicap hop hug hum input jog "
    "kidnap knit knot log mop nap nod offset omit outfit output overlap overrun pad patrol peg "
    "permit plug prefer program propel quit quiz rebel recap refer refit regret rehab rerun reset "
    "rev rip rob rub scan scrub shed ship shop shred shrug shut skip slam slim slip snap spam spot "
    "squat stir strap strip submit sum swap swat tag tap tip transfer transmit trap trek trim trip "
    "tug unplug unwrap unzip upset wag wed whip wrap zip".split()
)

_FORMS = (
    "become:became begin:began,begun bend:bent bite:bit,bitten blow:blew,blown break:broke,broken "
    "bring:brought build:built buy:bought catch:caught choose:chose,chosen come:came deal:dealt "
    "dig:dug do:doing,done draw:drew,drawn drink:drank,drunk drive:drove,driven eat:ate,eaten "
    "fall:fell,fallen feed:fed feel:felt fight:fought find:found flee:fled fly:flew,flown "
    "forget:forgot,forgotten forgive:forgave,forgiven freeze:froze,frozen get:got,gotten "
    "give:gave,given go:went,gone grow:grew,grown hang:hung have:having hear:heard "
    "hide:hid,hidden hold:held keep:kept know:knew,known lay:laid lead:led leave:left lend:lent "
    "lie:lay,lain lose:lost make:made mean:meant meet:met pay:paid ride:rode,ridden "
    "ring:rang,rung rise:rose,risen run:ran say:said see:saw,seen seek:sought sell:sold send:sent "
    "shake:shook,shaken shine:shone shoot:shot show:shown sing:sang,sung sink:sank,sunk sit:sat "
    "sleep:slept speak:spoke,spoken spend:spent stand:stood steal:stole,stolen stick:stuck "
    "strike:struck sweep:swept swim:swam,swum take:took,taken teach:taught tear:tore,torn "
    "tell:told think:thought throw:threw,thrown understand:understood wake:woke,woken "
    "wear:wore,worn win:won withdraw:withdrew,withdrawn write:wrote,written child:children "
    "foot:feet half:halves knife:knives leaf:leaves life:lives man:men mouse:mice person:people "
    "shelf:shelves thief:thieves tooth:teeth wife:wives woman:women"
)
IRREGULAR = {  # form -> verb or noun
    form: stem
    for stem, _, forms in (entry.partition(":") for entry in _FORMS.split())
    for form in forms.split(",")
}
STEM = re.compile("(?=.*[aeiouy])..")  # of a word, at least
TOKEN = re.compile(r"[a-z]+(?:'[a-z]+)*|\d+|[.,;:!?]")


@lru_cache(maxsize=2**12)
def tokens_of(text: str) -> tuple[str, ...]:
    """Find words, figures and the marks that end clauses.

    Example:
        >>> tokens_of("It’s 5, isn't it?")
        ("it's", '5', ',', "isn't", 'it', '?')
    """
    return tuple(TOKEN.findall(text.lower().replace("’", "'")))


@lru_cache(maxsize=2**12)
def counted_words(text: str) -> Counter[str]:
    """Count words and figures; the result is shared, so it must not be changed."""
    return Counter(token for token in tokens_of(text) if token[0].isalnum())


@lru_cache(maxsize=2**16)
def stems(word: str) -> frozenset[str]:
    """List what an English word can be a form of, including itself and words that do not exist.

    Example:
        >>> sorted(stems("tries")), sorted(stems("went")), "stop" in stems("stopped")
        (['tri', 'trie', 'tries', 'try'], ['go', 'went'], True)
        >>> sorted(stems("bed"))  # short words have no endings
        ['bed']
    """
    found = {word, IRREGULAR.get(word, word)}
    if len(word) > 3:
        if re.search("[^aius]s$", word):
            found |= {word[:-1], re.sub("e?s$", "", word), re.sub("ies$", "y", word)}
        for ending in ("ed", "ing"):
            if word.endswith(ending):
                bare = word.removesuffix(ending)
                found |= {bare, f"{bare}e", re.sub("i$", "y", bare), re.sub(r"(.)\1$", r"\1", bare)}
    return frozenset(stem for stem in found if stem == word or STEM.match(stem))


def inflect(stem: str, ending: str) -> str:
    """Add "ing", "ed" or "s" to an English word; other endings are added unchanged.

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
    """Spell words of WordPiece with :func:`inflect` if they consist of a word and its ending.

    Args:
        pieces: The written pieces.
        known: Pairs of neighbouring pieces in the source, which are left unchanged.

    Example:
        >>> inflect_pieces("reset ##ing and ping ##ing".split(), {("ping", "##ing")})
        ['resetting', 'and', 'ping', '##ing']
        >>> inflect_pieces("cry ##s ##tal".split(), set())
        ['cry', '##s', '##tal']
    """
    words: list[str] = []
    for before, piece, behind in zip(["", *pieces], pieces, [*pieces[1:], ""], strict=False):
        whole = not (before.startswith("##") or behind.startswith("##"))
        if before.isalpha() and piece.startswith("##") and whole and (before, piece) not in known:
            words[-1] = inflect(before, piece[2:])
        else:
            words.append(piece)
    return words
