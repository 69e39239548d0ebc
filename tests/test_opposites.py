"""Opposites in a word's place are found, and no others."""

import pytest

from simbert_hf.generation.opposites import PAIRS, SIDES, opposes
from simbert_hf.generation.writing import Draft, keep_facts


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("The train from Leeds is late.", "The train to Leeds is late."),
        ("Turn the lights on.", "Turn the lights off."),
        ("Is it more expensive?", "Is it less expensive?"),
        ("Do you want tea or milk?", "Do you want tea and milk?"),
        ("I BOUGHT a car.", "I sold a car."),
        ("All (excluding chairs)", "All (including chairs)"),
        ("I forgot to lock it.", "I forgot to unlock it."),
        ("Turn left.", "Turn right."),
        ("It is unfair.", "It is fair."),
        ("They raised it.", "They dropped it."),
        ("Stop the timer.", "Keep the timer."),
        ("Is it still open?", "Is it still closing?"),
        ("Are you coming to the park?", "Are you going to the park?"),
    ],
)
def test_opposites_are_found(text: str, other: str) -> None:
    assert opposes(text, other)
    assert opposes(other, text)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("Go from A to B.", "Go to B."),
        ("I was in.", "I was in and out."),
        ("Stocks rise as prices fall.", "As prices drop, stocks go up."),
        ("How do I send it?", "How can it be sent?"),
        ("It is cheap.", "The price is low."),
        ("before noon", "at noon"),
        ("Go to the shop.", "Go into the shop."),
    ],
)
def test_other_words_are_no_opposites(text: str, other: str) -> None:
    assert not opposes(text, other)


def test_no_word_stands_on_two_sides_of_a_line() -> None:
    assert all(len(sides) == 2 and sides[0].isdisjoint(sides[1]) for sides in SIDES)
    assert len({*PAIRS.splitlines()}) == len(SIDES)


def test_an_opposite_is_kept_where_there_is_nothing_else() -> None:
    wrong, right = Draft("prices drop", -1.0), Draft("prices go up", -2.0)
    assert keep_facts([wrong, right], "prices rise") == [right]
    assert keep_facts([wrong], "prices rise") == [wrong]
