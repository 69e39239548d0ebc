"""The search against enumeration: a toy decoder whose every sentence has a known probability."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from transformers.generation import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from simbert_hf.generation import search as search_module
from simbert_hf.generation.search import Noise, SearchSettings, log1mexp, next_tokens, search
from tests.naive import naive_ordered_draw_probability, naive_stochastic_beam_search

SEP, VOCAB, LENGTH = 1, 4, 4
INF = float("inf")


def toy_logits(prefix, last_ends=True):
    """Logits that depend on the whole prefix; no empty sentence, and the last token is [SEP]."""
    seed = hash((3, *prefix)) % 2**31  # hashes of ints do not vary between processes
    logits = torch.randn(VOCAB, generator=torch.Generator().manual_seed(seed))
    if last_ends and len(prefix) == LENGTH - 1:
        return logits.masked_fill(torch.arange(VOCAB) != SEP, -INF)
    return logits if prefix else logits.index_fill(0, torch.tensor([SEP]), -INF)


class ToyDecoder:
    """Answers with ``toy_logits`` of each source's prefixes, and remembers how many rows it fed."""

    def __init__(self, sources=1, logits=toy_logits):
        self.logits, self.rows_fed = logits, 0
        self.prefixes = [(source, ()) for source in range(sources)]

    def start(self):
        return torch.stack([self.logits(prefix) for _, prefix in self.prefixes])

    def step(self, parents, sources, tokens):
        grown = zip(parents.tolist(), tokens.tolist(), strict=True)
        self.prefixes = [(self.prefixes[p][0], (*self.prefixes[p][1], t)) for p, t in grown]
        assert [source for source, _ in self.prefixes] == sources.tolist()
        assert len(set(self.prefixes)) == len(self.prefixes)  # no prefix is computed twice
        self.rows_fed += len(tokens)
        return torch.stack([self.logits(prefix) for _, prefix in self.prefixes])


class IndependentNoise(Noise):
    """Reproducible, yet independent for each source: many sources are many experiments."""

    def __init__(self, seed, n):
        super().__init__(seed, n)
        self.shared = False


def settings(**options):
    defaults = {"strategy": "sample", "top_k": None, "max_new_tokens": LENGTH, "seed": 0}
    return SearchSettings(**defaults | options)


def found(sources=1, logits=toy_logits, **options):
    """Each source's (sentence, hypothesis score, log-probability), best score first."""
    result = search(ToyDecoder(sources, logits), settings(**options), SEP)
    rows = [[] for _ in range(sources)]
    columns = (result.source, result.tokens, result.score, result.log_prob)
    for source, tokens, score, log_prob in zip(*(c.tolist() for c in columns), strict=True):
        end = tokens.index(SEP) + 1 if SEP in tokens else len(tokens)
        rows[source].append((tuple(tokens[:end]), score, log_prob))
    return [sorted(row, key=lambda item: -item[1]) for row in rows]


def enumerate_sentences(top_k=None, top_p=None, temperature=1.0):
    """All sentences' log-probabilities, warped by the processors of transformers themselves."""

    def next_log_probs(prefix):
        scores = TemperatureLogitsWarper(temperature)(None, toy_logits(prefix)[None])
        scores = TopKLogitsWarper(top_k)(None, scores) if top_k else scores
        scores = TopPLogitsWarper(top_p)(None, scores) if top_p else scores
        return scores[0].double().log_softmax(dim=0).tolist()

    return naive_stochastic_beam_search(next_log_probs, SEP, LENGTH)


def assert_same_distribution(counts, probabilities):
    """Pearson's chi-square at the 1e-4 level; rare outcomes are pooled."""
    assert set(counts) <= set(probabilities)
    total = sum(counts.values())
    common = [key for key, p in probabilities.items() if p * total >= 5]
    observed = np.array([counts[key] for key in common], dtype=float)
    expected = np.array([probabilities[key] for key in common]) * total
    assert len(common) >= 5
    rest = total - expected.sum()
    statistic = ((observed - expected) ** 2 / expected).sum()
    statistic += ((total - observed.sum()) - rest) ** 2 / max(rest, 1.0)
    assert statistic < chi2.ppf(1 - 1e-4, len(common)), (statistic, len(common))


WARPS = [
    {},
    {"temperature": 0.6},
    {"top_k": 2},
    {"top_p": 0.7},
    {"temperature": 1.5, "top_k": 3, "top_p": 0.8},
]


