"""Words coined, exchanged, put in or said twice, and paraphrases that are dropped for them."""

import pytest

from simbert_hf import SimBert
from simbert_hf.generation.facts import loses_bounds, repeats_facts
from simbert_hf.generation.small_changes import changes_whose, coins_word, says_twice, swaps_word
from simbert_hf.generation.writing import Draft, keep_facts


@pytest.mark.parametrize(
    ("text", "other", "coined"),
    [
        ("My dermatologist is ill.", "My dermatlogist is ill.", True),
        ("The router is too slow.", "The routers are too slow.", False),
        ("They digitised it.", "They digitized it.", False),
        ("It is Leila's cryptocurrency.", "It is Leila cryptocurrency.", False),
        ("Pay in cryptocurrency.", "Pay in crypturrency.", True),
        ("Two hikers were found.", "Two hikingrs were found.", True),
        ("The tour was whirlwind.", "The tour was whirl window.", True),
    ],
)
def test_coined_words(text: str, other: str, coined: bool, english: SimBert) -> None:
    tokenize = english.rows.tokenizer.tokenize
    assert coins_word(text, other, tokenize) is coined
    drafts = [Draft(other, -1.0), Draft(text.upper(), -2.0)]
    assert not coined or keep_facts(drafts, text, tokenize) == drafts[1:]


@pytest.mark.parametrize(
    ("text", "other", "swapped"),
    [
        ("Is the plan slow?", "Does the plan slow?", True),
        ("It did not work.", "It was not work.", True),
        ("What is it like?", "How is it like?", True),
        ("How much RAM is it?", "How many RAM is it?", True),
        ("How about you?", "What do you think?", False),
        ("all night long", "every night long", True),
        ("the key does not exist", "the key which does not exist", True),
        ("It doesn't work.", "It isn't good.", False),
        ("Tell me about it.", "Tell me what.", False),
        ("Stop if it gets hot.", "Stop whether it is getting hot.", True),
        ("I wonder if it is hot.", "I wonder whether it is hot.", False),
        ("Please verify if it is hot.", "Please verify whether it is hot.", False),
        ("She's checking if it is hot.", "She's checking whether it is hot.", False),
    ],
)
def test_swapped_words(text: str, other: str, swapped: bool) -> None:
    assert swaps_word(text, other) is swapped


@pytest.mark.parametrize(
    ("text", "other", "twice"),
    [
        ("It costs 5 now.", "Now it costs 5 now.", True),
        ("Which of your friends is it?", "Which friend of yours is it?", False),
        ("They would pay if they could.", "They would if they could, would they?", False),
        ("Is it the Pro or the Basic plan?", "Is it the Pro and the Pro or the Basic plan?", True),
        ("I do not know and do not care.", "I don't know and don't care.", False),
        ("I am ill and not sure.", "I'm ill, and I'm not sure.", False),
        ("Is it the Pro or the Pro Max?", "Is it the Pro Max or the Pro?", False),
        ("Who wrote The Crown?", "Who was the writer of the Crown?", False),
    ],
)
def test_what_is_said_twice(text: str, other: str, twice: bool) -> None:
    assert says_twice(text, other) is twice
    drafts = [Draft(other, -1.0), Draft(text.upper(), -2.0)]
    assert (drafts[0] in keep_facts(drafts, text, repeats=False)) is not twice
    assert drafts[0] in keep_facts(drafts, text, repeats=True)


@pytest.mark.parametrize(
    ("text", "other", "lost"),
    [
        ("withdraw up to $500", "withdraw more than $500", True),
        ("people under 26", "people older than 26", True),
        ("not older than 26", "at most 26", False),
        ("no fewer than 5", "at least 5", False),
        ("almost 5 of over 9", "over 9, of these nearly 5", False),
    ],
)
def test_bounds(text: str, other: str, lost: bool) -> None:
    assert loses_bounds(text, other) is lost


@pytest.mark.parametrize(
    ("text", "other", "repeated"),
    [
        ("Neither is late.", "NEITHER a NOR b is late.", False),
        ("the third of 3 books", "3 books of 3", False),
        ("the third book", "the third and 3", True),
        ("between $3 and $5", "between $3 and 5 dollars", False),
        ("between $3 and $5", "between 3 and 5 dollars", False),
        ("between $3 and $5", "between $3 and 5", True),
    ],
)
def test_numbers_and_negations_said_twice(text: str, other: str, repeated: bool) -> None:
    assert repeats_facts(text, other) is repeated


@pytest.mark.parametrize(
    ("text", "other", "changed"),
    [
        ("The secretary forgot the keys.", "The secretary forgot his keys.", True),
        ("the patient thanked her nurse", "the patient thanked your nurse", True),
        ("My sister took my coat.", "My sister took her coat.", True),
        ("Is he's late?", "Is he late?", False),
        ("Is your card lost?", "Is the card that is yours lost?", False),
        ("She sold her car to him.", "She sold him her car.", False),
        ("我把她的书还了", "我把他的书还了", False),  # Chinese has its own rules
    ],
)
def test_possessives_and_genders(text: str, other: str, changed: bool) -> None:
    assert changes_whose(text, other) is changed
    drafts = [Draft(other, -1.0), Draft(text, -2.0)]
    if changed:
        assert [one.text for one in keep_facts(drafts, text, str.split, repeats=False)] == [text]
