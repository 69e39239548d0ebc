import math
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from inspect import signature
from itertools import combinations
from statistics import fmean
from typing import get_type_hints

import numpy as np
import pytest
import torch
from tokenizers import decoders
from transformers import GenerationConfig
from transformers.cache_utils import DynamicLayer

from simbert_hf import DEFAULT_MODEL, SimBert, gen_synonyms
from simbert_hf.generation import synonyms, writing
from simbert_hf.generation.decoder import BertDecoder, BranchingLayer
from simbert_hf.generation.scoring import score_pairs, target_losses
from simbert_hf.generation.search import Hypotheses, SearchSettings, search
from simbert_hf.generation.synonyms import Options, Paraphrase, choose, rank
from simbert_hf.generation.writing import (
    Draft,
    banned_tokens,
    distinct,
    sources_of,
    unpacked,
    warn_of_unknown,
    write,
)
from simbert_hf.utils.text import normalize_text
from tests.naive import float64_weights, naive_next_log_probs, naive_sequence_log_prob
from tests.tiny import tiny_simbert, unigram_tokenizer, wordpiece_tokenizer


def readable_unigram_tokenizer():
    tokenizer = unigram_tokenizer()
    tokenizer.backend_tokenizer.decoder = decoders.Metaspace()
    return tokenizer


TOKENIZERS = {"wordpiece": wordpiece_tokenizer, "unigram": readable_unigram_tokenizer}
STRATEGIES = ["sample", "without_replacement", "beam"]
TEXTS = [
    "how can i reset my password ?",
    "the weather is nice",
    "dog",
    "tell me what time it is and where you are going to learn english fast please",
]


@pytest.fixture(params=TOKENIZERS)
def model(request):
    """A random model whose sentences end after a handful of tokens."""
    model = tiny_simbert(tokenizer=TOKENIZERS[request.param]())
    with torch.no_grad():
        model.cls.predictions.bias[model.rows.sep_id] += 4.0
    return model


def token_rows(model, texts, **options):
    """Each source's (tokens with [SEP], log-probability), in the order found."""
    settings = SearchSettings(**{"seed": 0, "max_new_tokens": 8} | options)
    sources = model.rows.sources(texts, 40)
    rows = [[] for _ in texts]
    with torch.inference_mode():
        decoder = BertDecoder(model, sources, settings.max_new_tokens, banned_tokens(model))
        result = search(decoder, settings, model.rows.sep_id)
    for source, tokens, log_prob in zip(
        result.source.tolist(), result.tokens.tolist(), result.log_prob.tolist(), strict=True
    ):
        end = [*tokens, model.rows.sep_id].index(model.rows.sep_id) + 1
        rows[source].append((tokens[:end], log_prob))
    return rows


def reference_log_probs(model, source, target):
    """Next-token log-probabilities without cache, batch or padding, in float64."""
    return _reference_log_probs(model, tuple(source), tuple(target))


@lru_cache(1000)
def _reference_log_probs(model, source, target):
    banned = banned_tokens(model).tolist() + ([] if target else [model.rows.sep_id])
    weights = float64_weights(model.state_dict())
    return naive_next_log_probs(weights, model.config, [*source], [*target], banned)


def reference_greedy(model, source, max_new_tokens=8):
    target = []
    while len(target) < max_new_tokens and model.rows.sep_id not in target:
        target.append(int(reference_log_probs(model, source, target).argmax()))
    return target


def test_greedy_equals_a_cacheless_reference(model):
    sources = model.rows.sources(TEXTS, 40)
    expected = [reference_greedy(model, source) for source in sources]
    assert len({tuple(row) for row in expected}) > 2  # the sources matter
    for options in ({"n": 1}, {"n": 7, "strategy": "sample", "top_k": 1}):
        assert [row[0][0] for row in token_rows(model, TEXTS, **options)] == expected


