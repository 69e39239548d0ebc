"""Copying: raised logits against a reference from scratch, and what it does to a real model."""

import math
from itertools import permutations

import pytest
import torch
from test_generation import TEXTS, model, reference_log_probs  # noqa: F401  # a fixture

from simbert_hf.generation.copying import (
    ELSEWHERE,
    KNOWN,
    Copying,
    foreignness,
    inside_words,
    padded,
)
from simbert_hf.generation.decoder import BertDecoder
from simbert_hf.generation.facts import EXCLUSIVE, exchanges, facts_of, names_of
from simbert_hf.generation.search import Prefixes, SearchSettings, search
from simbert_hf.generation.writing import Draft, banned_tokens, keep_facts, write
from tests.tiny import unigram_tokenizer


def raised_log_prob(model, source, inside, tokens, weight):  # noqa: F811
    """Sum the raised log-probabilities of a sentence, one token after the other, without cache."""
    text = source[1:-1]
    lacking = [
        -float(reference_log_probs(model, source, text[:i])[token]) for i, token in enumerate(text)
    ]
    total, left = 0.0, [weight * value * (value > KNOWN) for value in lacking]
    for t, token in enumerate(tokens):
        shares = []
        for i in range(len(text)):
            follows = t == 0 if i == 0 else t > 0 and text[i - 1] == tokens[t - 1]
            shares.append(1 if follows else 0 if inside[i] else ELSEWHERE)
        logits = reference_log_probs(model, source, tokens[:t]).clone()
        for one in set(text):
            logits[one] += max(left[i] * shares[i] for i in range(len(text)) if text[i] == one)
        total += float(logits.log_softmax(0)[token])
        rises = [left[i] * shares[i] * (text[i] == token) for i in range(len(text))]
        if max(rises) > 0:
            left[rises.index(max(rises))] = 0  # what is written is raised no more
    return total


@pytest.mark.parametrize("strategy", ["sample", "without_replacement", "beam"])
def test_raised_log_probs_equal_a_reference_from_scratch(model, strategy):  # noqa: F811
    texts = ["the dog is nice the dog", "dog"]
    sources = model.rows.sources(texts, 40)
    inside = [[i % 3 == 2 for i in range(len(row))] for row in sources]  # longer, as when cut
    known = [row[1:-1] for row in sources]
    settings = SearchSettings(n=3, strategy=strategy, seed=0, max_new_tokens=6, top_k=None)
    with torch.inference_mode():
        decoder = BertDecoder(model, sources, 16, banned_tokens(model))
        copying = Copying(decoder, padded(known), padded(inside), weight=2.0)
        found = search(decoder, settings, model.rows.sep_id, [copying])
    copied = 0
    for at, row, log_prob in zip(
        found.source.tolist(), found.tokens.tolist(), found.log_prob.tolist(), strict=True
    ):
        tokens = row[: [*row, model.rows.sep_id].index(model.rows.sep_id) + 1]
        wanted = raised_log_prob(model, sources[at], inside[at], tokens, 2.0)
        assert log_prob == pytest.approx(wanted, abs=1e-3)
        copied += len({*tokens} & {*known[at]})
    assert copied > 2  # there was something to raise, and to stop raising


class Known:
    """Finds token 1 likely anywhere; 4 more are foreign to it, and token 0 is banned."""

    def start(self):
        return torch.tensor([[-math.inf, 4.0, 0.0, 0.0, 0.0, 0.0]])

    def read(self, tokens):
        yield from [self.start()] * tokens.shape[1]


def rises(copying, *tokens):
    """What the tokens of the only prefix add to the logits that follow it."""
    row, logits = torch.tensor([0]), Known().start()
    return (copying(logits.clone(), Prefixes(row, row, torch.tensor([tokens]))) - logits)[0, 1:]


def test_what_a_model_would_write_by_itself_is_not_raised():
    copying = Copying(Known(), torch.tensor([[1, 2, 1]]), torch.zeros(1, 3), weight=1.0)
    lacking = -float(Known().start().log_softmax(1)[0, 2])
    assert lacking > KNOWN
    assert rises(copying).tolist() == pytest.approx([0, ELSEWHERE * lacking, 0, 0, 0])