@pytest.mark.parametrize("warp", WARPS, ids=str)
def test_samples_follow_the_model(warp):
    exact = {s: math.exp(p) for s, p in enumerate_sentences(**warp).items()}
    (rows,) = found(n=20_000, **warp)
    counts = Counter({sentence: int(score) for sentence, score, _ in rows})
    assert sum(counts.values()) == 20_000
    assert_same_distribution(counts, exact)


@pytest.mark.parametrize(("number", "token"), [(0.0, 0), (1 - 2**-53, VOCAB - 1)])
def test_the_least_and_the_greatest_number_draw_the_first_and_the_last_token(number, token):
    """Those between which ``torch.rand`` draws."""
    logits = torch.zeros(2, VOCAB)
    live = search_module.start(2, settings(n=3), SEP, logits.device)

    def noise(places):
        return torch.full((len(places),), number, dtype=torch.float64)

    drawn = search_module.count_draws(live, next_tokens(logits, settings()), noise)
    assert drawn.tolist() == [[3.0 if i == token else -INF for i in range(VOCAB)]] * 2


def test_the_chi_square_sees_a_wrong_distribution():
    exact = {s: math.exp(p) for s, p in enumerate_sentences(temperature=1.1).items()}
    (rows,) = found(n=20_000)
    with pytest.raises(AssertionError):
        assert_same_distribution(Counter({s: int(c) for s, c, _ in rows}), exact)


def test_samples_of_a_source_are_independent(monkeypatch):
    monkeypatch.setattr(search_module, "Noise", IndependentNoise)
    exact = enumerate_sentences()
    pairs = {}
    for a, p in exact.items():
        for b, q in exact.items():
            pairs[frozenset([a, b])] = pairs.get(frozenset([a, b]), 0.0) + math.exp(p + q)
    rows = found(4000, n=2)
    assert all(sum(score for _, score, _ in row) == 2 for row in rows)
    counts = Counter(frozenset(sentence for sentence, _, _ in row) for row in rows)
    assert_same_distribution(counts, pairs)


def test_a_shared_prefix_is_computed_once():
    decoder = ToyDecoder()
    search(decoder, settings(n=100_000, top_k=2), SEP)
    assert decoder.rows_fed <= 2 + 4 + 8  # of 300,000 without sharing


def test_without_replacement_draws_in_order(monkeypatch):
    monkeypatch.setattr(search_module, "Noise", IndependentNoise)
    exact = enumerate_sentences(temperature=0.5, top_k=3)
    rows = found(4000, n=2, strategy="without_replacement", temperature=0.5, top_k=3)
    firsts = Counter(row[0][0] for row in rows)
    assert_same_distribution(firsts, {s: math.exp(p) for s, p in exact.items()})
    pairs = {(a, b): naive_ordered_draw_probability(exact, [a, b]) for a in exact for b in exact}
    assert_same_distribution(Counter((row[0][0], row[1][0]) for row in rows), pairs)


def test_without_replacement_never_repeats_and_finds_more():
    size = len(enumerate_sentences())
    (drawn,) = found(n=30, strategy="without_replacement")
    assert len({sentence for sentence, _, _ in drawn}) == 30
    assert len(found(n=30)[0]) < 25
    assert len(found(n=10 * size, strategy="without_replacement")[0]) == size


@pytest.mark.parametrize("n", [5, 12, 10_000])
def test_beam_finds_the_likeliest(n):
    exact = enumerate_sentences()
    (rows,) = found(n=n, strategy="beam", top_k=1, seed=7)  # draws nothing: both ignored
    best = sorted(exact.values(), reverse=True)[:n]
    assert [log_prob for _, _, log_prob in rows][:3] == pytest.approx(best[:3], abs=1e-6)
    assert all(log_prob == pytest.approx(exact[s], abs=1e-6) for s, _, log_prob in rows)
    assert all(score == pytest.approx(log_prob) for _, score, log_prob in rows)
    if n == 10_000:
        assert [log_prob for _, _, log_prob in rows] == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("strategy", ["sample", "without_replacement", "beam"])
def test_log_probs_are_the_models_own_whatever_is_drawn_from(strategy):
    exact = enumerate_sentences()
    drawn = {} if strategy == "beam" else {"top_k": 2, "temperature": 0.5}
    (rows,) = found(n=100, strategy=strategy, **drawn)
    assert len(rows) > 1
    assert all(log_prob == pytest.approx(exact[s], abs=1e-5) for s, _, log_prob in rows)