@pytest.mark.parametrize("use_cache", [True, False])
def test_greedy_equals_transformers_generate(model, use_cache):
    sources = model.rows.sources(TEXTS, 40)
    width = max(map(len, sources))
    ids = [[model.rows.pad_id] * (width - len(row)) + row for row in sources]
    real = [[0] * (width - len(row)) + [1] * len(row) for row in sources]
    output = model.generate(
        torch.tensor(ids),
        attention_mask=torch.tensor(real),
        do_sample=False,
        use_cache=use_cache,
        max_new_tokens=8,
        eos_token_id=model.rows.sep_id,
        pad_token_id=model.rows.pad_id,
        suppress_tokens=banned_tokens(model).tolist(),
        begin_suppress_tokens=[model.rows.sep_id],
    )[:, width:]
    for row, written in zip(token_rows(model, TEXTS, n=1, top_k=1), output.tolist(), strict=True):
        tokens = row[0][0]
        assert written[: len(tokens)] == tokens
        assert set(written[len(tokens) :]) <= {model.rows.pad_id}


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"use_cache": False}])
def test_generate_takes_a_row_without_padding(model, options):
    source = torch.tensor([model.rows.sources(TEXTS[:1], 40)[0]])
    padded = torch.cat([torch.full((1, 2), model.rows.pad_id), source], dim=1)
    mask = torch.cat([torch.zeros(1, 2, dtype=torch.long), torch.ones_like(source)], dim=1)
    options = options | {"do_sample": False, "max_new_tokens": 6, "pad_token_id": model.rows.pad_id}
    wanted = model.generate(padded, attention_mask=mask, **options)[:, padded.shape[1] :]
    for given in ({}, {"attention_mask": torch.ones_like(source)}):
        found = model.generate(source, **given, **options)
        assert found[:, source.shape[1] :].tolist() == wanted.tolist()


def test_a_loaded_model_ends_what_generate_writes(model, tmp_path):
    model.save_pretrained(tmp_path)
    loaded = SimBert.from_pretrained(tmp_path)
    loaded.save_pretrained(tmp_path / "again")
    assert GenerationConfig.from_pretrained(tmp_path / "again").eos_token_id == model.rows.sep_id
    source = torch.tensor([loaded.rows.sources(TEXTS[:1], 40)[0]])
    written = loaded.generate(
        source,
        do_sample=False,
        max_new_tokens=30,
        suppress_tokens=banned_tokens(model).tolist(),
        begin_suppress_tokens=[model.rows.sep_id],
    )[0, source.shape[1] :]
    assert written.tolist() == token_rows(model, TEXTS[:1], n=1, top_k=1)[0][0][0]


def test_what_is_cached_is_copied_as_by_transformers():
    ours, theirs = BranchingLayer(), DynamicLayer()
    rows = 3
    for parents, length in ((None, 5), ([0, 0, 2, 1], 1), (None, 2), ([3], 1), ([0, 0], 1)):
        if parents is not None:
            rows = len(parents)
            for layer in (ours, theirs):
                layer.reorder_cache(torch.tensor(parents))
                layer.reorder_cache(torch.arange(rows).flip(0))
        new = torch.rand(2, rows, 2, length, 4)
        for found, wanted in zip(ours.update(*new), theirs.update(*new), strict=True):
            torch.testing.assert_close(found, wanted, atol=0, rtol=0)
        assert ours.get_seq_length() == theirs.get_seq_length()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_log_probs_equal_a_cacheless_reference(model, strategy):
    sources = model.rows.sources(TEXTS[:2], 40)
    found = token_rows(model, TEXTS[:2], n=3, strategy=strategy, max_new_tokens=5)
    for source, row in zip(sources, found, strict=True):
        for tokens, log_prob in row:
            steps = [reference_log_probs(model, source, tokens[:t]) for t in range(len(tokens))]
            exact = sum(float(step[token]) for step, token in zip(steps, tokens, strict=True))
            assert log_prob == pytest.approx(exact, abs=1e-4)