def test_of_equal_tokens_the_first_is_written_first():
    copying = Copying(Known(), torch.tensor([[2, 3, 2]]), torch.zeros(1, 3), weight=1.0)
    tokens = (5, 2, 2)
    _, both, one, none = (float(rises(copying, *tokens[:step])[1]) for step in range(4))
    assert both == one > 0  # the other one is still lacking
    assert none == 0


def test_nothing_is_foreign_behind_a_rows_end_or_if_banned():
    found = foreignness(Known(), Known().start(), torch.tensor([[0, 2, -1]]))
    assert found[0, [0, 2]].tolist() == [0, 0]
    assert found[0, 1] > KNOWN


def test_a_real_model_keeps_names_and_numbers(english):
    texts = ["how do i get from szczecin to bydgoszcz?", "what does example.com sell?"]
    both = (english.gen_synonyms(texts, n=10, k=5, copying=weight) for weight in (0, 1))
    for kept, plain, copying in zip(("bydgoszcz", "example.com"), *both, strict=True):
        assert sum(kept in found for found in copying) >= 3 > sum(kept in found for found in plain)


def test_figures_and_denials_of_the_text_stay_and_no_others_come(english):
    text = "i can't transfer $500 to savings by may 3rd"
    facts = {"500", "$", "3rd", "not"}
    found = english.gen_synonyms(text, n=20)
    assert len(found) >= 3
    assert all(facts_of(paraphrase) == facts for paraphrase in found)
    without = english.gen_synonyms(text, n=20, copying=0)
    assert not all(facts_of(paraphrase) == facts for paraphrase in without)


EXCLUDING = [
    "My brother is older than his wife.",
    "She was surprised to see her brother.",
    "I've been waiting for my package for two weeks.",
    "I cut myself shaving this morning.",
]
DATED = "the meeting was moved to a tuesday in march"
NAMED = "my flight from Berlin to Madrid was cancelled, can i get a refund?"


@pytest.fixture(scope="module")
def drawn(english):
    """What is drawn of each text, with copying and without."""
    texts, both = [*EXCLUDING, DATED, NAMED], []
    for weight in (1, 0):
        settings = SearchSettings(50, "sample", copying=weight, max_new_tokens=24, seed=0)
        rows = write(english, texts, settings)
        both.append([[draft.text for draft in row] for row in rows])
    assert all(len(row) >= 3 for row in both[0])
    return dict(zip(texts, zip(*both, strict=True), strict=True))


@pytest.mark.parametrize("text", EXCLUDING)
def test_words_that_exclude_each_other_are_not_exchanged(drawn, text):
    found, without = drawn[text]
    assert not any(exchanges(text, other) for other in found)
    assert any(exchanges(text, other) for other in without)


def test_days_and_months_of_the_text_stay(drawn):
    found, without = drawn[DATED]
    assert all("tuesday" in other and "march" in other for other in found)
    assert not all("tuesday" in other and "march" in other for other in without)


@pytest.mark.parametrize(
    ("text", "other", "exchanged"),
    [
        ("Is it my turn?", "Is it YOUR turn?", True),
        ("Help yourself.", "I help myself.", True),
        ("He told his story.", "He told her story.", True),
        ("I lost my card", "can you tell me where your office is", True),
        ("Tell her my name", "She wants his name", True),
        ("I lost my card", "can you help me, I lost the card", False),
        ("Compare my score with yours", "Is your score above mine?", False),
        ("The cat ate the bath mat", "She ate the mat", False),
        ("他喜欢你", "她喜欢我", False),
        ("no refunds after 30 days", "no refunds after thirty years", True),
        ("in a week or a month", "in months or weeks", False),
        ("see you this evening", "see you tonight", False),
        ("see you tonight", "see you tomorrow", True),
        ("see you tonight", "see you this evening", False),
        ("see you then", "see you tomorrow", False),
        ("men and boys", "a man and a boy", False),
        ("a yellowish car", "a red car", False),
    ],
)
def test_exchanges_are_known_by_their_words(text, other, exchanged):
    assert exchanges(text, other) == exchanged


