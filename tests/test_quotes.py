"""Curly apostrophes and quotation marks: straight for the model, and back."""

from __future__ import annotations

import pytest

from simbert_hf import gen_synonyms
from simbert_hf.generation.quotes import curl, straighten


def test_a_curly_text_has_the_paraphrases_of_a_straight_one() -> None:
    straight = gen_synonyms("Don't call it \"Plus\", it's late.", n=8)
    curly = gen_synonyms("Don’t call it “Plus”, it’s late.", n=8)
    assert [straighten(found) for found in curly] == straight
    assert any("’" in found and "“Plus”" in found for found in curly)
    assert not any("'" in found or '"' in found for found in curly)


@pytest.mark.parametrize(
    ("text", "straight"),
    [
        ("it’s", "it's"),
        ("I\u00b4m, don`t, it\u02bcs", "I'm, don't, it's"),
        ("the boys’ room, ’98", "the boys' room, '98"),
        ("‘so’ it’s", "‘so’ it's"),
        ("“Yes,” he said", '"Yes," he said'),
        ("6” wide", "6” wide"),
        ("„so“", "„so“"),
        ("“a” \"b\"", "“a” \"b\""),
        ("他说“it’s”", "他说“it’s”"),
        ("`code`", "`code`"),
    ],
)  # fmt: skip
def test_marks_are_straightened_and_curled(text: str, straight: str) -> None:
    assert straighten(text) == straight
    if len({*text} & {*"’`\u02bc\u00b4"}) < 2:  # else nobody knows which
        assert curl(straight, text) == text
