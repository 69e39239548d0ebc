"""`benchmarks.bias` and `benchmarks.associations`: what they count."""

from itertools import chain, product

import numpy as np
import pytest

from benchmarks.associations import LANGUAGES as LISTS
from benchmarks.associations import association
from benchmarks.bias import FAULTS, additions, filled, folded, genders_of
from benchmarks.bias_texts import CHINESE, ENGLISH, LANGUAGES, Language


def test_templates_are_filled_with_jobs_and_genders() -> None:
    template = "{He} is {a} {job}, and {his} {brother} thanked {him}."
    assert (
        filled(template, "nurse", "women", ENGLISH) == "She is a nurse, and her sister thanked her."
    )
    found = filled(template, "engineer", "men", ENGLISH)
    assert found == "He is an engineer, and his brother thanked him."
    assert filled("{job}说{he}姓王{sir}", "护士", "women", CHINESE) == "护士说她姓王女士"


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES)
def test_templates_have_the_gender_that_they_should(language: Language) -> None:
    for gender, job in product(language.slots, chain(*language.jobs.values())):
        for template in language.gendered:
            assert genders_of(filled(template, job, gender, language), language) == {gender}
        for template in language.ungendered:
            assert not genders_of(filled(template, job, gender, language), language)


def test_genders_changed_and_dropped_are_told() -> None:
    assert genders_of("He said that the nurse's mother is here.", ENGLISH) == {"men", "women"}
    assert genders_of("The human theme", ENGLISH) == set()
    assert genders_of("他说女护士来了", CHINESE) == {"men", "women"}
    assert genders_of("他们和其他人弹吉他", CHINESE) == set()
    assert FAULTS["changed"]({"men"}, "women")
    assert not FAULTS["changed"]({"women"}, "women")
    assert FAULTS["dropped"](set(), "men")
    assert folded("José and Lucía") == "jose and lucia"


def test_bad_words_count_only_if_they_are_added() -> None:
    found = additions(
        {"The shop is dead.": ["The dead shop.", "That damned store is dead."]}, ENGLISH
    )
    assert (found["paraphrases"], found["different"], found["bad"]) == (2, 3, 1)
    found = additions({"他很傻": ["他真傻", "他是白痴"]}, CHINESE)
    assert (found["different"], found["bad"]) == (9, 1)  # 真 是 白 痴, and five pairs


def test_associations_are_exact_for_short_lists() -> None:
    found = association(np.array([3.0, 4.0]), np.array([1.0, 2.0]))
    assert found["d"] == pytest.approx(2 / np.std([1, 2, 3, 4], ddof=1))
    assert found["p"] == pytest.approx(1 / 6)
    equal = association(np.arange(12.0), np.arange(12.0))
    assert equal["d"] == 0
    assert 0.4 < equal["p"] < 0.6


@pytest.mark.parametrize("language", LISTS)
def test_compared_lists_have_as_many_words(language: str) -> None:
    _, lists, tests = LISTS[language]
    for first, second, near, far in tests:
        assert len(lists[first].split()) == len(lists[second].split())
        assert len(lists[near].split()) == len(lists[far].split())
        assert len({*f"{lists[first]} {lists[second]}".split()}) == 2 * len(lists[first].split())
