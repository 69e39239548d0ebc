import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset
from safetensors.numpy import load_file, save_file

from scripts.fit_ngrams import main
from simbert_hf import DEFAULT_MODEL, SimBert
from simbert_hf.data import PairDataset
from simbert_hf.gru import CharGru, CharGruConfig
from simbert_hf.hub import plan_upload
from simbert_hf.modeling.averaging import average_models
from simbert_hf.modeling.encoder import SentenceEncoder
from simbert_hf.modeling.ngrams import FILE, NGramModel, load_ngrams, save_ngrams
from simbert_hf.training.run import give_ngrams
from tests.naive import naive_kneser_ney
from tests.tiny import tiny_simbert

SIZE, CLS, SEP = 9, 0, 1
TEXTS = ["how can i go", "how can i learn english", "where are you", "where are you going"]


def sentences(count: int) -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [[CLS, *rng.integers(2, 8, rng.integers(1, 7)).tolist(), SEP] for _ in range(count)]


def with_ngrams() -> SimBert:
    model = tiny_simbert()
    rows = model.rows.sources(TEXTS, 48)
    model.ngrams = NGramModel.fit(rows, model.config.vocab_size, least=(1, 1))
    return model


def test_it_is_interpolated_kneser_ney_where_nothing_is_left_out() -> None:
    rows = sentences(40)
    model = NGramModel.fit(rows, SIZE, least=(1, 1))
    every = np.array(list(product(range(SIZE), repeat=3)))  # 8 is in no sentence
    ours = np.exp(model.log_probs(*every.T))
    theirs = [naive_kneser_ney(rows, (a, b), c, SIZE, 0.75) for a, b, c in every.tolist()]
    assert np.abs(ours / theirs - 1).max() < 1e-9


@pytest.mark.parametrize("least", [(1, 1), (2, 3), (4, 2), (99, 99)])
def test_probabilities_sum_to_one_behind_every_context(least: tuple[int, int]) -> None:
    model = NGramModel.fit(sentences(300), SIZE, least)
    first, second = np.array(list(product(range(SIZE), repeat=2))).T
    columns = [np.exp(model.log_probs(first, second, np.full_like(first, c))) for c in range(SIZE)]
    assert np.abs(sum(columns) - 1).max() < 1e-9
    assert min(column.min() for column in columns) > 0


def test_what_is_left_out_is_what_is_rare() -> None:
    rows = [[CLS, 2, 3, SEP]] * 3 + [[CLS, 4, 3, SEP]]
    kept = NGramModel.fit(rows, SIZE, least=(2, 3)).tables
    assert kept[1].tolist() == [[3, SEP]]  # behind 2 and behind 4
    assert kept[3].tolist() == [[CLS, CLS, 2], [CLS, 2, 3], [2, 3, SEP]]


def test_the_mean_is_over_the_tokens_of_each_sentence() -> None:
    rows = sentences(30)
    model = NGramModel.fit(rows, SIZE)
    one_by_one = [model.mean_log_probs([row]).item() for row in rows]
    assert model.mean_log_probs(rows).tolist() == pytest.approx(one_by_one)
    first, second, third = np.array([[CLS, CLS, 3], [CLS, 3, 5], [3, 5, SEP]]).T
    expected = model.log_probs(first, second, third).mean()
    assert model.mean_log_probs([[CLS, 3, 5, SEP]]).item() == pytest.approx(expected)
    assert len(model.mean_log_probs([])) == 0


def test_they_count_half_of_a_paraphrase_s_fluency() -> None:
    model = with_ngrams()
    options = {"n": 30, "k": 30, "seed": 0, "max_new_tokens": 6, "return_scores": True}
    both = {one.text: one for one in model.gen_synonyms("how can i go", **options)}
    ngrams, model.ngrams = model.ngrams, None
    alone = {one.text: one for one in model.gen_synonyms("how can i go", **options)}
    assert set(both) == set(alone)
    rows = {text: model.rows.sources([text], 48)[0][:-1] for text in both}
    cut = [text for text, row in rows.items() if len(row) == 7]  # its six tokens end in no [SEP]
    assert len(cut) > 5
    counted = ngrams.mean_log_probs([rows[text] for text in cut])
    for text, mean in zip(cut, counted, strict=True):
        assert both[text].log_prob == pytest.approx((alone[text].log_prob + mean) / 2)
        expected = both[text].similarity + 0.1 * both[text].log_prob
        assert both[text].score == pytest.approx(expected)