@pytest.mark.parametrize(
    ("strategy", "attention"), [*((each, "sdpa") for each in STRATEGIES), ("beam", "eager")]
)
def test_a_text_gets_the_same_alone_and_in_any_batch(model, strategy, attention, monkeypatch):
    model.set_attn_implementation(attention)
    options = {"n": 20, "k": 20, "seed": 3, "strategy": strategy, "return_scores": True}
    options |= {"max_new_tokens": 12}
    together = model.gen_synonyms(TEXTS, **options)
    alone = [model.gen_synonyms(text, **options) for text in TEXTS]
    monkeypatch.setattr(writing, "MAX_ROWS", 40)
    monkeypatch.setattr(synonyms, "BLOCK", 3)
    in_twos = model.gen_synonyms(TEXTS, **options)
    assert sum(map(len, alone)) > 20
    for others in (together, in_twos):
        for row, other in zip(alone, others, strict=True):
            assert {p.text for p in row} == {p.text for p in other}
            scores = {p.text: p[1:] for p in other}
            assert all(p[1:] == pytest.approx(scores[p.text], abs=1e-5) for p in row)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_default_device_of_the_host_changes_nothing(model, strategy):
    options = {"n": 10, "seed": 0, "strategy": strategy}
    vectors, found = model.encode(TEXTS), model.gen_synonyms(TEXTS, **options)
    with torch.device("meta"):  # where no tensor has values
        assert (model.encode(TEXTS) == vectors).all()
        assert model.gen_synonyms(TEXTS, **options) == found


def test_same_seed_same_answer(model):
    drawn = {"n": 20, "strategy": "sample", "max_new_tokens": 12}
    first = model.gen_synonyms(TEXTS[0], seed=5, **drawn)
    torch.manual_seed(99)  # the global generator has no say
    assert model.gen_synonyms(TEXTS[0], seed=np.int64(5), **drawn) == first
    assert model.gen_synonyms(TEXTS[0], seed=6, **drawn) != first
    assert model.gen_synonyms(TEXTS[0], **drawn) != model.gen_synonyms(TEXTS[0], **drawn)
    drawn["strategy"] = "beam"  # draws nothing
    assert model.gen_synonyms(TEXTS[0], seed=5, **drawn) == model.gen_synonyms(TEXTS[0], **drawn)


def test_dropout_is_off_while_writing_and_back_on_after(model):
    expected = model.gen_synonyms(TEXTS[0], n=20, max_new_tokens=12)
    assert model.train().gen_synonyms(TEXTS[0], n=20, max_new_tokens=12) == expected
    assert model.training


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_comes_back(model, strategy):
    options = {"seed": 0, "strategy": strategy, "max_new_tokens": 12}
    found = model.gen_synonyms(TEXTS, 30, 6, return_scores=True, **options)
    strings = model.gen_synonyms(TEXTS, 30, 6, **options)
    assert strings == [[p.text for p in row] for row in found]
    for text, row in zip(TEXTS, found, strict=True):
        assert 1 < len(row) <= 6
        keys = [normalize_text(p.text) for p in row]
        assert len({*keys, normalize_text(text), ""}) == len(row) + 2
        vectors = model.encode([text, *(p.text for p in row)])
        for p, vector in zip(row, vectors[1:], strict=True):
            assert p.similarity == pytest.approx(float(vector @ vectors[0]), abs=1e-5)
            fluency = p.log_prob + p.reverse_log_prob
            assert p.score == pytest.approx(
                p.similarity + synonyms.FLUENCY_WEIGHT * fluency, abs=1e-6
            )
        assert row[0].score == max(p.score for p in row)


def test_one_text_gives_one_list_and_no_text_none(model):
    assert all(isinstance(p, str) for p in model.gen_synonyms(TEXTS[0], 10, 3, seed=0))
    (row,) = model.gen_synonyms(TEXTS[:1], 10, 3, seed=0)
    assert row == gen_synonyms(TEXTS[0], 10, 3, seed=0, model=model)
    assert model.gen_synonyms([]) == []


def test_every_option_of_the_search_reaches_it(monkeypatch):
    seen = []
    monkeypatch.setattr(
        synonyms, "write", lambda _, texts, settings: seen.append(settings) or [[] for _ in texts]
    )
    options = {"n": 7, "strategy": "without_replacement", "top_k": 3, "top_p": 0.4,
               "temperature": 1.7, "max_new_tokens": 9, "copying": 0.5, "repeats": True,
               "seed": 11}  # fmt: skip
    tiny_simbert().gen_synonyms("a cat", k=2, **options)
    assert seen == [SearchSettings(**options)]


def test_type_checkers_are_told_of_every_option():
    taken = get_type_hints(gen_synonyms)
    named = {"text", "n", "k", "model", "return_scores"}
    assert signature(gen_synonyms).parameters.keys() == named | get_type_hints(Options).keys()
    assert get_type_hints(Options).items() <= taken.items()


