"""Opposites: "rise" for the text's "fall", which vectors hardly tell apart.

Of 28,530 paraphrases that a reader rated (the first two rounds of scripts/data/rated_en), .8 % have
one in place of a word of the text, and 2 % of these are good; of the 8,436 in the other files
there, .8 %, and none of these is good.
"""

from __future__ import annotations

from itertools import chain

from simbert_hf.generation.inflection import stems
from simbert_hf.utils.text import read_sides, words_of

PAIRS = """\
from to
in out
on off
up down
and or
before after
above|over below|under
inside outside
first last
last next
left right
ago later
since until|till
almost|nearly hardly|barely
against for|with|support
stop keep|continue
more less|fewer
most least
best worst
better worse
good bad
safe dangerous
alive dead
rich poor
happy|glad sad|unhappy
easy|easier hard|harder|difficult
cheap|cheaper expensive
early|earlier late|later
fast|faster|quick|quickly slow|slower|slowly
big|bigger|large|larger small|smaller|little
high|higher|highest low|lower|lowest
long|longer short|shorter
hot|warm cold|cool
open close
start|begin stop|end
increase decrease
rise fall|drop
raise lower|cut|reduce|drop
win lose
buy sell
send receive
add remove|delete
push pull
come go
arrive leave
accept refuse|reject
remember forget
love hate
same different
legal|lawful|allowed|permitted illegal|unlawful|forbidden|prohibited|banned
yes no
include exclude
wide|wider narrow|narrower
thick|thicker thin|thinner
deep|deeper shallow|shallower
pass fail
give take
landlord tenant
employer employee
buyer seller
doctor patient"""
SIDES = read_sides(PAIRS)  # and all forms of these words

DENYING = ("un", "in", "im", "il", "ir", "dis", "non", "mis")  # before a word


def opposes(text: str, other: str) -> bool:
    """Whether another English text has the opposite of a word that it lacks.

    Example:
        >>> opposes("Stocks rise.", "Stocks fall."), opposes("Move it to A.", "Move it from A.")
        (True, True)
        >>> opposes("from A to B", "to B, from A"), opposes("Is it cheap?", "Is it not expensive?")
        (False, True)
    """
    ours, theirs = words_of(text), words_of(other)
    gone, come = ours - theirs, theirs - ours
    known, told = ({*chain.from_iterable(map(stems, words))} for words in (ours, theirs))
    return any(
        known & one and told & opposite and not (known & opposite or told & one)
        for sides in SIDES
        for one, opposite in (sides, sides[::-1])
    ) or any(
        {prefix + word for word in some if len(word) > 3} & others
        for some, others in ((gone, come), (come, gone))
        for prefix in DENYING
    )