@pytest.mark.parametrize("temperature", [1e-300, 1e-307, 1e-310])
@pytest.mark.parametrize("strategy", ["sample", "without_replacement"])
def test_the_least_temperatures_draw_the_likeliest_token(strategy, temperature):
    (likeliest,) = found(n=5, strategy=strategy, top_k=1)
    (drawn,) = found(n=5, strategy=strategy, temperature=temperature)
    assert drawn[0][0] == likeliest[0][0]


@pytest.mark.parametrize("strategy", ["sample", "without_replacement"])
def test_seeds(strategy):
    once, again = found(3, n=8, strategy=strategy), found(1, n=8, strategy=strategy)
    assert once[0] == once[1] == once[2] == again[0]  # wherever the source stands
    assert found(n=8, strategy=strategy, seed=1)[0] != again[0]
    fresh = found(6, n=8, strategy=strategy, seed=None)
    assert any(row != fresh[0] for row in fresh)
    assert found(6, n=8, strategy=strategy, seed=None) != fresh


@pytest.mark.parametrize("strategy", ["sample", "without_replacement", "beam"])
def test_unfinished_sentences_count_only_where_nothing_finished(strategy):
    def may_go_on(prefix):
        return toy_logits(prefix, last_ends=False)

    def never_ends(prefix):
        return may_go_on(prefix).index_fill(0, torch.tensor([SEP]), -INF)

    (rows,) = found(n=20, logits=may_go_on, strategy=strategy)
    assert rows
    assert all(sentence[-1] == SEP for sentence, _, _ in rows)
    (rows,) = found(n=20, logits=never_ends, strategy=strategy)
    assert rows
    assert all(len(sentence) == LENGTH and SEP not in sentence for sentence, _, _ in rows)


def test_near_ties_do_not_change_the_order_of_tokens():
    logits = torch.tensor([[0.0, 1.0, 3.0, 1.0 + 1e-6, 2.0]])
    ids = [next_tokens(x, settings(top_k=4)).ids.tolist() for x in (logits, logits.flip(1))]
    assert ids == [[[1, 2, 3, 4]], [[0, 1, 2, 3]]]


def test_log1mexp_keeps_its_precision():
    x = torch.tensor([-1e-18, -0.1, -0.693, -0.694, -1.0, -40.0], dtype=torch.float64)
    exact = [math.log(-math.expm1(v)) if v > -1 else math.log1p(-math.exp(v)) for v in x.tolist()]
    assert log1mexp(x).tolist() == pytest.approx(exact, rel=1e-12)
    assert log1mexp(torch.tensor([0.0, -INF])).tolist() == [-INF, 0.0]


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ({"n": 0}, "n=0 is out of range: it must be a whole number of at least 1"),
        ({"n": 2.5}, "n=2.5 is out of range"),
        ({"top_k": 0}, "top_k=0 is out of range.*or None for all tokens"),
        ({"top_p": 0.0}, "top_p=0.0 is out of range"),
        ({"top_p": 1.1}, "top_p=1.1 is out of range"),
        ({"temperature": 0.0}, "temperature=0.0 is out of range.*top_k=1"),
        ({"temperature": float("nan")}, "temperature=nan is out of range"),
        ({"max_new_tokens": 0}, "max_new_tokens=0 is out of range"),
        ({"strategy": "diverse"}, "strategy='diverse': choose one of sample, without_rep"),
        ({"n": True}, "n=True is out of range.*whole number"),
        ({"temperature": INF}, "temperature=inf is out of range"),
        ({"copying": -0.1}, "copying=-0.1 is out of range"),
        ({"copying": INF}, "copying=inf is out of range"),
        ({"seed": 1.5}, "seed=1.5 is out of range"),
        ({"seed": 2**64}, "seed=18446744073709551616 is out of range: .* a 64-bit integer or None"),
        ({"seed": -(2**63) - 1}, "seed=-9223372036854775809 is out of range"),
    ],
)
def test_settings_out_of_range(option, sentence):
    with pytest.raises(ValueError, match=sentence):
        SearchSettings(**option)


@pytest.mark.parametrize("seed", [2**64 - 1, -(2**63)])
def test_the_farthest_seeds_draw(seed):
    assert found(n=3, seed=seed) == found(n=3, seed=seed)