def test_min_similarity_and_fluency_weight(model):
    options = {"n": 50, "k": 50, "seed": 0, "diversity": 0, "return_scores": True}
    by_meaning = model.gen_synonyms(TEXTS[0], fluency_weight=0.0, **options)
    assert all(p.score == p.similarity for p in by_meaning)
    middle = by_meaning[len(by_meaning) // 2].similarity
    kept = model.gen_synonyms(TEXTS[0], fluency_weight=1.0, min_similarity=middle, **options)
    alike = [p.text for p in by_meaning if p.similarity >= middle]  # whatever their scores
    assert sorted(p.text for p in kept) == sorted(alike)
    assert len(kept) < len(by_meaning)
    by_fluency = model.gen_synonyms(TEXTS[0], fluency_weight=1e6, **options)
    log_probs = [p.log_prob + p.reverse_log_prob for p in by_fluency]
    assert log_probs == sorted(log_probs, reverse=True)
    assert [p.text for p in by_fluency] != [p.text for p in by_meaning]


@pytest.mark.parametrize("pooling", ["mean", "cls", "first_last_mean"])
def test_pairs_are_read_as_each_alone(model, pooling, monkeypatch):
    model.config.sentence_pooling = pooling
    sources, targets = TEXTS, ["dog", *TEXTS[:3]]
    pairs = list(zip(sources, targets, strict=True))
    weights = float64_weights(model.state_dict())
    wanted = [
        naive_sequence_log_prob(
            weights, model.config, model.rows.sources([a], 32)[0], model.rows.targets([b], 32)[0]
        ).item()
        for a, b in pairs
    ]
    for batch_size, chunk in ((1, 2**20), (3, 1), (64, 200)):
        monkeypatch.setattr("simbert_hf.generation.scoring.BATCH_SIZE", batch_size)
        monkeypatch.setattr("simbert_hf.losses.CPU_CHUNK", chunk)
        reading = score_pairs(model.train(), pairs)
        assert model.training
        assert reading.log_probs.tolist() == pytest.approx(wanted, abs=1e-4)
        assert reading.tokens.tolist() == [len(row) for row in model.rows.targets(targets, 32)]
        np.testing.assert_allclose(reading.vectors, model.encode(sources), atol=1e-5)


@pytest.mark.filterwarnings("ignore:Texts of more than")
def test_long_pairs_are_cut_as_encode_cuts_and_to_the_room_there_is():
    model = tiny_simbert()
    half, long = model.positions // 2, "cat " * model.positions
    reading = score_pairs(model, [(long, "dog"), (long, long)])
    assert reading.tokens.tolist() == [2, half]
    for vector, room in zip(reading.vectors, (model.positions - 2, half), strict=True):
        np.testing.assert_allclose(vector, model.encode("cat " * (room - 2)), atol=1e-5)
    model.tokenizer.model_max_length = 8
    reading = score_pairs(model, [(long, "dog")])
    np.testing.assert_allclose(reading.vectors[0], model.encode(long), atol=1e-5)


def test_half_precision_reads_pairs_in_single():
    model = tiny_simbert().bfloat16()
    batch = model.rows.pad(model.rows.sources(["a cat"], 9), model.rows.targets(["a dog"], 9))
    states = model(**batch).last_hidden_state
    assert states.dtype == torch.bfloat16
    assert target_losses(model, states, batch).dtype == torch.float32


def test_no_pairs_are_read_as_nothing_and_a_model_that_cannot_write_is_refused():
    model = tiny_simbert()
    assert score_pairs(model, []).vectors.shape == (0, model.dimension)
    model.has_lm_head = False
    with pytest.raises(ValueError, match="only embeds"):
        score_pairs(model, [("a", "b")])


def test_a_bare_string_is_no_list_of_texts_or_pairs(model):
    with pytest.raises(TypeError, match="texts is the string 'a cat sat': give a list"):
        write(model, "a cat sat", SearchSettings(n=1))
    for pairs in ("ab", ["ab", "cd"]):
        with pytest.raises(TypeError, match=r"pairs holds 'ab?'; give tuples \(source, target\)"):
            score_pairs(model, pairs)


def test_the_reverse_log_prob_is_that_of_the_input_given_the_paraphrase(model):
    found = model.gen_synonyms(TEXTS[0], 20, 20, return_scores=True)
    assert found
    means = score_pairs(model, [(p.text, TEXTS[0]) for p in found]).means.tolist()
    assert [p.reverse_log_prob for p in found] == pytest.approx(means, abs=1e-4)


def test_diversity_changes_which_come_behind_the_best(model):
    options = {"n": 50, "seed": 0, "return_scores": True}
    ranked = model.gen_synonyms(TEXTS[0], k=50, diversity=0, **options)
    assert ranked == sorted(ranked, key=lambda found: -found.score)
    varied = model.gen_synonyms(TEXTS[0], k=5, diversity=5, **options)
    assert varied[0] == ranked[0]
    assert set(varied) < set(ranked)
    assert mean_likeness(varied) < mean_likeness(ranked[:5])


def test_of_paraphrases_in_the_same_words_the_best_comes_first():
    texts = ["I'd go", "i would go", "We go", "I would go, too", "I'd go too"]
    ranked = [Paraphrase(text, 1 - i / 10, 1, 0, 0) for i, text in enumerate(texts)]
    assert [one.text for one in choose("Go", ranked, 3, 0.01)] == [texts[i] for i in (0, 2, 3)]
    found = choose("Go", ranked, 5, 0.01)
    assert [one.text for one in found] == [texts[i] for i in (0, 2, 3, 1, 4)]
    assert choose("I'd go!", ranked, 2, 0) == ranked[:2]


@pytest.mark.parametrize(("lead", "first"), [(0.04, "It was late."), (0.06, "It's late!")])
def test_of_a_paraphrase_in_the_words_of_the_text_more_is_asked(lead, first):
    scores = {"It's late!": 0.9, "It was late.": 0.9 - lead, "it is, late": 0.5}
    ranked = [Paraphrase(text, score, 1, 0, 0) for text, score in scores.items()]
    assert choose("It is late.", ranked, 3, 0.2)[0].text == first
    assert [one.text for one in choose("It is late.", ranked, 3, 0)] == [*scores]


def mean_likeness(found):
    """Words that two of the paraphrases share, on average."""
    pairs = combinations([set(one.text.split()) for one in found], 2)
    return fmean(len(a & b) / len(a | b) for a, b in pairs)


def test_log_prob_is_the_mean_over_tokens_and_sep(model):
    settings = SearchSettings(n=20, seed=0, max_new_tokens=8, copying=0, repeats=True)
    drafts = write(model, TEXTS[:1], settings)[0]
    rows = token_rows(model, TEXTS[:1], n=20)[0]
    assert drafts
    means = sorted(log_prob / len(tokens) for tokens, log_prob in rows)
    assert all(min(abs(d.log_prob - mean) for mean in means) < 1e-6 for d in drafts)


def test_a_sentence_that_did_not_end_has_no_separator_in_its_mean():
    tokens = torch.tensor([[5, 6, 7], [5, 2, 2]])
    log_prob = torch.tensor([-3.0, -3.0])
    found = Hypotheses(torch.tensor([0, 1]), tokens, log_prob, log_prob, log_prob)
    assert [*unpacked(found, 2)] == [(0, [5, 6, 7], -1.0), (1, [5, 2], -1.5)]


def test_a_warning_counts_the_texts_with_an_unknown_word_and_quotes_none():
    tokenizer = wordpiece_tokenizer()
    texts = ["a cat", "a cat and \u2603", "\u2603", "\u2603 a dog", "the \u2603 time"]
    rows = [tokenizer(text)["input_ids"] for text in texts]
    with pytest.warns(UserWarning, match=r"sign in 3 of 5 texts: ") as caught:
        warn_of_unknown(tokenizer, texts, rows)  # the third is mostly unknown: encode warns
    with pytest.warns(UserWarning, match=r"sign in 1 of 3 texts: "):
        warn_of_unknown(tokenizer, texts[:3], rows[:3])
    assert len(caught) == 1


def test_distinct_keeps_the_likeliest_form():
    drafts = [Draft("Hi there.", -2.0), Draft("hi there!", -1.0), Draft("?", -0.1), Draft("no", -3)]
    assert distinct(drafts, ["NO!"]) == [Draft("hi there!", -1.0)]


def test_rank_takes_texts_without_drafts(model):
    assert rank(model, TEXTS[:2], [[], []], 0.1) == [[], []]


def test_special_tokens_are_never_written():
    model = tiny_simbert(vocab_size=len(wordpiece_tokenizer()) + 3)  # three rows have no token
    banned = set(banned_tokens(model).tolist())
    assert banned == {0, 1, 2, 4, *range(len(model.tokenizer), model.config.vocab_size)}
    with torch.no_grad():
        model.cls.predictions.bias[sorted(banned)] += 50.0
    for row, _ in token_rows(model, TEXTS[:1], n=50, top_k=None)[0]:
        assert not banned & set(row)
        assert row[0] != model.rows.sep_id


def test_a_path_is_loaded_once_until_it_changes(tmp_path, model, monkeypatch):
    model.save_pretrained(tmp_path / "a")
    loads = []
    original = SimBert.from_pretrained.__func__

    def counting(cls, *args, **kwargs):
        loads.append(args)
        return original(cls, *args, **kwargs)

    monkeypatch.setattr(SimBert, "from_pretrained", classmethod(counting))
    expected = model.gen_synonyms(TEXTS[0], 10, 5, seed=0)
    for path in (tmp_path / "a", str(tmp_path / "a")):
        assert gen_synonyms(TEXTS[0], 10, 5, seed=0, model=path) == expected
    assert len(loads) == 1
    model.save_pretrained(tmp_path / "a")
    gen_synonyms(TEXTS[0], 10, 5, seed=0, model=tmp_path / "a")
    assert len(loads) == 2
    for count, file in enumerate(("config.json", "model.safetensors"), start=3):
        os.utime(tmp_path / "a" / file, (2**31 + count, 2**31 + count))
        gen_synonyms(TEXTS[0], 1, seed=0, model=tmp_path / "a")
        assert len(loads) == count
    os.utime(tmp_path / "a" / "config.json", (0, 0))  # as going back to a former model may
    gen_synonyms(TEXTS[0], 1, seed=0, model=tmp_path / "a")
    assert len(loads) == 5
    (tmp_path / "a" / ".#README.md").symlink_to("nowhere")  # as Emacs makes them
    assert gen_synonyms(TEXTS[0], 10, 5, seed=0, model=tmp_path / "a") == expected


def test_threads_load_a_path_once(tmp_path, model):
    model.save_pretrained(tmp_path / "a")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(synonyms.load, [tmp_path / "a"] * 4))
    assert all(each is found[0] for each in found)


