"""Alterations: another form of a word, or another small word, in the same place."""

import pytest

from simbert_hf.generation.alterations import alters, is_whole_sentence, misplaces_be, puts_in
from simbert_hf.generation.slips import slips_of
from simbert_hf.generation.small_changes import adds_sentence, is_incomplete
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
        ("Where are those shoes?", "Where are that shoes?"),
        ("He isn't in.", "He aren't in."),
        ("I wasn't listening.", "I weren't listening."),
        ("They tried it.", "They try it."),
        ("If I can, he writes it.", "He write it, if I can."),  # "can" is of another clause
    ],
)
def test_what_alters_a_word_is_found(text: str, other: str) -> None:
    assert alters(text, other)
    drafts = [Draft(other, -1.0), Draft(f"In short: {text}", -2.0)]
    assert keep_facts(drafts, text) == drafts[1:]
    assert keep_facts(drafts[:1], text) == drafts[:1]  # better than nothing


@pytest.mark.parametrize(
    ("text", "other", "added"),
    [
        ("Ring the bell.", "Ring off the bell.", True),
        ("Ring off the bell.", "Ring the bell off.", False),
        ("How long will 5 dollars last me?", "How long will 5 dollars last in me?", True),
        ("He helped us move.", "He helped us to move.", False),
        ("all the men", "all of the men", False),
        ("The dog chased the cat.", "The dog chased by a cat.", True),
        ("The dog chased the cat.", "The cat was chased by the dog.", False),
        ("What time is it?", "At what time is it?", False),
        ("a wool coat", "a coat of wool", False),
        ("It is in here, in here.", "It is in there, in here.", False),
    ],
)
def test_what_puts_in_small_words(text: str, other: str, added: bool) -> None:
    assert puts_in(text, other) is added
    drafts = [Draft(other, -1.0), Draft(f"In short: {text}", -2.0)]
    assert keep_facts(drafts, text) == drafts[added:]
    assert keep_facts(drafts[:1], text) == drafts[:1]


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
        ("I was sent a card.", "They sent me a card."),
        ("I try what I tried.", "I try, I try."),
        ("怎么用 app 支付？", "app 支付怎么用？"),
    ],
)
def test_what_alters_none_is_not_found(text: str, other: str) -> None:
    assert not alters(text, other)


@pytest.mark.parametrize(
    "text",
    ["It is cats's.", "Buy a one for me.", "It is big than that.", "Please not call.",
     "You ought be here.", "We re late.", "Does the battery be dead?", "如何怎么退款",
     "How is it like in Paris?", "How does the weather like in Paris?",
     "It is very,.", "McDonald S Opens Late"],
)  # fmt: skip
def test_slips_without_a_text_beside_them(text: str) -> None:
    assert slips_of(text)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("Life without love has no meaning.", "Life without love is no meaning."),
        ("My father is an expert.", "My father has an expert."),
        ("A bearded man knits on the bus.", "A bearded man is knits on the bus."),
        ("I'm relying on you.", "I'm being relying on you."),
        ("what a coincidence to meet you here", "what a coincidence is to meet you here"),
    ],
)
def test_be_is_misplaced(text: str, other: str) -> None:
    assert misplaces_be(text, other)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("Why are the trains so punctual?", "What is the reason the trains are so punctual?"),
        ("i need to know my limit on visa", "i need to know what my limit is on visa"),
        ("Tornado wrecks school; pupils safe", "Tornado wrecks school; pupils are safe"),
        ("It has a lid.", "There is a lid on it."),
        ("Is it safe to go?", "Would it be safe to go?"),
        ("It's late.", "It is late."),
        ("He came, tired but glad.", "He came, was tired but glad."),
    ],
)
def test_be_is_not_misplaced(text: str, other: str) -> None:
    assert not misplaces_be(text, other)


