"""Placeholders: what a model cannot write stands as one letter, and comes back whole."""

import pytest

from simbert_hf.generation.placeholders import Held, hold_words, letters_known
from simbert_hf.generation.search import SearchSettings
from simbert_hf.generation.writing import Draft, restored, write
from tests.tiny import unigram_tokenizer, wordpiece_tokenizer


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Where is my card?", []),
        ("What does 谢谢 mean, or «多谢»?", ["谢谢", "多谢"]),
        ("What does 谢谢你们大家 mean?", ["谢谢你们大家"]),  # more characters than words
        ("I❤️NY, (pizza🍕) and 👨‍👩‍👧.", ["I❤️NY", "pizza🍕", "👨‍👩‍👧"]),
        ("李雷's boss and 李雷 are in Łódź.", ["李雷"]),  # one letter for both
        ("I need \uff15 tickets\uff0cok, with 中国", ["\uff15", "中国"]),  # it knows both
        ("Does спасибо mean مرحبا or 안녕하세요?", ["спасибо", "مرحبا", "안녕하세요"]),
        ("A π, a 2-year-old, 24/7, $500, C++ and a.m.", []),
        ("On 12/05/2024 at 10:45 from 192.168.0.1", ["12/05/2024", "192.168.0.1"]),
        ("Pay $1,199.00 for SKU-12345-XY.", ["$1,199.00", "SKU-12345-XY"]),
        ("Mail b.c@d-e.co.uk or https://a.b/c?d=e.", ["b.c@d-e.co.uk", "https://a.b/c?d=e"]),
        ("Read C:\\Users\\me\\a.txt, see example.com", ["C:\\Users\\me\\a.txt"]),
        ("Follow @john_doe, #love and #1", ["@john_doe", "#love"]),
        (
            "Hi {{name}}, is {order_id} or [ORDER] at <PLACE>, %s?",
            ["{{name}}", "{order_id}", "[ORDER]", "<PLACE>", "%s"],
        ),
        (
            "Hi {{ name }}, or {first}{last}: mail {user}@a.com.",
            ["{{ name }}", "{first}{last}", "{user}@a.com"],
        ),
        (
            "See ![a cat](b.png), [the guide](c.de/f), `a b`, <code>a b</code> or <br/>, a <b c=d",
            ["![a cat](b.png)", "[the guide](c.de/f)", "`a b`", "<code>a b</code>", "<br/>"],
        ),
        ("If a <b and c = d then e > f", ["c = d", "e > f"]),
        ("Is 2x + 1 = 7, or tap File > Save", ["2x + 1 = 7", "File > Save"]),
        ("a box of 30 x 20 x 15 cm", ["30 x 20 x 15 cm"]),
        ("Is it :) or :-( or the XD card, in <3 days?", [":)", ":-("]),
        ("Run git --force, rm -rf or a-b - no, -but -it -no x", ["--force", "-rf", "-it"]),
        ("At 5:3 (or 4) a note:(no)", []),
        ("Tom &amp; Anna&#39;s &lt;5; AT&T; R&D;", ["&amp;", "Anna&#39;s", "&lt;5"]),
        ("(caf&eacute;), 5&deg; &quot;so&quot;.", ["caf&eacute;", "5&deg;", "&quot;so&quot;"]),
        (
            'Press <a href="x y">the button</a>, <u>both</u> <i>of</i> <br> here <br> now',
            ['<a href="x y">the button</a>', "<u>both</u>", "<i>of</i>", "<br>"],
        ),
        ("我用苹果手机和python，😀", ["用", "苹", "果", "机", "😀"]),
    ],
)
def test_what_a_model_cannot_write_is_held(english, text, words):
    (held,) = hold_words(english.tokenizer, [text], figures=True)
    assert [*held.words.values()] == words
    (first,) = hold_words(english.tokenizer, [text])
    later = {"12/05/2024", "192.168.0.1", "$1,199.00", "SKU-12345-XY", "30 x 20 x 15 cm"}
    later |= {"c = d", "e > f", "2x + 1 = 7", "File > Save"}
    assert [*first.words.values()] == [word for word in words if word not in later]
    assert held.restore(held.text) == text
    assert held.is_in(held.text)
    assert english.tokenizer.unk_token_id not in english.tokenizer(held.text)["input_ids"]
    assert all(held.text.count(letter) == text.count(held.words[letter]) for letter in held.words)