def test_the_package_s_model_has_a_short_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert synonyms.load("simbert-minilm-en") is synonyms.load(DEFAULT_MODEL)


def test_a_long_text_is_cut_with_one_warning(model):
    long = " ".join(["dog"] * 100)
    with pytest.warns(UserWarning, match="cut to that length|leave much out") as caught:
        model.gen_synonyms([long, long], n=3, k=3, seed=0, max_new_tokens=8)
    cut, short = (str(each.message) for each in caught)
    assert "were cut to that length" in cut
    assert "leave much out" in short


def test_ranking_changes_no_filters_of_warnings(monkeypatch):
    """They are those of all threads."""
    model, seen = tiny_simbert(), []
    encode = model.encode
    monkeypatch.setattr(model, "encode", lambda x: seen.append(warnings.filters) or encode(x))
    model.gen_synonyms("a cat", n=3)
    assert seen[0] is warnings.filters


def test_a_source_leaves_room_for_what_is_written():
    model, texts = tiny_simbert(), [30 * "the cat ", "a cat"]
    assert model.max_length == 48
    with pytest.warns(UserWarning, match=r"more than 48 tokens were cut.* raise max_length"):
        whole = sources_of(model, texts, 8)  # of 64 positions, 56 are left
    assert list(map(len, whole)) == [48, 4]
    told = "more than 34 tokens were .*split them, or lower max_new_tokens=30, .* 34 of the .* 64"
    with pytest.warns(UserWarning, match=told) as caught:
        rows = sources_of(model, texts, 30)
    assert rows == [[*whole[0][:33], model.rows.sep_id], whole[1]]
    assert len(caught) == 1
    assert sources_of(model, texts[1:], 30) == whole[1:]


