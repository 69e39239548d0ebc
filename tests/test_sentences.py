import re
import time
from itertools import product

import numpy as np
import pytest
import torch

from simbert_hf.generation import sentences as module
from simbert_hf.generation.search import SearchSettings
from simbert_hf.generation.sentences import (
    cut_signs,
    end_as,
    ends_in,
    split_sentences,
    worth_writing,
)
from simbert_hf.generation.synonyms import FLUENCY_WEIGHT, Paraphrase, join
from simbert_hf.generation.writing import write
from tests.tiny import tiny_simbert, wordpiece_tokenizer

FIRST, SECOND = "how can i reset my password?", "the weather is nice."
TEXT = f"{FIRST} {SECOND}"


@pytest.fixture(scope="module")
def model():
    model = tiny_simbert(tokenizer=wordpiece_tokenizer())
    with torch.no_grad():
        model.cls.predictions.bias[model.rows.sep_id] += 4.0
    return model


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("what is it", ["what is it"]),
        ("It cost $3.50 at 5 p.m. in the U.S. office.", None),
        ("See e.g. node.js or Mr. Smith, No. 5.", None),
        ("i lost it here. can you help me?", ["i lost it here. ", "can you help me?"]),
        ("one two three\n\nfour five six\n", ["one two three\n\n", "four five six\n"]),
        ("Thanks. Where is my refund?", None),  # too short a sentence joins the next,
        ("Where is my refund? Please help!", None),  # or the last of its line
        ("Hi,\n\nwhere is it? Thx.\nBob", ["Hi,\n\n", "where is it? ", "Thx.\n", "Bob"]),
        ("a b c.\n1. d e f\n2. g", ["a b c.\n", "1. ", "d e f\n", "2. ", "g"]),
        ("1. d e f", ["1. ", "d e f"]),
        ("1. Open it. 2. Log in.", ["1. ", "Open it. ", "2. ", "Log in."]),
        ("I 1) eat it, or 2) do not", ["I", " 1) ", "eat it", ", or 2) ", "do not"]),
        ("see 1) and 2) above", None),
        ("- a\n- b\n- c", ["- ", "a\n", "- ", "b\n", "- ", "c"]),
        ("It cost me 3. - 5 in all.", ["It cost me 3. ", "- 5 in all."]),
        ("1. ", None),
        ("where did i lose\nit?", None),
        ("Hi,\n\nwhere did i lose\nit?\n", ["Hi,\n\n", "where did i lose\nit?\n"]),
        ("Hi,\nwhere did i lose it?", ["Hi,\n", "where did i lose it?"]),
        ("No. Yes!", None),
        ("No.\nYes!\n", ["No.\n", "Yes!\n"]),
        ("Reset password\nLock card", ["Reset password\n", "Lock card"]),
        ("...", None),
        (" \n one two three\r\n \n", None),
        ("\n\nHi.now", None),
        ("1. \nok\n\n", ["1. \n", "ok\n\n"]),
        ("<b><br>is it mine?</b>", None),
        ("", None),
        ("我的卡丢了。可以补办吗？谢谢！", ["我的卡丢了。", "可以补办吗？谢谢！"]),
    ],
)
def test_sentences_of_a_text(text, sentences):
    assert split_sentences(text) == (sentences or [text])
    assert "".join(split_sentences(text)) == text


def test_numerals_of_lists_are_no_words_to_paraphrase():
    assert worth_writing(["十二、", "好的"]) == ["好的"]
    assert worth_writing(["send us now", " 1) ", "a bill"]) == ["send us now"]  # too short an item


def test_a_sentence_takes_the_mark_that_it_lacks():
    assert end_as("go", "Stop!") == "go!"
    assert end_as("go.", "Stop!") == "go."
    assert end_as("go", "stop") == "go"


@pytest.mark.parametrize("n", [1, 4, 20])
def test_join_takes_the_best_sums_as_trying_all_does(n):
    rng = np.random.default_rng(n)
    sentences = ["A a a. ", "B b b.\n\n", "C c c?", "D"]
    found = {
        sentence.strip(): [
            Paraphrase(f"{sentence[0]}{i}", score, score, -i, -2 * i)
            for i, score in enumerate(sorted(rng.random(5), reverse=True))
        ]
        for sentence in sentences[:3]
    } | {"D": [Paraphrase("of another text", 1.0, 1.0, 0.0, 0.0)]}
    drafts = join(sentences, found, n)
    every = product(*(found[sentence.strip()] for sentence in sentences[:3]))
    best = sorted(every, key=lambda row: -sum(one.score for one in row))[:n]
    assert [draft.text for draft in drafts] == [
        f"{a.text}. {b.text}.\n\n{c.text}?D" for a, b, c in best
    ]
    means = [sum(one.log_prob for one in row) / 4 for row in best]
    assert [draft.log_prob for draft in drafts] == pytest.approx(means)
    assert [draft.reverse_log_prob for draft in drafts] == pytest.approx([2 * x for x in means])


