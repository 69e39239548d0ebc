"""Curly marks and several in a row: plain for the model, and back."""

from __future__ import annotations

import pytest

from simbert_hf import gen_synonyms
from simbert_hf.generation.marks import marks_as_in, plain_marks


def test_a_curly_text_has_the_paraphrases_of_a_straight_one() -> None:
    straight = gen_synonyms("Don't call it \"Plus\", it's late.", n=8)
    curly = gen_synonyms("Don’t call it “Plus”, it’s late.", n=8)
    assert [plain_marks(found) for found in curly] == straight
    assert any("’" in found and "“Plus”" in found for found in curly)
    assert not any("'" in found or '"' in found for found in curly)


@pytest.mark.parametrize(
    ("text", "straight"),
    [
        ("it’s", "it's"),
        ("I\u00b4m, don`t, it\u02bcs", "I'm, don't, it's"),
        ("the boys’ room, ’98", "the boys' room, '98"),
        ("‘so’ it’s", '"so" it\'s'),
        ("The 'Plus' plan isn't 'it's new'", 'The "Plus" plan isn\'t "it\'s new"'),
        ("'Tis the boys' room, rock 'n' roll, '98", "'Tis the boys' room, rock 'n' roll, '98"),
        ("'a' \"b\" and ‘c’", "'a' \"b\" and ‘c’"),
        ("“Yes,” he said", '"Yes," he said'),
        ("6” wide", "6” wide"),
        ('a 65" or a 55" one', "a 65\u2033 or a 55\u2033 one"),
        ('"65" or a 55" one', '"65" or a 55" one'),
        ("„so“", "„so“"),
        ("“a” \"b\"", "“a” \"b\""),
        ("他说“it’s”", "他说“it’s”"),
        ("`code`", "`code`"),
        ("HELP!!! Is it here?!", "HELP! Is it here?"),
        ("What!? No", "What? No"),
        ('a 5″ or a 6" one', 'a 5″ or a 6" one'),
        ("Where??? See x.com/a?b=1", "Where? See x.com/a?b=1"),
        ("So.... it's ../b or 1...3", "So\u2026 it's ../b or 1\u20263"),
        ("在哪里？？？我不懂！！", "在哪里？我不懂！"),
        ("IM me at dont.com, #cant", "IM me at dont.com, #cant"),
        ("La fille dont je parle", "La fille dont je parle"),
        ("Click **Save** or <b>Stay as is</b>.", "Click Save or Stay as is."),
        ("**Note:** it is *really* _so_", "Note: it is really so"),
        ("**Is it new?**\n* one *\n- **Yes**: it is", "**Is it new?**\n* one *\n- Yes: it is"),
        ("2**3, 4 * 5 * 6, __init__, a_b_c, f*ck", "2**3, 4 * 5 * 6, __init__, a_b_c, f*ck"),
        ("请点击**保存**按钮", "请点击保存按钮"),
        *((kept, kept) for kept in (
            "See https://x.com/_a_/b", "ask @_john_ it", "cd /var/_tmp_/x", "mail _x_@a.com now",
            "/*comment*/ x", "it is \\*not\\* it", "*a</p> b", "tell 'im what the lads' plan is",
            "delete *.* in DOS", "SELECT *, count(*) FROM t", "*.txt/*.md", "sum(*) or count(*)",
            "Match (_, _) or f(_,_)", "hi ^_^ you ^_^",
        )),
    ],
)  # fmt: skip
def test_marks_are_straightened_and_curled(text: str, straight: str) -> None:
    assert plain_marks(text) == straight
    if len({*text} & {*"’`\u02bc\u00b4"}) < 2 and "1..." not in text:  # else nobody knows which
        assert marks_as_in(text, straight) == text


def test_single_quotation_marks_are_no_apostrophes() -> None:
    found = gen_synonyms("The 'Plus' plan costs $10 a month.", n=20)
    assert len(found) > 3
    assert all(text.count("'Plus'") == 1 for text in found)


def test_words_emphasised_twice_or_within_others_are_plain() -> None:
    source = "Is **the big plan** a *plan*? Click _Save_ or _Save_."
    assert marks_as_in(source, "Is the big plan good?") == "Is **the big plan** good?"
    assert marks_as_in(source, "Save the plan") == "Save the plan"


def test_apostrophes_are_put_where_they_lack() -> None:
    assert plain_marks("I DONT know, Im late. its") == "I DON'T know, I'm late. its"
    found = gen_synonyms("dont know why my card isnt working", n=20)
    assert found == gen_synonyms("don't know why my card isn't working", n=20)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Click **Save** to keep your changes.", "**Save**"),
        ("<p>You <em>must</em> restart the whole phone.</p>", "<p>"),
        ("# How do I reset my password?", "# "),
        ("**How can I cancel my order?**", "**"),
        ("<b>How can I cancel my order?</b><br>", "</b><br>"),
        ("“Are you coming?” “Yes, I am on my way.”", "“"),
        ("Read [the whole guide](https://a.com/b) before you start.", "[the whole guide](https://a.com/b)"),
        ('Press <a href="x.y">the red button</a> to stop it.', '<a href="x.y">the red button</a>'),
        ("Run `pip install simbert` to install the tool.", "`pip install simbert`"),
    ],
)  # fmt: skip
def test_markup_stays(text: str, kept: str) -> None:
    found = gen_synonyms(text, n=10, max_new_tokens=20)
    assert len(found) > 1
    assert all(other.count(kept) == text.count(kept) for other in found)


def test_marks_in_addresses_stay() -> None:
    assert marks_as_in("See x.com/a?b=1???", "is it x.com/a?b=1?") == "is it x.com/a?b=1???"


def test_three_dots_that_a_tokenizer_made_are_one_mark_again() -> None:
    assert marks_as_in("Wait…", "Please wait...") == "Please wait…"