@pytest.mark.parametrize(
    ("other", "complete"),
    [
        ("May I change the address of an order that I placed yesterday?", True),
        ("Is it possible for me to change the address of my order from yesterday?", True),
        ("Can I change my order's address, yesterday's?", True),  # three words fewer
        ("Can I change my order?", False),
        ("Can I get my new thing sent to us here?", False),
        (
            "Can I change what I placed for delivery, yesterday or not, at that address of it?",
            False,
        ),
        ("Can I change that of it as it is now?", False),  # as many words, which say less
    ],
)
def test_what_leaves_out_or_adds_much_is_incomplete(other: str, complete: bool) -> None:
    text = "Can I change the address of my order from yesterday?"
    assert is_incomplete(text, other) != complete
    assert not is_incomplete("我可以改昨天订单的地址吗", "地址能改吗")  # only words are counted


def test_a_sentence_in_place_of_another_is_not_added() -> None:
    assert not adds_sentence("I want it. Now!", "I want it now. Please.")


@pytest.mark.parametrize(
    ("other", "is_kept"),
    [
        ("is 65 w enough for a run of 5 kilometres with 100wh?", True),
        ("are sixty-five watts enough for a 5-km run with 100Wh?", True),
        ("is 65Wh enough for a 5km run with 100W?", False),
        ("is 65W enough for a 5 run with 100Wh?", False),
        ("is 65W enough for a 5cm run with 100Wh?", False),
    ],
)
def test_units_stay_at_their_figures_in_any_spelling(other: str, is_kept: bool) -> None:
    text = "Is 65W enough for a 5km run with 100Wh?"
    assert bool(keep_facts([Draft(other, -1.0)], text)) == is_kept


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("怎么开通5G？", "5G要怎么开通？"),
        ("买5kg大米", "大米买5kg"),
        ("5Gはどう使う", "どう使う5G"),
        ("5G 어떻게 켜요?", "어떻게 5G를 켜요?"),
        ("Ist die Tasche 5 kg schwer?", "Wiegt die Tasche 5 Kilogramm?"),
        ("¿Pesa la bolsa 5 kg?", "¿La bolsa pesa 5 kilogramos?"),
        ("C'est à 5 km d'ici, je crois", "Je crois que c'est à 5 kilomètres d'ici"),
        ("Is the limit 60 mph there?", "Is the limit 60 miles per hour there?"),
        ("Is the limit 60km/h there?", "Is the limit 60 kilometers an hour there?"),
        ("a 65\u2033 TV", "a TV of 65 inches"),
        ("I am 5 feet 10 inches tall", "I am 5 ft 10 in tall"),
        ("I bought 5kg of rice 500 yards away", "500 yds away I bought 5 kgs of rice"),
        ("I ran 5 miles an hour ago", "An hour ago I ran 5 miles"),
    ],
)
def test_units_may_be_spelled_otherwise_or_stand_beside_other_scripts(text, other) -> None:
    assert keep_facts([Draft(other, -1.0)], text)
    assert keep_facts([Draft(text, -1.0)], other)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("Is the limit 60 mph there?", "Is the limit 60 km/h there?"),
        ("Email me at tom5g@x.com", "email me at tom5 g@x.com"),
        ("这个5kg吗", "这个5g吗"),
        ("Ist die Tasche 5kg schwer?", "Ist die Tasche 5 schwer?"),
    ],
)
def test_other_units_and_none_are_other_facts(text, other) -> None:
    assert not keep_facts([Draft(other, -1.0)], text)


def test_the_sign_of_inches_is_a_unit_in_the_singular_or_plural() -> None:
    drafts = [Draft(f"Is a 65{unit} TV good?", -1.0) for unit in ("\u2033", " inch", " inches")]
    assert keep_facts(drafts, "Is a 65\u2033 TV fine?") == drafts


def test_the_end_of_a_sentence_is_found_behind_many_marks():
    """In time that grows with the length alone: by its square, this would take a long while."""
    assert all(map(is_whole_sentence, ("Is it late?", "Late (or not.) ")))
    assert not any(map(is_whole_sentence, ("Man jailed", "No. 5 jailed")))
    assert not is_whole_sentence(f"It is{'.' * 300_000} late")