def test_every_word_that_excludes_others_excludes_all_of_its_line():
    for line in EXCLUSIVE.splitlines():
        alternatives = [words.split("|") for words in line.split()]
        for one, other in permutations(alternatives, 2):
            assert all(exchanges(a, b) for a in one for b in other if b not in one)
            assert not any(exchanges(a, b) for a in one for b in one)


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("It's a well-known, so-called cafe...", set()),
        ("Pay $1,234.56 (10%) at 7:30pm.", {"$", "1234.56", "10", "%", "7:30", "pm"}),
        ("Ask bob@a.org or see https://a.org/b?c=1!", {"bob@a.org", "https://a.org/b?c=1"}),
        ("Node.js, C++ and C#?", {"node.js", "c++", "c#"}),
        ("The U.S. office, e.g. at 9 a.m.: go.Then to x.com", {"9", "am", "x.com"}),
        ("9 AM or 10p.m.; I am 5, mp3", {"9", "am", "10", "pm", "5", "mp3"}),
        ("Ten dollars, \u20ac5 or 6 pounds", {"$", "10", "\u20ac", "5", "\u00a3", "6"}),
        ("10\u6b27\u5143", {"10", "\u20ac"}),
        ("Question:how is it?", set()),
        ("iPhone13多少钱？5元", {"iphone13", "5", "\u00a5"}),
        ("it wasnt me", {"not"}),
        ("I hadnt seen it", {"not"}),
        ("Two tables for 10, one at ten.", {"2", "10"}),
        ("Twenty five, thirty-five; twenty one", {"25", "35", "21"}),
        ("a hundred and seven of one thousand", {"107", "1000"}),
        ("a thousand and one", {"1001"}),
        ("two hundred and three hundred thousand, ninety nine", {"200", "300000", "99"}),
        ("Sixty two thousand four hundred and eleven. Forty", {"62411", "40"}),
        ("the twenty-first, twelfth, and third; first wait a second", {"21st", "12th", "3rd"}),
        ("a thirty second ad, the twenty-second of two", {"30", "22nd", "2"}),
        ("a two-year plan, hundreds of often weighty tenants", {"2"}),
        ("买ten个", {"10"}),
        ("Nothing, knot, noon, wont to", {"not"}),
        ("a knot at noon", set()),
        ("On Fridays, may I? In march.", {"friday", "march"}),
        ("augustus sat mondayish", set()),
        ("It is \u22125°C, 5 per cent of millions", {"-5", "5", "°", "%", "million"}),
        (
            "\uff15\uff0e\uff15\uff05 of \uff41\uff20\uff42\uff0e\uff43\uff4f\uff4d\uff0c\uff17",
            {"5.5", "%", "a@b.com", "7"},
        ),
        ("1\u20132 days", {"1-2"}),
        ("订单１２３，Ａ４纸", {"123", "a4"}),
    ],
)
def test_facts(text, facts):
    assert facts_of(text) == facts