def test_nothing_is_written_behind_an_address(english):
    text = "Why did you write to anna.k@web.de?"
    (drafts,) = write(english, [text], SearchSettings(n=20, strategy="beam"))
    assert len(drafts) > 5
    assert all(draft.text.partition("anna.k@web.de")[2] in ("", "?") for draft in drafts[:5])


def test_letters_of_the_text_itself_are_no_placeholders(english):
    letters = letters_known(english.tokenizer)
    assert len(letters) > 100
    (held,) = hold_words(english.tokenizer, [f"{letters[0]} is no 😀"])
    assert held == (f"{letters[0]} is no {letters[1]}", {letters[1]: "😀"})
    (held,) = hold_words(english.tokenizer, [" ".join(map(chr, range(0x1F300, 0x1F3FF)))])
    assert [*held.words] == [*letters[:255]]  # the last ones are too many
    assert held.restore(held.text).endswith("\U0001f3fe")


def test_of_other_tokenizers_nothing_is_held():
    for tokenizer in (unigram_tokenizer(), wordpiece_tokenizer()):
        assert hold_words(tokenizer, ["a 😀", ""]) == [Held("a 😀", {}), Held("", {})]
    assert hold_words(wordpiece_tokenizer(), []) == []


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("WHAT DOES 谢谢 MEAN IN CHINESE?", ["谢谢"]),
        ("I ❤️ pizza and 🍣 and 🍔 very much", ["❤️", "🍣", "🍔"]),
        ("If 李雷 calls, tell 韩梅梅 I am out.", ["李雷 ", "韩梅梅 "]),
        ("Tap File > Save to keep your work.", ["File > Save"]),
        ("Call me at +1 (555) 123-4567 on 12/05/2024", ["+1 (555) 123-4567", "12/05/2024"]),
    ],
)
def test_what_is_held_comes_back(english, text, kept):
    found = english.gen_synonyms(text, n=10, max_new_tokens=20)
    assert len(found) >= 3
    assert all(other.count(word) == text.count(word) for other in found for word in kept)
    letters = {*"".join(found)} & {*letters_known(english.tokenizer)}
    assert not letters
    assert all(other.isupper() == text.isupper() for other in found)


def test_a_formula_that_the_model_copies_is_not_held(english):
    assert english.gen_synonyms("what is 7 x 8?", n=20, k=1) == ["what's 7 x 8?"]


def test_other_texts_of_a_batch_have_no_placeholder(english):
    texts = ["is 🍣 good?", "Where is my card?"]
    both = write(english, texts, SearchSettings(10, max_new_tokens=12))
    (alone,) = write(english, texts[1:], SearchSettings(10, max_new_tokens=12))
    assert [draft.text for draft in both[1]] == [draft.text for draft in alone]
    assert all("🍣" in draft.text for draft in both[0])


@pytest.mark.parametrize("text", ["谢谢!", "привет как дела", "\u00ad", "?!"])
def test_a_text_of_which_nothing_is_read_has_no_paraphrase(english, text):
    assert write(english, [text], SearchSettings(3, max_new_tokens=8)) == [[]]
    without = SearchSettings(3, copying=0, max_new_tokens=8)
    assert text != "\u00ad" or write(english, [text], without) == [[]]


def test_only_what_has_every_placeholder_is_restored():
    held = Held("Is ɕ at ɴ?", {"ɕ": "李雷", "ɴ": "a@b.c"})
    drafts = [Draft(text, -1.0) for text in ("At ɴ, is ɕ?", "Is ɕ there?", "Is ɕ at ɴ or ɴ?")]
    assert restored(drafts, held) == [Draft("At a@b.c, is 李雷?", -1.0)]
