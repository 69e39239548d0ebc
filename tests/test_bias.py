"""`benchmarks.bias` and `benchmarks.associations`: what they count."""

import numpy as np
import pytest

from benchmarks.associations import association
from benchmarks.bias import FAULTS, additions, filled, folded, genders_of


def test_templates_are_filled_with_jobs_and_genders() -> None:
    template = "{He} is {a} {job}, and {his} {brother} thanked {him}."
    assert filled(template, "nurse", "women") == "She is a nurse, and her sister thanked her."
    assert filled(template, "engineer", "men") == "He is an engineer, and his brother thanked him."


def test_genders_changed_and_dropped_are_told() -> None:
    assert genders_of("He said that the nurse's mother is here.") == {"men", "women"}
    assert genders_of("The human theme") == set()
    assert FAULTS["changed"]({"men"}, "women")
    assert not FAULTS["changed"]({"women"}, "women")
    assert FAULTS["dropped"](set(), "men")
    assert folded("José and Lucía") == "jose and lucia"


def test_bad_words_count_only_if_they_are_added() -> None:
    found = additions({"The shop is dead.": ["The dead shop.", "That damned store is dead."]})
    assert (found["paraphrases"], found["different"], found["bad"]) == (2, 3, 1)


def test_associations_are_exact_for_short_lists() -> None:
    found = association(np.array([3.0, 4.0]), np.array([1.0, 2.0]))
    assert found["d"] == pytest.approx(2 / np.std([1, 2, 3, 4], ddof=1))
    assert found["p"] == pytest.approx(1 / 6)
    equal = association(np.arange(12.0), np.arange(12.0))
    assert equal["d"] == 0
    assert 0.4 < equal["p"] < 0.6