@pytest.mark.parametrize(
    ("text", "others", "kept"),
    [
        ('say "hi" now', ['say " hi now', 'say "hi', "say hi"], ["say hi"]),
        ('say "hi" now', ['say " hi now', 'say "hi'], ['say " hi now', 'say "hi']),
        ('5" is short', ['short is 5"'], ['short is 5"']),  # no pair there, either
        ("this (is mine", ["mine (this is", "indeed this is mine"], None),
        ("is it a.m. or p.m.?", ["p.m. or a.m., is it?"], None),
        ("\uff08好\uff09吗", ["\uff08好吗", "好吗"], ["好吗"]),
        ("at 6:30, 5 of us", ["at 6:30 at 6:30, 5 of us", "5 of us at 6:30"], ["5 of us at 6:30"]),
        ("card 42 42", ["card 42", "42 42 is the card"], ["42 42 is the card"]),
        ("\uff12 of 2", ["2 of 2"], ["2 of 2"]),
        ("give $50", ["give 50", "give $ $50", "give 50 dollars"], ["give 50 dollars"]),
        ("at 5 p.m.", ["at 5", "at 5 a.m.", "5pm it is"], ["5pm it is"]),
        ("they were", ["they was", "they have been"], ["they have been"]),
        ("he sits.", ["he is sits.", "so he sits."], ["so he sits."]),
        ("they were", ["they was"], ["they was"]),
        ("another one", ["an another one", "other one"], ["other one"]),
        ("what does your mom like to eat", ["what does your mother like to eat"], None),
        ("it is in Oxford", ["in Oxford, england it is", "Oxford it is"], ["Oxford it is"]),
        ("it is in Oxford", ["in Oxford, england it is"], None),
        (
            "from 14 King Street to 7 Mill Lane it is",
            ["from 14 King Lane to 7 Mill Street it is", "to 7 Mill Lane from 14 King Street"],
            ["to 7 Mill Lane from 14 King Street"],
        ),
        ("nine am", ["9 pm", "9 am", "at nine a.m."], ["9 am", "at nine a.m."]),
        ("9 to 11 am", ["9 am to 11 am"], None),
        ("at 65 am I old", ["am I old at 65"], None),
        ("$5 and 5 dollars it is", ["$5 and $5 it is"], None),
        ("it to the US", ["into the U.S.", "to l'us"], None),
        ("U.S. drone kills 4", ["Us. Drone kills 4", "U.S. drone slays 4"], ["U.S. drone slays 4"]),
        ("je veux voir", ["j'aimerais y voir"], None),
        ("\u5143\u65e6\u653e\u5047\u5417", ["\u65b0\u5e74\u653e\u5047\u5417"], None),
        (
            "\u8fd9\u4e2a100\u5143",
            ["\u8fd9\u4e2a100\u5757", "\u8fd9\u4e2a100\u7f8e\u5143"],
            ["\u8fd9\u4e2a100\u5757"],
        ),
        ("\u6211\u4eec\u4e00\u5757\u53bb", ["\u6211\u4eec\u4e00\u8d77\u53bb"], None),  # together
        ("not unless he can", ["not if he can", "unless he can, not"], ["unless he can, not"]),
        ("the S&P 500 rose", ["the s and p 500 rose", "the S&P 500 did"], ["the S&P 500 did"]),
        ("in late summer", ["in late spring", "late in summer"], ["late in summer"]),
        ("a 9x13 inch pan", ["a 9x13 pan", "a pan of 9x13 inches"], ["a pan of 9x13 inches"]),
        ("20 inches long", ["20 feet long", "as long as 20 inches"], ["as long as 20 inches"]),
        (
            "it isn't new and won't be",
            ["it isn't new and will be", "it's not new and won't be"],
            ["it's not new and won't be"],
        ),
        ("it fell below 10", ["it fell 10", "it fell under 10"], ["it fell under 10"]),
        ("at most 5 may come", ["up to 5 may come", "at most 5 can come"], None),
        ("send it", ["send it. What now?", "please send it"], ["please send it"]),
        ("send it", ["send it. What now?"], None),
        (
            "$3.49, not $3",
            ["3.49, not $3", "$ 3.49, not $3", "not 3 but 3.49 dollars"],
            ["not 3 but 3.49 dollars"],
        ),
        (
            '"who is it?" he said',
            ['"who is it," he said', 'he said "who is it?"'],
            ['he said "who is it?"'],
        ),
        ("jeg skal bede om kaffe", ["jeg skal have kaffe", "the kaffe"], ["jeg skal have kaffe"]),
        ("wie geht das mit dem Zug", ["the wie geht das mit dem Zug", "did wie geht das"], []),
        ("wie geht das mit dem Zug", ["wie geht das mit der Bahn"], None),
    ],
)
def test_marks_numbers_letters_and_verbs_are_as_in_the_text(text, others, kept):
    drafts = [Draft(other, -1.0) for other in others]
    assert [draft.text for draft in keep_facts(drafts, text)] == (others if kept is None else kept)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("My flight from Berlin to Madrid was cancelled", {"berlin", "madrid"}),
        (
            "Tom said that Mary's mother and New York's mayor met",
            {"mary", "new", "new york", "york"},
        ),
        ("Does PayPal work with eBay, the iPhone or my TV?", {"paypal", "ebay", "iphone"}),
        ("Ask Dr. Patel and Mrs. Jones. The doctor knows. You too", {"patel", "jones"}),
        ("Can Dr. O'Brien see you, or D'Angelo?", {"o'brien", "d'angelo"}),
        ("What about Zürich?", {"zürich"}),
        ("i lost my card in berlin", set()),
        ("How to Book a Flight With You", set()),
        ("WHERE IS MY CARD from VISA", set()),
        ("USPS has lost it, I'm sure. They do NOT answer my ATM's", {"usps"}),
        ("I'm seeing Tom", {"tom"}),
        ("Lo he visto a Ana en Madrid", set()),
        ("Ich suche in Berlin einen guten Arzt", set()),
        ("我的 iPhone 在 Berlin", set()),
    ],
)
def test_names_are_known_by_their_capitals(text, names):
    assert names_of(text) == names