def test_control_characters_are_not_read(model):
    text = "a cat sat on the mat"
    assert model.gen_synonyms("a c\x00at sat\x1f on the mat", n=5, seed=0) == model.gen_synonyms(
        text, n=5, seed=0
    )
    assert (model.encode("a c\x00at sat\x1f on the mat") == model.encode(text)).all()


@pytest.mark.parametrize(
    ("text", "options", "error", "sentence"),
    [
        ("", {}, ValueError, "text 0 is empty"),
        (["a", " "], {}, ValueError, "text 1 is empty"),
        ("a \ud83d b", {}, ValueError, "text 0 holds half a character"),
        (["a", 5], {}, TypeError, "text 1 is int 5"),
        ("\x00", {}, ValueError, "text 0 is empty"),
        (5, {}, TypeError, "text is int 5; pass a string or a list of strings"),
        ({"a": 1}, {}, TypeError, "text is dict {'a': 1}; pass a string or a list of strings"),
        ("a", {"n": 0}, ValueError, "n=0 is out of range"),  # as any of the search, and before k
        ("a", {"k": 0}, ValueError, "k=0 is out of range"),
        ("a", {"k": True}, ValueError, "k=True is out of range.*whole number"),
        ("a", {"k": 2.0}, ValueError, "k=2.0 is out of range.*whole number"),
        ("a", {"n": 10, "k": 11}, ValueError, "k=11 is out of range.*at most n=10"),
        ("a", {"top_k": -1}, ValueError, "top_k=-1 is out of range"),
        ("a", {"min_similarity": 3}, ValueError, "min_similarity=3 is not a cosine"),
        ("a", {"fluency_weight": -1}, ValueError, "fluency_weight=-1 is out of range"),
        ("a", {"diversity": math.nan}, ValueError, "diversity=nan is out of range"),
        ("a", {"max_new_tokens": 62}, ValueError, "max_new_tokens=62 is out.*has 64 positions"),
        ("a", {"temperature": 0.7}, ValueError, "'beam' draws nothing: leave them out, or use"),
        ("a", {"top_p": 0.7}, ValueError, "temperature and top_p affect only sampling"),
        ("a", {"top_p": "0.5"}, ValueError, "top_p='0.5' is out of range.* a number"),
        ("a", {"temperature": None}, ValueError, "temperature=None is out of range.* a number"),
        ("a", {"copying": "1"}, ValueError, "copying='1' is out of range"),
        ("a", {"diversity": None}, ValueError, "diversity=None is out of range"),
        ("a", {"min_similarity": "0"}, ValueError, "min_similarity='0' is not a cosine"),
        ("a", {"model": 5}, TypeError, "model=5 is not a SimBert, directory or org/name"),
        ("a", {"model": ["b"]}, TypeError, "is not a SimBert, directory or org/name"),
    ],
)
def test_bad_input_gets_one_clear_sentence(text, options, error, sentence):
    with pytest.raises(error, match=sentence) as caught:
        gen_synonyms(text, **{"model": tiny_simbert()} | options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("n", "most"), [(10, 10), (40, 20)])
def test_twenty_are_returned_or_all_where_fewer_are_written(model, n, most):
    options = {"strategy": "without_replacement", "top_k": None, "seed": 0, "min_similarity": -1}
    options |= {"copying": 0}  # of an untrained model's, the rules on facts drop much
    everything = model.gen_synonyms(TEXTS[0], n, n, **options)
    assert len(everything) >= most // 2
    assert model.gen_synonyms(TEXTS[0], n, **options) == everything[:most]


def test_scores_are_finite_when_everything_may_be_drawn(model):
    for strategy in ("sample", "without_replacement"):
        options = {"n": 40, "k": 40, "top_k": None, "top_p": 0.9, "temperature": 1.5}
        options["max_new_tokens"] = 12
        found = model.gen_synonyms(TEXTS[3], strategy=strategy, return_scores=True, **options)
        assert found
        assert all(math.isfinite(value) for p in found for value in p[1:])
