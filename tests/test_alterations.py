"""Alterations: another form of a word, or another small word, in the same place."""

import pytest

from simbert_hf.generation.agreement import slips_of
from simbert_hf.generation.alterations import alters
from simbert_hf.generation.writing import Draft, keep_facts


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("He gets a high salary.", "He get a high salary."),
        ("I appeal to you.", "I appeals to you."),
        ("I have given it thought.", "I have gave it thought."),
        ("She must have told a lie.", "She must have tell a lie."),
        ("He wants to kiss her.", "He wants to kissing her."),
        ("They were kept from leaving.", "They were kept from leave."),
        ("We took a walk.", "We taken a walk."),
        ("Give me a hundred dollars.", "Give me a hundred dollar."),
        ("Does he write letters?", "Does he wrote letters?"),
        ("Please divide the pizza.", "Please divided the pizza."),
        ("Two children try it.", "Two child try it."),
        ("The trees were a source of joy.", "The trees was a source of joy."),
        ("Does she like it?", "Do she like it?"),
        ("He has his hair cut.", "He have his hair cut."),
        ("Tell me why.", "Tell him why."),
    ],
)
def test_what_alters_a_word_is_found(text: str, other: str) -> None:
    assert alters(text, other)
    drafts = [Draft(other, -1.0), Draft(f"In short: {text}", -2.0)]
    assert keep_facts(drafts, text) == drafts[1:]
    assert keep_facts(drafts[:1], text) == drafts[:1]  # better than nothing


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("How does it work?", "Tell me how it works."),
        ("Did they pay the bill?", "Is it true that they paid the bill?"),
        ("I want to swim.", "I like swimming."),
        ("Why does she have a car?", "How come she has a car?"),
        ("She was invited, and I was not.", "I was not invited, and she was."),
        ("An hour is enough.", "A whole hour is enough."),
        ("He bought a big car.", "He bought a large car."),
        ("It is on a desk.", "It is at the desk."),
        ("The play is long.", "He is a player."),
        ("See the theme.", "See them."),
        ("It is red, and she is glad.", "She is glad, and it is red."),
        ("Ask for it to be sent.", "Ask to have it sent."),
        ("怎么用 app 支付？", "app 支付怎么用？"),
    ],
)
def test_what_alters_none_is_not_found(text: str, other: str) -> None:
    assert not alters(text, other)


@pytest.mark.parametrize(
    "text",
    ["It is cats's.", "We'm late.", "I been moved.", "Wait, don't he?", "You aren.",
     "I have need it.", "My cat ' is here.", "Him has it.", "Do you've it?", "Go to to bed.",
     "Mrs. Mrs. Smith", "An e-email"],
)  # fmt: skip
def test_slips_without_a_text_beside_them(text: str) -> None:
    assert slips_of(text)