def test_names_of_the_text_stay_if_they_can(drawn):
    found, without = drawn[NAMED]
    assert all("Berlin" in other and "Madrid" in other for other in found)
    assert not all("Berlin" in other and "Madrid" in other for other in without)
    drafts = [Draft("so it is", -1.0), Draft("it is not so", -2.0)]
    assert keep_facts(drafts, "and what an Odd word is it") == drafts[:1]
    assert keep_facts([*drafts, Draft("it's odd", -3.0)], "what an Odd word") == [
        Draft("it's odd", -3.0)
    ]


def test_a_chinese_text_keeps_its_words_in_latin_letters():
    drafts = [Draft(text, -1.0) for text in ("如何用 Wifi 上网", "怎么用 WIFI 上 net", "怎么上网")]
    assert keep_facts(drafts, "怎么用 WiFi 上网") == drafts[:1]
    drafts = [Draft(text, -1.0) for text in ("2024年用 app 吗", "2024年用软件吗")]
    assert keep_facts(drafts, "2024年 用 app 么") == drafts[:1]
    drafts = [Draft("what is the meaning of 你好?", -1.0)]
    assert keep_facts(drafts, "what does 你好 mean?") == drafts  # English with a Chinese word


def test_a_source_longer_than_what_is_written(english):
    text = "what does it cost to send a parcel from lisbon to helsinki in december?"
    with pytest.warns(UserWarning, match="leave much out"):
        both = english.gen_synonyms([text, "go"], n=5, seed=0, max_new_tokens=4)
    for found in both:
        assert all(len(paraphrase.split()) <= 4 for paraphrase in found)


def test_unknown_words_that_are_lost_are_told_of(english):
    text = "hi 谢谢 to all you good people"
    with pytest.warns(UserWarning, match="no token for a word or sign in 1 of 2 texts: "):
        found = english.gen_synonyms([text, "go"], n=10, copying=0, return_scores=True)
    assert found[0]
    assert all(math.isfinite(one.score) for row in found for one in row)


def test_words_end_at_blanks_and_chinese_characters(english):
    tokenizer = english.tokenizer
    tokens = [tokenizer.tokenize(text) for text in ("用python读e-mail吗", " wi-fi  ok.")]
    inside = inside_words(tokenizer, ["用python读e-mail吗", " wi-fi  ok."])
    assert [[*zip(*pair, strict=True)] for pair in zip(tokens, inside, strict=True)] == [
        [("[UNK]", False), ("python", False), ("[UNK]", False), ("e", False), ("-", True),
         ("mail", True), ("[UNK]", False)],
        [("wi", False), ("-", True), ("fi", True), ("ok", False), (".", True)],
    ]  # fmt: skip
    unigram = unigram_tokenizer()
    (found,) = inside_words(unigram, ["the dogs"])
    starts = [piece.startswith("▁") for piece in unigram.tokenize("the dogs")]
    assert found == [not start for start in starts]


def test_a_tokenizer_without_offsets_has_no_words():
    class Slow:
        is_fast = False

        def __call__(self, texts, **options):
            assert not options["return_offsets_mapping"]
            return {"input_ids": [[1, 2] for _ in texts]}

    assert inside_words(Slow(), ["ab", "cd"]) == [[False, False]] * 2


def test_why_a_draft_is_dropped_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    drafts = [Draft(text, -1.0) for text in ("send $7 now", "send $5 now", "please send $5 to him")]
    with caplog.at_level("DEBUG", logger="simbert_hf"):
        assert keep_facts(drafts, "I send $5") == drafts[1:2]
    assert caplog.messages == [
        "Dropped 'send $7 now': other facts.",
        "Dropped 'please send $5 to him': changes_whose.",
    ]