def test_very_many_sentences_join():
    found = {"a b c.": [Paraphrase(text, 1.0, 1.0, -1.0, -1.0) for text in "de"]}
    drafts = join(["a b c. "] * 200, found, 5)
    assert len(drafts) == 5
    assert drafts[0].text == " ".join(["d."] * 200)


@pytest.mark.filterwarnings("ignore::UserWarning")  # the tiny model knows none of these
@pytest.mark.parametrize("text", ['" "', "** **", "<b> </b>", "“ ”", "<br>"])
def test_marks_alone_leave_other_texts_their_paraphrases(model, text):
    alone, among = (model.gen_synonyms(texts, n=6, k=6, max_new_tokens=6, seed=0) for texts in (
        [FIRST], [FIRST, text]
    ))  # fmt: skip
    assert among[0] == alone[0]


def test_blocks_of_html_part_sentences():
    text = "<p>Hello<br>how do i reset my password<br/>\nthank you very much</p><p>Bye</p>"
    parts = split_sentences(text)
    assert "".join(parts) == text
    assert [cut_signs(part)[1] for part in parts] == [
        "Hello",
        "how do i reset my password",
        "thank you very much",
        "Bye",
    ]
    assert split_sentences("x <p-tag> is") == ["x <p-tag> is"]
    assert cut_signs("> 18 years")[0] == ""


def test_each_sentence_is_paraphrased_and_all_are_ranked_together(model):
    options = {"n": 6, "k": 6, "seed": 0, "max_new_tokens": 6, "return_scores": True}
    parts = [model.gen_synonyms(sentence, **options) for sentence in (FIRST, SECOND)]
    found = model.gen_synonyms(TEXT, **options)
    assert len(found) == 6
    made = {f"{end_as(a.text, FIRST)} {end_as(b.text, SECOND)}" for a, b in product(*parts)}
    assert {one.text for one in found} <= made
    vectors = model.encode([TEXT, *(one.text for one in found)])
    assert [one.similarity for one in found] == pytest.approx(vectors[1:] @ vectors[0], abs=1e-5)
    scores = [one.score for one in found]
    assert scores[0] == max(scores)
    fluencies = [one.log_prob + one.reverse_log_prob for one in found]
    wanted = [a.similarity + FLUENCY_WEIGHT * b for a, b in zip(found, fluencies, strict=True)]
    assert scores == pytest.approx(wanted)


def test_a_text_of_sentences_gets_the_same_alone_and_among_others(model):
    options = {"n": 6, "k": 6, "seed": 0, "max_new_tokens": 6}
    texts = [SECOND, TEXT, "dog", TEXT, f"{SECOND} {FIRST}", f"dog\n{FIRST}"]
    among = model.gen_synonyms(texts, **options)
    assert among == [model.gen_synonyms(text, **options) for text in texts]


def test_lines_stay(model):
    for found in model.gen_synonyms(f"go,\n\n{FIRST} \ndog", n=6, k=6, seed=0, max_new_tokens=6):
        assert found.startswith("go,\n\n")
        assert found.endswith("? \ndog")


@pytest.mark.parametrize("copying", [0, 1])
def test_emoji_at_the_ends_stay(model, copying):
    options = {"n": 6, "k": 6, "seed": 0, "max_new_tokens": 6, "copying": copying}
    for text in (
        f"\U0001f600 {FIRST} \u2764\ufe0f\U0001f44d\U0001f3fd",
        f"{FIRST}\U0001f600 {SECOND}",
    ):
        start, *between, end = re.split(f"{re.escape(FIRST)}|{re.escape(SECOND)}", text)
        found = model.gen_synonyms(text, **options)
        assert found
        for one in found:
            assert one.startswith(start)
            assert one.endswith(end)
            assert all(middle in one for middle in between)
    bare, marked = (model.gen_synonyms(text, **options) for text in (FIRST, f"{FIRST} \U0001f600"))
    assert {f"{end_as(one, FIRST)} \U0001f600" for one in bare} == {*marked}


