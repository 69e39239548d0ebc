"""Words and clauses that change places, and paraphrases that are dropped for it."""

import pytest

from simbert_hf.generation.order import exchanges_places, turns_agent, turns_cause
from simbert_hf.generation.writing import Draft, keep_facts


@pytest.mark.parametrize(
    ("text", "other", "exchanged"),
    [
        ("Malaysia left Singapore in 1965.", "Singapore left Malaysia in 1965.", True),
        ("send it from checking to savings", "please send it from savings to checking", True),
        ("The food made up for it.", "It made up for the food.", True),
        ("The child was bitten by a dog.", "Dogs were bitten by the children.", True),
        ("the interest rate of a bank", "a rate of bank interest", False),  # two more changes
        ("the state of the union", "the union state", False),  # side by side
        ("not tea but coffee, please", "coffee and not tea, please", False),
        ("difference between tea and coffee", "difference between coffee and tea", False),
        ("Rust vs Go: which is faster?", "Go vs Rust: which is faster?", False),
        ("the dog, the dog and a man", "the man, the dog and a dog", False),  # which of the two?
        ("A fox killed the goose.", "The goose was killed by a fox.", False),
    ],
)
def test_words_that_change_places(text: str, other: str, exchanged: bool) -> None:
    assert exchanges_places(text, other) is exchanged
    drafts = [Draft(other, -1.0), Draft(text.upper(), -2.0)]
    assert not exchanged or keep_facts(drafts, text) == drafts[1:]
    assert keep_facts(drafts[:1], text) == drafts[:1]  # none is left without it


@pytest.mark.parametrize(
    ("text", "other", "turned"),
    [
        ("We moved because it rained.", "It rained because we moved.", True),
        ("We moved because it rained.", "We moved, so it rained.", True),
        ("We moved because it rained.", "Since we moved, it rained.", True),
        ("It rained so we moved.", "It rained, as we moved.", True),
        ("We moved because it rained.", "Because it rained, we moved.", False),
        ("We moved because it rained.", "It rained, so we had to move.", False),
        ("Since it rained, we moved.", "As it rained, we moved.", False),
        ("It has rained since we moved.", "It rained because we moved.", False),  # a time
        ("As soon as it rained, we moved.", "We moved, so it rained.", False),
        ("A kiss was ruined by a gull.", "A gull was ruined by a kiss.", True),
        ("A kiss was ruined by a gull.", "By a gull, a kiss was ruined.", False),
        ("A kiss was ruined by a gull.", "A gull ruined a kiss.", False),
        ("We moved because of rain.", "It rained because we moved.", False),
        ("I left because it broke.", "They moved because we paid.", False),  # no word in common
    ],
)
def test_causes_that_become_effects(text: str, other: str, turned: bool) -> None:
    assert turns_cause(text, other) is turned
    drafts = [Draft(other, -1.0), Draft(text.upper(), -2.0)]
    assert not turned or keep_facts(drafts, text) == drafts[1:]


@pytest.mark.parametrize(
    ("text", "other", "turned"),
    [
        ("The cat was chased by the dog.", "The cat chased the dog.", True),
        ("The cat was chased by the dog.", "The dog chased by the cat.", False),  # not told apart
        ("The cat was chased by the dog.", "The dog chased the cat.", False),
        ("A potter shapes a vase.", "A potter is shaped by a vase.", True),
        ("A potter shapes a vase.", "A vase is shaped by a potter.", False),
        ("Was it won on Monday by a woman?", "Was it won by a woman on Monday?", False),
        ("Are you being bitten by gnats?", "Are you getting bitten by gnats?", False),
        ("The hut is surrounded by pines.", "The hut is surrounded with pines.", False),
        ("The bill was paid by him.", "The bill paid him.", True),
        ("He was hit by me today.", "I hit him today.", False),
        ("Can it be sent by email?", "Can you send it via email?", False),  # no one acts
        ("It must be done by Friday.", "We must do it before Friday.", False),
        ("Time is saved by sharing cars.", "You save time sharing cars.", False),
        ("Sales were raised by 10 %.", "They raised sales 10 %.", False),
    ],
)
def test_who_acts_and_who_is_acted_upon(text: str, other: str, turned: bool) -> None:
    assert turns_agent(text, other) is turned
    drafts = [Draft(other, -1.0), Draft(text.upper(), -2.0)]
    assert not turned or keep_facts(drafts, text) == drafts[1:]