def test_they_stay_with_the_model(tmp_path: Path) -> None:
    model = with_ngrams()
    model.save_pretrained(tmp_path)
    loaded = SimBert.from_pretrained(tmp_path)
    again = average_models([loaded, SimBert.from_pretrained(tmp_path)])
    rows = model.rows.sources(TEXTS, 48)
    expected = model.ngrams.mean_log_probs(rows)
    for other in (loaded, again):  # in half precision
        assert np.abs(other.ngrams.mean_log_probs(rows) - expected).max() < 0.01
    assert FILE in plan_upload(tmp_path).files
    model.resize_token_embeddings(model.config.vocab_size + 8)
    gru = CharGru(CharGruConfig(vocab_size=len(TEXTS)))
    for other in (tiny_simbert(), SentenceEncoder.from_pretrained(tmp_path), gru, model):
        loaded.save_pretrained(tmp_path)
        assert (tmp_path / FILE).exists()
        other.save_pretrained(tmp_path)
        assert not (tmp_path / FILE).exists()  # another model's
    assert SimBert.from_pretrained(tmp_path).ngrams is None


def test_training_counts_the_sentences_that_it_trains_on() -> None:
    model = tiny_simbert()
    many = [f"{word} {text}" for word in ("", "please", "and", "today", "a") for text in TEXTS]
    groups = Dataset.from_dict({"group": [0, 1, 1], "texts": [many[:2], many[2:9], many[2:9]]})
    give_ngrams(model, PairDataset(groups, seed=0), [*many[9:], many[0]])
    rows = model.rows.sources(many, 48)
    expected = NGramModel.fit(rows, model.config.vocab_size)  # each once
    assert min(map(len, expected.tables)) > 0
    assert np.array_equal(model.ngrams.mean_log_probs(rows), expected.mean_log_probs(rows))
    known = model.ngrams
    give_ngrams(model, PairDataset(groups.select([0]), seed=0), [])
    assert model.ngrams is known  # a start keeps its own


def test_damaged_or_foreign_ones_are_refused(tmp_path: Path) -> None:
    save_ngrams(NGramModel.fit(sentences(9), SIZE), tmp_path)
    with pytest.raises(
        ValueError, match=rf"{FILE} has n-grams of 9 tokens, and the model knows 8: delete"
    ):
        load_ngrams(tmp_path, {}, 8)
    arrays = load_file(tmp_path / FILE)
    del arrays["trigrams"]
    save_file(arrays, tmp_path / FILE)
    with pytest.raises(ValueError, match=rf"{FILE} is damaged \('trigrams'\): copy it again"):
        load_ngrams(tmp_path, {}, SIZE)
    for wrong in (np.zeros((3, 3), dtype=np.uint16), np.zeros(())):
        save_file(arrays | {"trigrams": wrong}, tmp_path / FILE)
        with pytest.raises(ValueError, match=rf"{FILE} is damaged"):
            load_ngrams(tmp_path, {}, SIZE)
    (tmp_path / FILE).write_bytes(b"{" * 20)
    with pytest.raises(ValueError, match=rf"{FILE} is damaged"):
        load_ngrams(tmp_path, {}, SIZE)


def test_there_must_be_sentences() -> None:
    with pytest.raises(ValueError, match="no sentences"):
        NGramModel.fit([], SIZE)


def test_the_script_adds_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_simbert().save_pretrained(tmp_path / "model")
    more = [f"please {text}" for text in TEXTS]
    for name, texts in (("a.txt", TEXTS), ("b.txt", TEXTS + more)):
        (tmp_path / name).write_text("\n".join(texts))
    files = [str(tmp_path / name) for name in ("a.txt", "b.txt")]
    out = str(tmp_path / "out")
    start = str(tmp_path / "model")
    main(["--model_name_or_path", start, "--train_file", *files, "--output_dir", out])
    assert capsys.readouterr().out == f"{out}: with n-grams of 12 sentences.\n"
    before, after = SimBert.from_pretrained(start), SimBert.from_pretrained(out)
    rows = after.rows.sources(TEXTS + more, 48)
    expected = NGramModel.fit(rows, after.config.vocab_size)
    save_ngrams(expected, start)
    expected = SimBert.from_pretrained(start).ngrams
    assert np.array_equal(after.ngrams.mean_log_probs(rows), expected.mean_log_probs(rows))
    assert np.array_equal(before.encode(TEXTS), after.encode(TEXTS))


def test_the_shipped_ones_know_english() -> None:
    model = SimBert.from_pretrained(DEFAULT_MODEL)
    right = ["where am i now?", "what should i do?", "he looks happy.", "i want to go home."]
    wrong = ["where is i now?", "what should i?", "he look happy.", "i want go to home."]
    scores = [model.ngrams.mean_log_probs(model.rows.sources(t, 48)) for t in (right, wrong)]
    assert (scores[0] > scores[1]).all()
    config = json.loads(Path(DEFAULT_MODEL, "config.json").read_text())
    assert len(model.ngrams.unigrams) == config["vocab_size"]