def test_lines_of_emoji_stay(model):
    options = {"n": 6, "k": 6, "seed": 0, "max_new_tokens": 6}
    for found in model.gen_synonyms(f"{FIRST}\n\U0001f600\n{SECOND}", **options):
        assert "\n\U0001f600\n" in found


@pytest.mark.parametrize(
    ("sentence", "cut"),
    [
        ("\n\u2192 \n", ("\n", "\u2192", " \n")),
        (" hi\u20e3", (" ", "hi", "\u20e3")),
        ("\U0001f3f4\U000e0067\U000e007f ok", ("\U0001f3f4\U000e0067\U000e007f ", "ok", "")),
        ("I lost it :( ", ("", "I lost it", " :( ")),
        ("it is new <3", ("", "it is new", " <3")),
        (":D ok, see (a) or a:b", (":D ", "ok, see (a) or a:b", "")),
        ("turn to \u27e8x\u27e9", ("", "turn to \u27e8x\u27e9", "")),
    ],
)
def test_signs_are_cut_off_and_kept(sentence, cut):
    assert cut_signs(sentence) == cut


def test_long_runs_of_blanks_take_no_quadratic_time():
    long = f"a{' ' * 200_000}b{chr(0x1F600) * 200_000}c"
    started = time.perf_counter()
    assert cut_signs(f"{long} ") == ("", long, " ")
    assert not module.LISTED.search("1) a b " * 20_000)
    assert time.perf_counter() - started < 5  # the square would take minutes


@pytest.mark.parametrize("unit", ["\n", "! ", "<a>! ", "\N{GRINNING FACE}! ", "“", "`a`"])
def test_work_on_a_text_grows_with_its_length(unit, monkeypatch):
    lengths = {"segment": [], "says_enough": []}

    def record(name):
        function = getattr(module, name)

        def recorded(*given):
            lengths[name].append(len(given[-1]))
            return function(*given)

        monkeypatch.setattr(module, name, recorded)

    record("segment")
    record("says_enough")
    text = unit * (20_000 // len(unit)) + "is it late now"
    assert "".join(split_sentences(text)) == text
    assert max(lengths["segment"]) <= 2500  # whose time grows with the square
    assert sum(lengths["segment"]) <= 2 * len(text)
    assert sum(lengths["says_enough"]) <= 400 * len(text)


@pytest.mark.parametrize(
    "once",
    [
        'He said: "Come in. Sit down." Does Mr. Smith work here? I lost it, e.g. today.\n\n',
        "我的卡丢了。可以补办吗？谢谢你们的帮助。\n\n",
    ],
)
def test_sentences_of_a_long_text_end_where_those_of_its_parts_do(once):
    ends = sorted(ends_in(once, "en"))
    assert len(ends) > 2
    wanted = [start + end for start in range(0, 300 * len(once), len(once)) for end in ends]
    assert sorted(ends_in(once * 300, "en")) == wanted
    assert ends_in("a" * 9000, "en") == {9000}


def test_of_what_the_model_cannot_read_it_writes_nothing(model):
    with pytest.warns(UserWarning, match="Half or more of a text's tokens are unknown"):
        assert model.gen_synonyms("\U0001f600", n=4, seed=0) == []


def test_short_lines_stay(model):
    options = {"n": 6, "k": 6, "seed": 0, "max_new_tokens": 6}
    for text in ("the cat\nthe dog\n", "1. the cat\n2. dog"):
        found = model.gen_synonyms(text, **options)
        assert found
        assert {paraphrase.count("\n") for paraphrase in found} == {1}
    assert model.gen_synonyms("1. cat\n2. dog", **options) == []  # single words are left alone
    assert all(
        paraphrase.startswith("go.\n")
        for paraphrase in model.gen_synonyms("go.\nthe cat", **options)
    )


def test_a_text_is_paraphrased_at_once_if_asked(model):
    options = {"n": 20, "k": 20, "seed": 0, "max_new_tokens": 8}
    whole = model.gen_synonyms(TEXT, by_sentence=False, **options)
    drafts = write(model, [TEXT], SearchSettings(n=20, seed=0, max_new_tokens=8))[0]
    assert sorted(whole) == sorted(draft.text for draft in drafts)
    assert whole != model.gen_synonyms(TEXT, **options)


def test_a_long_text_of_sentences_is_ranked_by_its_beginning_with_a_warning(model):
    long = " ".join([SECOND] * 20)
    with pytest.warns(UserWarning, match="were cut to that length"):
        found = model.gen_synonyms(long, n=2, k=2, seed=0, max_new_tokens=4)
    assert all(len(text.split()) >= 20 for text in found)
