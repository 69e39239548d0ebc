"""Repeats: which tokens are banned, against a count from scratch, and what a real model writes."""

import re
from collections import Counter
from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from test_generation import TEXTS, model  # noqa: F401  # a fixture

from simbert_hf.generation.copying import padded
from simbert_hf.generation.decoder import BertDecoder
from simbert_hf.generation.repeats import ban_repeats, kinds_of_tokens
from simbert_hf.generation.search import Prefixes, SearchSettings, search
from simbert_hf.generation.writing import banned_tokens, write
from tests.tiny import unigram_tokenizer


def written(model, texts, long, letters, **options):  # noqa: F811
    """Search without repeats: each sentence's source and tokens."""
    sources = model.rows.sources(texts, 40)
    settings = SearchSettings(max_new_tokens=12, seed=0, top_k=None, **options)
    with torch.inference_mode():
        decoder = BertDecoder(model, sources, 12, banned_tokens(model))
        restraint = partial(ban_repeats, padded([row[1:-1] for row in sources]), long, letters)
        found = search(decoder, settings, model.rows.sep_id, [restraint])
    for at, row in zip(found.source.tolist(), found.tokens.tolist(), strict=True):
        end = [*row, model.rows.sep_id].index(model.rows.sep_id)
        yield sources[at][1:-1], row[:end]


@pytest.mark.parametrize("strategy", ["sample", "without_replacement", "beam"])
def test_tokens_are_repeated_as_often_as_in_the_source(model, strategy):  # noqa: F811
    even = torch.arange(model.config.vocab_size) % 2 == 0
    texts = [*TEXTS, "dog dog dog cat cat"]
    others = 0
    for source, row in written(model, texts, even, even & False, n=40, strategy=strategy):
        more = Counter(row) - Counter(source) - Counter(set(row))  # than it has, and than once
        assert not any(even[token] for token in more if token not in source)
        assert not any(even[token] for token in Counter(row) - Counter(source) if token in source)
        others += bool(more)
    assert others  # odd ones were repeated


@pytest.mark.parametrize("strategy", ["sample", "without_replacement", "beam"])
def test_letters_are_not_written_twice_in_a_row(model, strategy):  # noqa: F811
    even = torch.arange(model.config.vocab_size) % 2 == 0
    texts = [*TEXTS, "dog dog dog cat cat"]
    others = 0
    for source, row in written(model, texts, even & False, even, n=40, strategy=strategy):
        again = {pair for pair in pairwise(row) if pair[0] == pair[1]} - {*pairwise(source)}
        assert not any(even[token] for token, _ in again)
        others += bool(again)
    assert others


def test_only_repeats_are_banned():
    """Among equal logits, by hand: source [5 6 6 7], tokens 5, 6, 7 long."""
    long, letters = torch.zeros(9).bool(), torch.zeros(9).bool()
    long[5:8] = letters[5:] = True
    known = torch.tensor([[5, 6, 6, 7, -1], [5, 5, 8, 8, 7]])

    def banned(sources, *tokens):
        rows = torch.tensor(sources)
        prefixes = Prefixes(rows, rows, torch.tensor(tokens).reshape(len(rows), -1))
        logits = ban_repeats(known, long, letters, torch.zeros(len(rows), 9), prefixes)
        return [row.isinf().nonzero().flatten().tolist() for row in logits]

    assert banned([0, 1]) == [[], []]
    assert banned([0, 1], 5, 5) == [[5], []]
    # 6 stands twice in the source, 1 is no letters
    assert banned([0, 0, 0, 0], 5, 6, 8, 1) == [[5], [], [8], []]
    # 8 may come again, but not at once; 6 once more behind 7
    assert banned([0, 0, 0], [6, 6], [6, 7], [8, 5]) == [[6], [7], [5]]


def test_kinds_of_tokens(english):
    tokenizer = unigram_tokenizer()
    names = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    long, letters = kinds_of_tokens(tokenizer, len(tokenizer) + 3)
    assert len(long) == len(letters) == len(names) + 3
    assert not (long[-3:] | letters[-3:]).any()
    for name, is_long, is_letters in zip(names, long, letters, strict=False):
        assert bool(is_long) == bool(re.fullmatch(r"▁[a-z]{4,}", name.lower()))
        assert bool(is_letters) == bool(re.fullmatch(r"▁?[a-z]+", name.lower()))
    special = english.tokenizer.all_special_ids
    assert not any(
        kind[special].any() for kind in kinds_of_tokens(english.tokenizer, len(english.tokenizer))
    )


@pytest.mark.parametrize(
    ("kind", "long"), [("Unigram", "微信 ▁微信 ▁card"), ("WordPiece", "微信 card")]
)
def test_kinds_of_other_tokens(kind, long):
    letters = "▁card card ▁the ##card ##ing the"
    names = [*f"微 微信 ▁微信 {letters} こ ▁2024 ! [SEP]".split()]

    class Tokenizer:
        backend_tokenizer = SimpleNamespace(model=type(kind, (), {})())

        def __len__(self):
            return len(names)

        def convert_ids_to_tokens(self, ids):
            return [names[i] for i in ids]

    found = kinds_of_tokens(Tokenizer(), len(names))
    for kind, wanted in zip(found, (long, letters), strict=True):
        assert [name for name, is_one in zip(names, kind, strict=True) if is_one] == wanted.split()


def repeats(text, source):
    """Long words that a text has more often than its source, and words directly again."""
    words, known = (re.findall(r"\w+", x.lower()) for x in (text, source))
    often = [x for x in set(words) if len(x) > 3 and words.count(x) > max(1, known.count(x))]
    return often + [a for a, b in pairwise(words) if a == b]


def test_a_real_model_repeats_itself_only_where_it_may(english):
    texts = [
        "when will i get my card?",
        "i made a transfer but it is still pending.",
        "The government announced new taxes on electric cars.",
        "The orchestra rehearsed the symphony for six hours.",
    ]
    counts = []
    for may in (False, True):
        settings = SearchSettings(30, "sample", max_new_tokens=24, repeats=may, seed=0)
        rows = write(english, texts, settings)
        found = [(one.text, text) for text, row in zip(texts, rows, strict=True) for one in row]
        counts.append(sum(bool(repeats(*pair)) for pair in found))
    assert counts[0] <= 1 < 5 < counts[1]  # pieces of words may come again


def test_what_the_source_repeats_may_be_repeated(english):
    text = "very very well, that is that, and bye bye"
    found = english.gen_synonyms(text, n=10, max_new_tokens=16)
    assert any("very very" in one for one in found)
