"""Exclusion: which words a text excludes, and that none of them is written."""

import math

import torch

from simbert_hf.generation import writing
from simbert_hf.generation.excluding import exclude, excluded_tokens, ids_of_words
from simbert_hf.generation.facts import FIXED, exchanges, excluded_words, facts_of
from simbert_hf.generation.search import Prefixes, SearchSettings
from tests.tiny import unigram_tokenizer


def test_a_word_is_excluded_if_with_it_a_paraphrase_would_be_dropped():
    for text in ("reset my password by Friday", "They left.", "She cried all day, in april"):
        words = excluded_words(text)
        assert words
        for word in words:
            other = f"{text} {word}"
            assert exchanges(text, other) or facts_of(other) != facts_of(text)


def test_excluded_tokens_are_words_that_the_row_has_not(english):
    texts = ["reset my password by friday", "they left"]
    tokenizer, rows = english.tokenizer, english.rows.sources(texts, 20)
    excluded = excluded_tokens(tokenizer, texts, rows)
    first, second = (set(tokenizer.convert_ids_to_tokens(row)) for row in excluded)
    assert first == {"your", "yours", "yourself", *FIXED} - {"friday"}
    assert second == {"[CLS]", *FIXED}
    texts = ["does he like shellfish"]
    row = [*tokenizer.convert_tokens_to_ids(["[CLS]", "he", "her", "she", "##ll", "[SEP]"])]
    (kept,) = (set(tokenizer.convert_ids_to_tokens(row)) for row in [row])
    (found,) = excluded_tokens(tokenizer, texts, [row])
    assert {"hers", "herself"} <= {*tokenizer.convert_ids_to_tokens(found)}
    assert not kept & {*tokenizer.convert_ids_to_tokens(found)}


def test_words_of_several_tokens_are_left_alone():
    tokenizer = unigram_tokenizer()
    (my,), (today,), yours = tokenizer(["my", "today", "yours"], add_special_tokens=False)[
        "input_ids"
    ]
    assert len(yours) > 1
    assert ids_of_words(tokenizer) == {"my": my, "today": today}
    texts = ["your dog", "tomorrow", "my day"]
    found = excluded_tokens(tokenizer, texts, [[0, 5, 2], [0, 2], [0, my, 2]])
    assert found.tolist() == [[my], [today], [0]]


def test_each_source_has_tokens_of_its_own_excluded():
    excluded, sources = torch.tensor([[1, 2], [4, 4]]), torch.tensor([1, 0])
    prefixes = Prefixes(sources, sources, torch.tensor([[0], [0]]))
    logits = exclude(excluded, torch.zeros(2, 5), prefixes)
    assert (logits == -math.inf).nonzero().tolist() == [[0, 4], [1, 1], [1, 2]]


def test_a_real_model_writes_no_excluded_word(english, monkeypatch):
    monkeypatch.setattr(writing, "keep_facts", lambda drafts, *_, **__: drafts)  # drops them, too
    texts = ["I lost two weeks with my mother in Paris.", "Tom lost his keys two weeks ago."]
    counts = []
    for weight in (1, 0):
        rows = writing.write(english, texts, SearchSettings(20, copying=weight, max_new_tokens=20))
        assert all(len(row) >= 3 for row in rows)
        found = [(text, one.text) for text, row in zip(texts, rows, strict=True) for one in row]
        counts.append(sum(bool(excluded_words(a) & {*b.lower()[:-1].split()}) for a, b in found))
    assert counts[0] == 0 < counts[1]
