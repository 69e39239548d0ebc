"""FaqIndex: exact where it says so, whole after every failure, and honest about its thresholds."""

from __future__ import annotations

import copy
import datetime
import errno
import json
import os
import pickle
import pkgutil
import re
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import datasets
import numpy as np
import pandas as pd
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer

from simbert_hf import DEFAULT_MODEL, CharGru, SimBert
from simbert_hf.encoders.loader import load_sentence_transformer
from simbert_hf.encoders.text_encoder import TextEncoder, saved_name
from simbert_hf.encoders.vectorfiles import encode_file
from simbert_hf.evaluation.bootstrap import Bootstrap
from simbert_hf.evaluation.suite import EvaluationArguments, evaluate, load_tasks
from simbert_hf.index import FaissVectors, Faq, FaqIndex, augment, read_faqs, read_queries
from simbert_hf.index.calibration import TARGETS, Calibration, calibrate_scores
from simbert_hf.index.locks import ReadWriteLock
from simbert_hf.index.ranking import nearest_groups
from simbert_hf.index.stores import measure_recall, misfit
from simbert_hf.index.table import CHUNKS, FaqTable
from simbert_hf.utils.textfiles import DataError
from tests.tiny import WORDS, tiny_simbert, unigram_tokenizer

ROWS = [
    {"question": "how do i reset my password", "answer": "Press it.", "id": "a", "page": 3},
    {"question": "please reset the password", "answer": "Press it.", "id": "b"},
    {"question": "what time is it", "answer": "Late.", "id": "c"},
    {"question": "where is the cat", "answer": "On the mat.", "id": "d", "group": "cats"},
    {"question": "is the cat on the mat", "answer": "Yes.", "id": "e", "group": "cats"},
]


@pytest.fixture(scope="module")
def model():
    return tiny_simbert()


@pytest.fixture
def index(model):
    return FaqIndex.build(model, ROWS)


def sentences(count, seed=0):
    rng = np.random.default_rng(seed)
    drawn = {" ".join(rng.choice(WORDS, rng.integers(3, 9))) for _ in range(3 * count)}
    return sorted(drawn)[:count]


def unit(rng, *shape):
    vectors = rng.normal(size=shape).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


# Exactness --------------------------------------------------------------------------------------


@pytest.mark.parametrize("votes", [1, 3])
def test_search_equals_brute_force_through_changes(model, votes):
    texts = sentences(60)
    rows = [Faq(t, f"answer {i % 7}", id=f"r{i}") for i, t in enumerate(texts)]
    index = FaqIndex.build(model, rows[:40], votes=votes)
    index.add(rows[40:])
    index.remove(["r3", "r41"])
    index.update([Faq("a dog ran", "answer 0", id="r5")])
    left = {row.id: row for row in rows} | {"r5": Faq("a dog ran", "answer 0", id="r5")}
    del left["r3"], left["r41"]
    vectors = model.encode([row.question for row in left.values()])
    answers = np.array([row.answer for row in left.values()])
    queries = sentences(10, seed=1)
    for query, hits in zip(queries, index.search(queries, k=4), strict=True):
        cosines = vectors @ model.encode(query)
        means = {a: np.sort(cosines[answers == a])[::-1][:votes].mean() for a in set(answers)}
        best = sorted(means, key=lambda a: -means[a])[:4]
        assert [hit.answer for hit in hits] == best
        assert [hit.score for hit in hits] == pytest.approx([means[a] for a in best], abs=1e-5)
        assert all(left[hit.id].question == hit.question for hit in hits)
    assert len(index) == 58
    assert {row.id for row in index.faqs()} == set(left)


def test_hits_are_grouped_and_bring_metadata(index):
    assert len(index.search("reset my password", k=9)) == 3  # answers, not rows
    (hit,) = index.search("how do i reset my password", k=1)
    assert (hit.metadata, hit.answer, hit.group) == ({"page": 3}, "Press it.", None)
    assert hit.score == pytest.approx(1, abs=1e-5)
    assert index.search("where is the cat", k=1)[0].answer == "On the mat."  # not its group's other
    assert index.search([]) == []


def test_a_group_may_have_an_answers_name(model):
    rows = [
        {"question": "what time", "answer": "x"},
        {"question": "a cat", "answer": "y", "group": "x"},
    ]
    assert len(FaqIndex.build(model, rows).search("dog", k=5)) == 2


@pytest.mark.parametrize("kind", ["hnsw", pytest.param("ivf_pq", marks=pytest.mark.slow)])
def test_removed_vectors_do_not_hide_the_others(kind):
    """A graph's walk would end among them, as would a search of the lists that they fill."""
    rng = np.random.default_rng(1)
    count, clusters = (4_000 if kind == "hnsw" else 12_000), 20
    centres, of = unit(rng, clusters, 16), rng.integers(0, clusters, count)
    vectors = centres[of] + 0.1 * rng.standard_normal((count, 16))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    store = FaissVectors(kind)
    store.add(vectors)
    for left in (19, 5, 1):  # clusters
        store.remove(np.flatnonzero(of >= left))
        living = np.flatnonzero(of < left)
        scores, numbers = store.search(centres, 10)
        due = np.sort(centres @ vectors[living].T, axis=1)[:, :-11:-1]
        assert np.isin(numbers, living).all()
        np.testing.assert_allclose(scores, due, atol=1e-5 if kind == "hnsw" else 0.15)
    store.remove(np.flatnonzero(of == 0)[:-2])
    assert ((store.search(centres, 3)[1] >= 0).sum(axis=1) == 2).all()
    store.remove(np.arange(count))
    assert (store.search(centres, 3)[1] == -1).all()


@pytest.mark.parametrize("kind", ["hnsw", pytest.param("ivf_pq", marks=pytest.mark.slow)])
def test_approximate_stores_find_add_remove_and_map(kind, tmp_path):
    rng = np.random.default_rng(0)
    count = 600 if kind == "hnsw" else 10_000
    vectors = unit(rng, count, 16)
    store = FaissVectors(kind)
    store.add(vectors)
    assert measure_recall(store, vectors) > (0.95 if kind == "hnsw" else 0.8)
    assert not store.exact
    extra = unit(rng, 5, 16)
    store.add(extra)
    store.remove(np.array([0, count + 4]))
    facts = store.save(tmp_path)
    again = FaissVectors.load(tmp_path, facts["kind"], np.array([0, count + 4]))
    again.add(unit(rng, 1, 16))  # mapped until now
    for one in (store, again):
        _, found = one.search(np.concatenate([extra, vectors[:3]]), 5)
        assert found[:4, 0].tolist() == [count, count + 1, count + 2, count + 3]
        assert found[6:, 0].tolist() == [1, 2]
        assert not {0, count + 4} & set(found.ravel().tolist())
    assert len(again) == count + 6
    np.testing.assert_allclose(again.vectors(np.array([7])), vectors[7:8], atol=2e-3)


def test_recall_counts_what_a_store_misses():
    vectors = unit(np.random.default_rng(0), 200, 8)

    class Half(FaissVectors):
        def search(self, queries, k):
            scores, numbers = super().search(queries, k)
            numbers[:, 1 + (k - 1) // 2 :] = -1
            return scores, numbers

    store = Half("flat")
    store.add(vectors)
    assert measure_recall(store, vectors) == pytest.approx(0.5)
    store = FaissVectors("flat")
    store.add(vectors)
    assert measure_recall(store, vectors) == 1
    alone = FaissVectors("flat")
    alone.add(vectors[:1])  # which has no others
    assert measure_recall(alone, vectors[:1]) == 1


def test_groups_are_found_behind_many_rows_of_one():
    rng = np.random.default_rng(0)
    codes = np.array([0] * 500 + [1, 2, 2])
    vectors = unit(rng, 503, 4)
    vectors[:500] = vectors[0] + 0.01 * vectors[:500]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    store = FaissVectors("flat")
    store.add(vectors)
    ((first, *others),) = nearest_groups(store, (codes, np.bincount(codes)), vectors[:1], 3, 1)
    assert first.code == 0
    assert {hit.code for hit in others} == {1, 2}


def test_few_groups_need_few_vectors_and_many_queries_come_in_blocks(monkeypatch):
    class Counting(FaissVectors):
        cells = 0

        def search(self, vectors, k):
            Counting.cells = max(Counting.cells, len(vectors) * k)
            return super().search(vectors, k)

    vectors = unit(np.random.default_rng(0), 3000, 8)
    codes = np.arange(3000) % 3
    groups = (codes, np.array([*np.bincount(codes), 0]))  # of the fourth, all rows are removed
    store = Counting("flat")
    store.add(vectors)
    found = nearest_groups(store, groups, vectors[:20], 5, 1)
    assert Counting.cells <= 20 * 128  # not all 3,000 of each query
    assert [len(row) for row in found] == [3] * 20
    Counting.cells = 0
    monkeypatch.setattr("simbert_hf.index.ranking.CELLS", 300)
    again = nearest_groups(store, groups, vectors[:20], 5, 1)
    assert [[hit.number for hit in row] for row in again] == [
        [hit.number for hit in row] for row in found
    ]
    assert Counting.cells <= 300


@pytest.mark.parametrize("change", ["add", "remove", "update"])
def test_a_search_sees_all_of_a_change_or_nothing(index, monkeypatch, change):
    """Each step of the store gives another thread time to come between."""
    row = Faq("what time is it today", "Later.", id="c" if change == "update" else "new")
    before, queries = index.search(["what time is it today"]), ["what time is it today"]
    found, threads = [], []

    def beside(work):
        thread = threading.Thread(target=work)
        thread.start()
        threads.append(thread)
        thread.join(0.2)  # it may have to wait for us

    for name in ("add", "remove"):
        real = getattr(index.store, name)

        def then_searched(argument, real=real):
            real(argument)
            beside(lambda: found.append(index.search(queries)))

        monkeypatch.setattr(index.store, name, then_searched)
    search = index.store.search

    def then_changed(*arguments):
        numbers = search(*arguments)
        monkeypatch.setattr(index.store, "search", search)
        beside(lambda: getattr(index, change)("c" if change == "remove" else [row]))
        return numbers

    monkeypatch.setattr(index.store, "search", then_changed)
    found.append(index.search(queries))
    for thread in threads:  # each of them may start another
        thread.join()
    after = index.search(queries)
    assert before[0][0].answer == "Late."
    assert found == [before] + [after] * (len(found) - 1)
    assert len(found) == (3 if change == "update" else 2)
    assert after != before


def test_searches_do_not_wait_for_each_other(index, monkeypatch):
    search, both = index.store.search, threading.Barrier(2, timeout=20)

    def search_together(*arguments):
        both.wait()
        return search(*arguments)

    monkeypatch.setattr(index.store, "search", search_together)
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(index.search, ["what time is it today"] * 2))
    assert found[0] == found[1] != []


def test_a_change_waits_for_searches_and_later_ones_wait_for_it():
    lock, order = ReadWriteLock(), []

    def enter(way, name):
        with way():
            order.append(name)

    change, later = (
        threading.Thread(target=enter, args=each)
        for each in ((lock.writing, "change"), (lock.reading, "later"))
    )
    with lock.reading():
        with lock.reading():
            change.start()
            assert any(lock._door.locked() or time.sleep(0.001) for _ in range(9999))
        later.start()
        later.join(0.05)
        order.append("searched")
    for thread in (change, later):
        thread.join()
    assert order == ["searched", "change", "later"]


def test_a_failed_update_can_be_repeated(index, monkeypatch):
    def fail(_):
        raise OSError("no network")

    row = Faq("what time is it today", "Later.", id="c")
    for step in ("remove", "add"):
        with monkeypatch.context() as patch:
            patch.setattr(index.store, step, fail)
            with pytest.raises(OSError, match="no network"):
                index.update([row])
    index.update([row])
    index.add([Faq("how are you", "Fine.", id="new")])
    for question, answer in (("what time is it today", "Later."), ("how are you", "Fine.")):
        assert index.search(question)[0].answer == answer
    assert len(index) == len(index.store) - 2 == 6  # the old row's, and one that was not removed


def test_an_updated_row_stays_in_its_group_unless_it_names_another(index):
    index.add([Faq("how are you", "Fine.", group="talk", id="new")])
    for given, kept in ((None, "talk"), ("chat", "chat"), (None, "chat")):
        index.update([Faq("how are you now", "Well.", group=given, id="new")])
        assert index.faqs()[-1].group == kept


def test_an_updated_row_keeps_what_it_does_not_name(index):
    index.add([{"question": "how are you", "answer": "Fine.", "id": 7, "page": 3, "by": "Ann"}])
    index.update([{"question": "how are you now", "answer": "Well.", "id": 7, "by": None}])
    assert index.faqs()[-1].metadata == {"page": 3, "by": None}
    index.update([Faq("hi", "Hi.", id="7", metadata={"paraphrase_of": "hello"})])
    assert index.faqs()[-1].metadata == {"page": 3, "by": None, "paraphrase_of": "hello"}
    index.update([Faq("hey", "Hi.", id="7")])  # a question of its own
    assert index.faqs()[-1].metadata == {"page": 3, "by": None}


def test_of_two_equal_rows_the_other_keeps_the_paraphrases(model):
    row = {"question": "what time is it", "answer": "Late."}
    written = {"question": "what is the time", "answer": "Late.", "paraphrase_of": row["question"]}
    index = FaqIndex.build(model, [row | {"id": "a"}, row | {"id": "b"}, written | {"id": "c"}])
    index.remove("a")
    assert [faq.id for faq in index.faqs()] == ["b", "c"]
    index.remove("b")
    assert len(index) == 0


def test_paraphrases_of_another_answer_or_group_stay(model):
    row = {"question": "what time is it", "answer": "Late.", "id": "a"}
    written = row | {"question": "what is the time", "paraphrase_of": row["question"]}
    others = [written | {"id": "b", "answer": "Noon."}, written | {"id": "c", "group": "talk"}]
    index = FaqIndex.build(model, [row, written | {"id": "d"}, *others])
    index.remove("a")
    assert [faq.id for faq in index.faqs()] == ["b", "c"]


def test_nothing_of_a_removed_row_remains(index):
    index.remove(["a", "d"])
    rows = index._table.data.to_pylist()
    blank = {"id": "", "question": "", "answer": "", "group": None, "metadata": ""}
    assert [rows[0], rows[3]] == [blank | {"removed": True}] * 2


def test_a_query_that_cannot_be_one_stops_no_other(index):
    asked = ["what time is it", " ", "a" * 10_001, "what\x00", "what \ud83d"]
    replies = index.answer(asked, threshold=-1)
    assert [bool(reply.hits) for reply in replies] == [True, False, False, False, False]
    assert replies[-1].reason == "The query holds half a character."
    assert replies[0].answer
    assert [reply.reason for reply in replies[1:3]] == [
        "The query is empty.", "The query has 10,001 characters, more than 10,000."
    ]  # fmt: skip
    assert index.answer("", threshold=0).answer is None


def test_an_index_whose_model_has_moved_says_how_to_name_it(tmp_path):
    tiny_simbert().save_pretrained(tmp_path / "model")
    FaqIndex.build(str(tmp_path / "model"), ROWS).save(tmp_path / "index")
    (tmp_path / "model").rename(tmp_path / "moved")
    with pytest.raises(
        OSError, match=r"index: its model cannot be loaded: .*give its new path .*--model"
    ):
        FaqIndex.load(tmp_path / "index")
    assert len(FaqIndex.load(tmp_path / "index", str(tmp_path / "moved"))) == len(ROWS)
    with pytest.raises(OSError, match=r"^Cannot load .*wrong"):  # which is no fault of the index
        FaqIndex.load(tmp_path / "index", str(tmp_path / "wrong"))


@pytest.mark.skipif(os.name == "nt", reason="folders have no modes")
@pytest.mark.parametrize("mask", [0o077, 0o002])
def test_an_index_is_as_open_as_the_umask_says(tmp_path, mask):
    """Members of a group who share an index replace each other's data."""
    former = os.umask(mask)
    try:
        FaqIndex.build(tiny_simbert(), ROWS).save(tmp_path / "index")
    finally:
        os.umask(former)
    paths = [tmp_path / "index", *(tmp_path / "index").rglob("*")]
    assert {path.stat().st_mode & 0o777 & mask for path in paths} == {0}
    assert {path.stat().st_mode & 0o777 for path in paths if path.is_dir()} == {0o777 & ~mask}


def test_an_index_names_its_own_model_and_the_other(tmp_path):
    model = tiny_simbert()
    model.save_pretrained(tmp_path / "model")
    FaqIndex.build(str(tmp_path / "model"), ROWS).save(tmp_path / "index")
    model.bert.encoder.layer[0].output.dense.weight.data += 1e-3
    for name, said in (("other", "model, not .*other"), ("model", "another state of .*model")):
        model.save_pretrained(tmp_path / name)
        with pytest.raises(DataError, match=f"was built by [^,]*{said}: its weights differ"):
            FaqIndex.load(tmp_path / "index", str(tmp_path / name))


def test_an_index_shows_what_it_is(index):
    assert repr(index) == f"FaqIndex({len(index)} questions, flat, model unnamed)"


def test_texts_that_a_model_cuts_are_told_of(tmp_path):
    tiny_simbert().save_pretrained(tmp_path)
    model = SentenceTransformer(str(tmp_path), device="cpu")
    model.max_seq_length = 12
    with pytest.warns(UserWarning, match="Texts of more than 12 tokens were cut"):
        FaqIndex.build(model, [Faq(" ".join(WORDS[:12]), "a")])
    FaqIndex.build(model, [Faq(" ".join(WORDS[:4]), "a")])  # many characters, few tokens


@pytest.mark.parametrize("threshold", [float("nan"), "0.5"])
def test_thresholds_are_numbers(index, threshold):
    with pytest.raises(ValueError, match=r"threshold=.* is not a score"):
        index.answer("what time is it", threshold=threshold)


def test_spreadsheets_headers(tmp_path, caplog):
    path = tmp_path / "faq.csv"
    path.write_text("Question,Answer,ID,\nwhat,a,1,\nWHAT,b,2,\nwhy,a,3,\nwhy,a,4,\nWhy,a,5,\n")
    faqs = read_faqs(path)
    assert faqs[0] == Faq("what", "a", None, "1", {})
    assert caplog.messages == [
        f"{path}: rows that repeat a question and its answer: 1",
        f"{path}: questions with several, equally near answers: 1, such as 'what'",
    ]
    path.write_text("Question;Answer;;\nwhat;a;;\n")
    with pytest.raises(DataError, match="Its cells are parted by ';': save it with commas"):
        read_faqs(path)


def test_an_index_can_be_copied(index):
    for copied in (copy.deepcopy(index), pickle.loads(pickle.dumps(index))):
        copied.remove("c")
        for again in (copy.deepcopy(copied), pickle.loads(pickle.dumps(copied))):
            assert len(again) == 4
            assert "Late." not in [hit.answer for hit in again.search("what time is it", k=5)]
    assert len(index) == 5


# On disk ----------------------------------------------------------------------------------------


def test_saved_and_loaded(index, model, tmp_path):
    index.calibrate([{"query": "what time", "id": "c"}, {"query": "fast", "id": ""}], precision=0.5)
    index.remove("a")
    index.save(tmp_path / "faq")
    again = FaqIndex.load(tmp_path / "faq", model)
    queries = sentences(5)
    assert again.search(queries, k=9) == index.search(queries, k=9)
    assert again.calibration.rates == index.calibration.rates
    assert again.calibration.threshold == index.calibration.threshold
    assert (
        b"how do i reset"
        not in next((tmp_path / "faq").glob("faqindex-*/rows.parquet")).read_bytes()
    )
    again.add([{"question": "learn english", "answer": "Read."}])  # not in the mapped file
    again.save(tmp_path / "faq")
    again.add([{"question": "learn english fast", "answer": "Read."}])  # its file is gone now
    assert len(list((tmp_path / "faq").iterdir())) == 3  # manifest, lock, data
    assert (
        FaqIndex.load(tmp_path / "faq", model, mmap=False).search("learn english")[0].score > 0.999
    )
    assert len(FaqIndex.load(tmp_path / "faq", model)) == 5


@pytest.mark.parametrize("step", ["sync", "put_in_place"])
def test_a_failed_save_leaves_the_old_index(index, model, tmp_path, monkeypatch, step):
    index.save(tmp_path)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    index.remove("c")

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(f"simbert_hf.index.saving.{step}", full)
    with pytest.raises(OSError, match=re.escape(f"left on device: '{tmp_path}'")):
        index.save(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == before
    assert len(FaqIndex.load(tmp_path, model)) == 5


@pytest.mark.parametrize(
    ("step", "late", "left"),
    [
        ("sync", True, 5),
        ("put_in_place", False, 5),
        ("put_in_place", True, 4),
        ("shutil.rmtree", False, 4),
    ],
)
def test_an_interrupted_save_leaves_an_index_that_can_be_saved(
    index, model, tmp_path, monkeypatch, step, late, left
):
    index.save(tmp_path)
    index.remove("c")
    real = pkgutil.resolve_name(f"simbert_hf.index.saving.{step}")

    def interrupted(*args, **options):
        if late:
            real(*args, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"simbert_hf.index.saving.{step}", interrupted)
        with pytest.raises(KeyboardInterrupt):
            index.save(tmp_path)
    assert len(FaqIndex.load(tmp_path, model)) == left
    index.save(tmp_path)
    assert len(FaqIndex.load(tmp_path, model)) == 4
    assert len(list(tmp_path.iterdir())) == 3  # manifest, lock, data


def test_damaged_indexes_are_refused(index, model, tmp_path):
    index.save(tmp_path / "faq")
    (manifest,) = (tmp_path / "faq").glob("*.json")
    (vectors,) = (tmp_path / "faq").glob("faqindex-*/vectors.faiss")
    whole, facts = vectors.read_bytes(), manifest.read_text()
    vectors.write_bytes(whole[:-9])
    with pytest.raises(DataError, match=r"vectors.faiss: is incomplete: \d+ of \d+ bytes"):
        FaqIndex.load(tmp_path / "faq", model)
    vectors.write_bytes(b"x" * len(whole))
    with pytest.raises(DataError, match="is not a faiss index"):
        FaqIndex.load(tmp_path / "faq", model)
    vectors.write_bytes(whole)
    manifest.write_text(facts[:-20])
    with pytest.raises(DataError, match=r"index.json: is incomplete"):
        FaqIndex.load(tmp_path / "faq", model)
    manifest.write_text(json.dumps(json.loads(facts) | {"format": 2}))
    with pytest.raises(DataError, match="has the format 2"):
        FaqIndex.load(tmp_path / "faq", model)
    manifest.write_text(json.dumps(json.loads(facts) | {"rows": 6}))
    with pytest.raises(DataError, match="has 5 rows and 5 vectors where 6 are due"):
        FaqIndex.load(tmp_path / "faq", model)
    with pytest.raises(DataError, match="does not exist"):
        FaqIndex.load(tmp_path / "none", model)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="holds something other than an index"):
        index.save(tmp_path)


def test_an_index_of_another_model_is_refused(index, tmp_path):
    index.save(tmp_path)
    other = tiny_simbert()
    other.bert.encoder.layer[0].output.dense.weight.data += 1e-3
    with pytest.raises(DataError, match=r"another model.*its weights differ"):
        FaqIndex.load(tmp_path, other)
    with pytest.raises(DataError, match=r"another model.*pooling or length"):
        FaqIndex.load(tmp_path, tiny_simbert(pooling="cls"))
    with pytest.raises(DataError, match="was built by a model that was never saved"):
        FaqIndex.load(tmp_path)


@pytest.mark.parametrize(
    "change",
    [{"data": ".."}, {"data": "/"}, {"data": "a/b"}, {"files": {"../x": 1}}, {"votes": ...}],
)
def test_an_index_leads_nowhere_else(index, model, tmp_path, change):
    (tmp_path / "mine.txt").write_text("mine")
    index.save(tmp_path / "faq")
    manifest = tmp_path / "faq" / "index.json"
    facts = json.loads(manifest.read_text()) | {"files": {}} | change
    manifest.write_text(json.dumps({k: v for k, v in facts.items() if v is not ...}))
    with pytest.raises(DataError, match=r"index\.json: is incomplete"):
        FaqIndex.load(tmp_path / "faq", model)
    with suppress(ValueError):  # no index of ours, if its data are not
        index.save(tmp_path / "faq")
    assert (tmp_path / "mine.txt").exists()


@pytest.mark.parametrize(
    "step", ["saving.json.loads", "table.pyarrow.parquet.read_table", "stores.faiss.read_index"]
)
def test_a_load_while_another_process_saves(index, model, tmp_path, monkeypatch, step):
    index.save(tmp_path)
    owner, _, name = step.rpartition(".")
    owner = pkgutil.resolve_name(f"simbert_hf.index.{owner}")
    real, saves = getattr(owner, name), iter([index.save])

    def saved_meanwhile(*args, **options):
        found = real(*args, **options) if name == "loads" else None  # else just before it
        for save in saves:
            save(tmp_path)
        return found or real(*args, **options)

    monkeypatch.setattr(owner, name, saved_meanwhile)
    assert len(FaqIndex.load(tmp_path, model)) == 5
    assert next(saves, None) is None


def test_another_tools_index_json_is_left_alone(index, model, tmp_path):
    for text in ('{"mine": 1}', '{"format": 1, "data": "mine"}', "[1]", "{"):
        (tmp_path / "index.json").write_text(text)
        with pytest.raises(ValueError, match="holds something other than an index"):
            index.save(tmp_path)
        with pytest.raises(DataError, match=r"index\.json: is incomplete, or not an index's"):
            FaqIndex.load(tmp_path, model)
        assert [path.read_text() for path in tmp_path.iterdir()] == [text]


def test_saves_at_once_take_turns(index, model, tmp_path, monkeypatch):
    """Whoever writes first waits for a second save before it goes on: in vain."""
    write, both = FaqIndex._write, threading.Barrier(2)

    def slow(self, folder):
        with suppress(threading.BrokenBarrierError):
            both.wait(timeout=0.3)
        return write(self, folder)

    monkeypatch.setattr(FaqIndex, "_write", slow)
    others = [index, FaqIndex.build(model, ROWS[:3])]
    with ThreadPoolExecutor() as pool:
        for saving in [pool.submit(each.save, tmp_path) for each in others]:
            saving.result()
    assert both.broken
    assert len(FaqIndex.load(tmp_path, model)) in {3, 5}
    assert len(list(tmp_path.glob("faqindex-*"))) == 1


def test_changes_that_another_process_saved_are_not_overwritten(index, model, tmp_path):
    index.save(tmp_path)
    one, other = (FaqIndex.load(tmp_path, model) for _ in range(2))
    for loaded, name in ((one, "x"), (other, "y")):
        loaded.add([{"question": f"is {name} there", "answer": name}])
    one.save(tmp_path)
    one.save(tmp_path)
    for late in (index, other):
        with pytest.raises(
            DataError, match=r"saved by another process, or a copy, since .* Load it again"
        ):
            late.save(tmp_path)
    assert FaqIndex.load(tmp_path, model).faqs() == one.faqs()
    other.save(tmp_path / "elsewhere")
    link = tmp_path / "current"
    link.symlink_to("elsewhere")
    linked = FaqIndex.load(link, model)
    link.unlink()
    link.symlink_to(".")
    with pytest.raises(DataError, match="Load it again"):  # it leads to another index now
        linked.save(link)
    link.unlink()
    FaqIndex.build(model, ROWS).save(tmp_path)  # a new index replaces any


def static_embeddings(path: Path) -> SentenceTransformer:
    """A model without transformer, whose tokenizer is not of transformers."""
    torch.manual_seed(0)
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=8)])


def static_unigrams(path: Path) -> SentenceTransformer:
    """The same, with pieces and an unknown one of a number, not of a name."""
    torch.manual_seed(0)
    tokenizer = unigram_tokenizer().backend_tokenizer
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=8)])


@pytest.mark.parametrize(
    "load",
    [
        lambda path: load_sentence_transformer(str(path)),
        SimBert.from_pretrained,
        static_embeddings,
        static_unigrams,
    ],
)
def test_questions_that_the_model_cannot_read(model, tmp_path, load):
    model.save_pretrained(tmp_path)
    model = load(tmp_path)
    rows = [
        {"question": f"{text}怎么退款", "answer": "a"}
        for text in ("where is the cat on the mat ", "", "如何注册")
    ]
    with pytest.raises(DataError, match=r"in 2 of 3 questions, such as .怎么.*build --model"):
        FaqIndex.build(model, rows)
    for foreign in ([], rows[1:]):  # few of them are told of
        with pytest.warns(UserWarning, match="trained on their language"):
            FaqIndex.build(model, [*ROWS, *foreign]).search("营业时间")
    index = FaqIndex.build(model, ROWS)
    for change, name in ((index.add, "z"), (index.update, "a")):
        with pytest.raises(DataError, match="unknown to the model in 1 of 1 questions"):
            change([{"question": "怎么退款", "answer": "a", "id": name}])
    assert index.faqs() == FaqIndex.build(model, ROWS).faqs()


@pytest.mark.parametrize(
    "query", [None, 7, b"what time is it", {"a": 1}, pd.DataFrame({"a": ["the cat"]})]
)
def test_a_query_that_is_no_text(index, query):
    with pytest.raises(DataError, match=r"(?s)The query is .*: give a string"):
        index.answer(query, threshold=0.5)


@pytest.mark.parametrize(("change", "name"), [(FaqIndex.add, "f"), (FaqIndex.update, "d")])
@pytest.mark.parametrize("late", [True, False])
def test_ctrl_c_in_a_change_leaves_the_index_as_it_was(
    index, model, tmp_path, monkeypatch, change, name, late
):
    """faiss obeys it after it has numbered vectors; or while it adds to a copy of a mapped file."""
    index.save(tmp_path)
    index, add = FaqIndex.load(tmp_path, model), FaissVectors.add
    queries, rows = sentences(5), [{"question": "the dog ran", "answer": "Yes.", "id": name}]
    before = index.search(queries)

    def stopped(store, *vectors):
        if late:
            add(store, *vectors)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if late:
            patch.setattr(FaissVectors, "add", stopped)
        else:
            copy = SimpleNamespace(add=stopped)
            patch.setattr("simbert_hf.index.stores.faiss.deserialize_index", lambda _: copy)
        with pytest.raises(KeyboardInterrupt):
            change(index, rows)
    assert index.search(queries) == before
    change(index, rows)
    assert index.search("the dog ran", 1)[0].id == name
    index.save(tmp_path)
    again = FaqIndex.load(tmp_path, model)
    assert again.search(queries) == index.search(queries)
    assert again.faqs() == index.faqs()


def test_ctrl_c_in_a_removal_leaves_the_index_as_it_was(index, monkeypatch):
    """Of many rows, faiss's selector takes long to build."""

    def stopped(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("simbert_hf.index.stores.faiss.IDSelectorBatch", stopped)
        with pytest.raises(KeyboardInterrupt):
            index.remove("d")
    index.remove("e")
    assert index.search("where is the cat", 1)[0].id == "d"


@pytest.mark.slow
def test_ctrl_c_leaves_the_parts_of_an_ivf_pq_equally_long(monkeypatch):
    rng, store, calls = np.random.default_rng(0), FaissVectors("ivf_pq"), []
    store.add(unit(rng, 10_000, 8))
    add = store._index.add

    def stopped(vectors):
        if calls:
            raise KeyboardInterrupt
        calls.append(add(vectors))

    monkeypatch.setattr("simbert_hf.index.stores.IVF_BLOCK", 100)
    store._index.add = stopped
    with pytest.raises(KeyboardInterrupt):
        store.add(unit(rng, 150, 8))
    assert (len(store), misfit(store._index, "ivf_pq")) == (10_100, "")


def test_what_a_killed_save_left_is_swept_and_nothing_else(index, model, tmp_path):
    (tmp_path / "faqindex-be0912ab").mkdir()
    (tmp_path / "faqindex-be0912ab" / "rows.parquet").write_text("half")
    (tmp_path / "faqindex-be0912ab.json").write_text("{")
    index.save(tmp_path)
    assert not list(tmp_path.glob("faqindex-be0912ab*"))
    assert len(FaqIndex.load(tmp_path, model)) == 5
    (tmp_path / "faqindex-be0912ab-mine").mkdir()
    for name in ("faqindex-ab12cd34", "faqindex-zh"):  # the first is named as our folders are
        index.save(tmp_path / name)
        index.save(tmp_path)
        assert len(FaqIndex.load(tmp_path / name, model)) == 5
    assert (tmp_path / "faqindex-be0912ab-mine").is_dir()


def test_an_index_names_its_model_for_everyone(model, tmp_path, monkeypatch):
    model.save_pretrained(tmp_path / "m")
    monkeypatch.chdir(tmp_path)
    FaqIndex.build("m", ROWS).save("faq")
    monkeypatch.chdir("/")
    assert len(FaqIndex.load(tmp_path / "faq")) == 5
    assert saved_name(DEFAULT_MODEL) == "simbert-minilm-en"
    assert load_sentence_transformer("simbert-minilm-en").get_embedding_dimension() == 384
    assert saved_name("org/name") == "org/name"


@pytest.mark.parametrize("types", [("bfloat16", "float32"), ("float32", "float16")])
def test_an_index_serves_its_model_in_another_precision(tmp_path, types):
    built, served = (tiny_simbert().to(getattr(torch, name)) for name in types)
    for model in (built, served):
        np.testing.assert_allclose(np.linalg.norm(model.encode(WORDS), axis=1), 1, atol=1e-5)
    FaqIndex.build(built, ROWS).save(tmp_path)
    assert len(FaqIndex.load(tmp_path, served)) == 5
    manifest = json.loads((tmp_path / "index.json").read_text())
    assert manifest["model"]["dtype"] == types[0]
    other = tiny_simbert(num_hidden_layers=1).to(served.dtype)
    with pytest.raises(DataError, match=r"another model.*its vectors differ"):
        FaqIndex.load(tmp_path, other)


def test_a_gru_is_a_model_by_itself_and_by_its_name(tmp_path):
    gru = CharGru.for_texts([row["question"] for row in ROWS], min_count=1, hidden_size=16)
    gru.save_pretrained(tmp_path / "gru")
    gru = CharGru.from_pretrained(tmp_path / "gru")
    FaqIndex.build(gru, ROWS).save(tmp_path / "index")
    index = FaqIndex.load(tmp_path / "index")
    assert index.search("what time is it")[0].score == pytest.approx(1, abs=1e-5)
    assert index.encoder.fingerprint == TextEncoder(gru).fingerprint
    files = tmp_path / "dev.tsv"
    files.write_text("a cat\tthe cat\t1\na cat\twhat time\t0\n")
    args = EvaluationArguments(models=[str(tmp_path / "gru")], pairs=[str(files)], bootstrap=0)
    (found,) = evaluate(args, load_tasks(args)).models["gru"].values()
    assert found.figures["auc"].value == 1
    encode_file(["what time is it"], str(tmp_path / "gru"), tmp_path / "vectors.npy")
    wanted = gru.encode(["what time is it"])
    np.testing.assert_allclose(np.load(tmp_path / "vectors.npy"), wanted, atol=1e-6)


@pytest.mark.slow
def test_every_loader_of_one_checkpoint_fits_its_index(index, model, tmp_path):
    model.save_pretrained(tmp_path / "model")
    index.save(tmp_path / "index")
    loaded = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    assert TextEncoder(loaded).fingerprint == index.encoder.fingerprint
    for one in (loaded, str(tmp_path / "model")):
        found = FaqIndex.load(tmp_path / "index", one).search("what time is it")
        assert found[0].score == pytest.approx(1, abs=1e-5)


# Calibration ------------------------------------------------------------------------------------


def brute_threshold(scores, kinds, target, wanted, values=None):
    """Lowest cut between scores that reaches the target, by trying all of them."""
    values = np.unique(scores if values is None else values)
    for cut in [values[0], *((values[1:] + values[:-1]) / 2), values[-1] + 1e-6]:
        said = scores >= cut
        right, out = (said & (kinds == 0)).sum(), (said & (kinds == 2)).sum()
        if target == "precision" and said.any() and right / said.sum() >= wanted:
            return cut
        if target == "false_accept_rate" and out / (kinds == 2).sum() <= wanted:
            return cut
    return None


@pytest.mark.parametrize("target", ["precision", "false_accept_rate"])
@pytest.mark.parametrize("seed", range(5))
def test_threshold_equals_trying_all(target, seed):
    rng = np.random.default_rng(seed)
    kinds = rng.choice(3, 80, p=[0.6, 0.1, 0.3])
    scores = np.round(rng.normal(np.array([0.8, 0.6, 0.5])[kinds], 0.1), 2)  # with ties
    wanted = 0.9 if target == "precision" else 0.1
    found = calibrate_scores(scores, kinds, target, wanted, Bootstrap(200))
    assert found.threshold == pytest.approx(brute_threshold(scores, kinds, target, wanted))
    rates = found.rates
    said = scores >= found.threshold
    assert rates.answered.value == said[kinds < 2].mean()
    assert rates.correct.value == (said & (kinds == 0)).sum() / (kinds < 2).sum()
    assert rates.precision.value == (kinds[said] == 0).mean()
    assert found.interval[0] <= found.threshold <= found.interval[1]
    pairs = scores[kinds < 2][:, None] - scores[kinds == 2]
    assert found.auroc == pytest.approx((pairs > 0).mean() + (pairs == 0).mean() / 2)
    again = Calibration.from_json(json.loads(json.dumps(found.to_json())))
    assert again.rates == rates


def test_the_false_accept_interval_covers_the_truth():
    """At a threshold chosen on the sample itself, in at least 95 % of samples."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(100):
        scores = rng.random(60)
        found = calibrate_scores(scores, np.full(60, 2), "false_accept_rate", 0.1, Bootstrap(0))
        rate = found.rates.false_accepts
        covered += rate.low <= 1 - found.threshold <= rate.high  # the true rate of a uniform score
    assert covered / 100 >= 0.94


@pytest.mark.parametrize("low", [0.5, -0.5, 2e11])
def test_neighbouring_numbers_are_told_apart(low):
    """Nothing lies midway between them, and 1e-6 is nothing beside the largest."""
    scores = [low - 1, low, np.nextafter(low, np.inf)]
    for kinds, target, wanted in (([0, 2, 0], TARGETS[0], 0), ([1, 1, 0], "precision", 1)):
        assert calibrate_scores(scores, kinds, target, wanted).threshold == scores[2]
    assert calibrate_scores(scores, [2, 2, 2], TARGETS[0], 0).rates.false_accepts.value == 0


@pytest.mark.parametrize("scores", [[0.9, np.nan], [np.inf, 0.1], [0.9]])
def test_scores_that_are_no_numbers_calibrate_nothing(scores):
    with pytest.raises(ValueError, match="a finite score and a kind for each query"):
        calibrate_scores(scores, [0, 2], "false_accept_rate", 0.5)


def test_answers_only_above_the_threshold(index):
    queries = [
        {"query": "how do i reset the password", "answer": "Press it."},
        {"query": "what time is it today", "id": "c"},
        {"query": "where is the dog", "group": "cats"},
        {"query": "learn english fast", "answer": None},
        {"query": "the weather", "answer": ""},
    ]
    with pytest.raises(ValueError, match="There is no threshold"):
        index.answer("what time is it")
    found = index.calibrate(queries, false_accept_rate=0.4)
    assert found.rates.false_accepts.value == 0
    assert (found.kinds == 2).sum() == 2
    reply = index.answer("what time is it")
    assert reply.answer == "Late."
    assert "reaches the threshold" in reply.reason
    (reply,) = index.answer(query for query in ["learn english fast"])
    assert reply.answer is None
    assert reply.reason.startswith("The best score, 0.")
    assert len(reply.hits) == 3
    index.remove(list("abcde"))
    assert index.answer("what time is it").reason == "The index is empty."


def test_an_emptied_index_is_loaded(index, model, tmp_path):
    index.remove(list("abcde"))
    index.save(tmp_path)
    loaded = FaqIndex.load(tmp_path, model)
    assert (len(loaded), loaded.search("what time is it")) == (0, [])


@pytest.mark.parametrize("target", [{"false_accept_rate": 0.0}, {"precision": 1.0}])
def test_a_threshold_may_have_to_be_perfect(index, target):
    queries = [{"query": "how can i reset my password", "id": "a"}, {"query": "dog ran", "id": ""}]
    found = index.calibrate(queries, **target)
    right, wrong = index.answer([row["query"] for row in queries], threshold=found.threshold)
    assert (right.answer, wrong.answer) == ("Press it.", None)


@pytest.mark.parametrize(
    ("queries", "target", "sentence"),
    [
        ([{"query": "a", "id": "zz"}], {"precision": 0.9}, "1: leads to the id 'zz', which is not"),
        ([{"query": "a"}], {"precision": 0.9}, "the query has no label, only the columns"),
        ([{"text": "a", "id": "a"}], {"precision": 0.9}, "has no column 'query', only"),
        ([], {"precision": 0.9}, "holds no queries"),
        ([{"query": "a", "id": "a"}], {"false_accept_rate": 0.1}, "needs out-of-scope queries"),
        ([{"query": "a", "id": ""}], {"precision": 0.9}, "needs in-scope queries"),
        ([{"query": "a", "id": "a"}], {"precision": 1.5}, "precision=1.5 is invalid"),
        (
            [{"query": "a", "id": ""}],
            {"false_accept_rate": "0.1"},
            "='0.1' is invalid.* as a number",
        ),
        ([{"query": "a", "id": "a"}], {}, "Give exactly one of false_accept_rate and precision"),
        ([{"query": "what time it is", "id": "d"}], {"precision": 0.9}, "No threshold reaches"),
        ([{"query": "What time  is it", "id": "c"}], {"precision": 0.9}, "all 1 are questions of"),
    ],
)
def test_bad_calibrations(index, queries, target, sentence, monkeypatch):
    encoded, embed = [], index._embed
    monkeypatch.setattr(index, "_embed", lambda texts: encoded.append(texts) or embed(texts))
    with pytest.raises(ValueError, match=sentence):
        index.calibrate(queries, **target)
    assert bool(encoded) == (sentence == "No threshold reaches")  # which nothing else tells
    assert index.calibration is None


def test_queries_that_stand_there_twice_or_contradict_are_told_of(tmp_path, caplog):
    path = tmp_path / "dev.csv"
    path.write_text("query,answer\nsing,\nSing ,\ntime?,Late.\npassword?,Press it.\nTime?,\n")
    assert len(read_queries(path)) == 5
    assert caplog.messages == [
        f"{path}: queries that repeat another: 2 of 5. Each counts, as if it were a new one: drop "
        "them, unless users ask the same so often",
        f"{path}: queries that have a label in one row and none in another: 1, such as 'time?'",
    ]
    caplog.clear()
    path.write_text("query,answer\nsing,\ntime?,Late.\n")
    read_queries(path)
    assert not caplog.messages


def test_queries_that_are_questions_are_left_out(index, model, caplog):
    others = [{"query": "what time it is", "id": "c"}, {"query": "the weather", "id": ""}]
    own = [{"query": row["question"].upper(), "id": row["id"]} for row in ROWS]
    with_own = index.calibrate(own + others, false_accept_rate=0.5)
    assert "left out 5 of 7 queries" in caplog.text
    without = index.calibrate(others, false_accept_rate=0.5)
    assert with_own.scores.tolist() == without.scores.tolist()
    titled = FaqIndex.build(model, [row | {"question": row["question"].title()} for row in ROWS])
    assert len(titled.calibrate(own + others, false_accept_rate=0.5).scores) == len(others)
    with pytest.raises(DataError, match="the query rows:7: leads to the id 'zz'"):
        index.calibrate([*own, others[1], others[0] | {"id": "zz"}], precision=0.5)


def test_resamples_without_threshold_count(caplog):
    """The precision rests on a few queries, of which many a resample draws none."""
    rng = np.random.default_rng(0)
    scores = np.concatenate([[0.95, 0.96], rng.uniform(0.2, 0.9, 98)])
    kinds = np.concatenate([[0, 0], rng.choice(2, 98, p=[0.3, 0.7])])
    found = calibrate_scores(scores, kinds, "precision", 0.9, Bootstrap(200))
    (counts,) = Bootstrap(200).counts("precision", 100)
    drawn = [np.repeat(np.arange(100), row) for row in counts]
    cuts = [brute_threshold(scores[d], kinds[d], "precision", 0.9, scores) for d in drawn]
    assert 0.03 < cuts.count(None) / 200 < 0.97
    low = np.quantile([np.inf if cut is None else cut for cut in cuts], 0.025)
    assert found.interval == (pytest.approx(low), np.inf)
    assert (
        "rests on only 3 of the 100 queries, which put the precision between 0.29 and"
        in caplog.text
    )
    assert "no threshold reaches the precision on many resamples of the 100 queries" in caplog.text
    plain = json.dumps(found.to_json(), allow_nan=False)
    assert Calibration.from_json(json.loads(plain)).interval == found.interval
    caplog.clear()
    sure = calibrate_scores(np.arange(100.0), np.repeat([1, 0], 50), "precision", 0.9)
    assert np.isfinite(sure.interval).all()
    few_out = calibrate_scores(np.arange(100.0), np.repeat([2, 0], [20, 80]), TARGETS[0], 0.1)
    assert np.isfinite(few_out.interval).all()
    assert not caplog.text
    one_out = calibrate_scores(np.arange(9.0), [2, *[0] * 8], TARGETS[0], 0.1, Bootstrap(100))
    assert one_out.interval == (0.5, 0.5)  # of the resamples that draw it


# Rows -------------------------------------------------------------------------------------------


def test_every_source_gives_the_same_rows(tmp_path):
    rows = [{"question": "a, b?", "answer": "Yes 😀", "id": "1", "page": "3"}]
    (tmp_path / "faq.csv").write_text(
        'question,answer,id,page\n"a, b?",Yes 😀,1,3\n\n', encoding="utf-8"
    )
    (tmp_path / "faq.tsv").write_text(
        "text\treply\tid\tpage\na, b?\tYes 😀\t1\t3\n", encoding="utf-8"
    )
    (tmp_path / "faq.jsonl").write_text(json.dumps(rows[0] | {"id": 1}) + "\n")
    wanted = [Faq("a, b?", "Yes 😀", None, "1", {"page": "3"})]
    assert read_faqs(rows) == read_faqs(wanted) == wanted
    assert read_faqs(datasets.Dataset.from_list(rows)) == wanted
    assert read_faqs(tmp_path / "faq.csv") == read_faqs(tmp_path / "faq.jsonl") == wanted
    names = {"question": "text", "answer": "reply"}
    assert read_faqs(str(tmp_path / "faq.tsv"), names) == wanted
    (query,) = read_queries([{"query": " hi ", "intent": "x"}], {"group": "intent"}).values()
    assert (query.text, query.group, query.in_scope) == ("hi", "x", True)
    pair = [
        {"paraphrase": "b?", "question": "a?", "answer": "Yes", "group": float("nan"), "id": pd.NA}
    ]
    assert read_faqs(pair, {"question": "paraphrase"}) == [Faq("b?", "Yes", None, None)]


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([], "holds no questions"),
        ([{"question": "a", "answer": ""}], "1: the question 'a' has no answer"),
        ([{"question": "a", "answer": None}], "1: the question 'a' has no answer"),
        ([{"question": "a", "answer": float("nan")}], "1: the question 'a' has no answer"),
        ([{"question": float("nan"), "answer": "b"}], "1: the text is empty"),
        ([{"question": " ", "answer": "b"}], "1: the text is empty"),
        (
            [{"question": "a" * 10**7, "answer": "b"}],
            "has 10,000,000 characters, more than 10,000. Correct it",
        ),
        ([{"question": "a\x00b", "answer": "b"}], r"the control character '\\x00'. Correct it"),
        ([{"question": "a\ud800", "answer": "b"}], "holds half a character"),
        ([{"question": "a", "answer": "b", "id": "\ud800"}], r"the id '.ud800' holds half a char"),
        ([{"question": "a", "answer": "b", "group": "\ud800"}], "the group .* holds half a char"),
        ([{"question": "a", "answer": "b", "k\ud800": 1}], "the column 'k.ud800' holds 1, which"),
        ([{"question": 7, "answer": "b"}], "7 is int, not a sentence"),
        (
            [{"question": "a", "answer": "b"}, {"answer": "c"}],
            r"rows:2: the row has no 'question', only \['answer'\]. Add it",
        ),
        ([{"question": "a"}], r"has no column 'answer', only \['question'\]"),
        ([{"query": "a", "answer": "b"}], r"has no column 'question', only \['query', 'answer'\]"),
        (
            [
                {"question": "a", "answer": "b", "id": 1},
                {"question": "c", "answer": "d", "id": "1"},
            ],
            "2: the id '1' is already used in row 1",
        ),
        (
            [{"question": "a", "answer": "b", "metadata": "x"}],
            "metadata is 'x'. Write a JSON object",
        ),
        (
            [{"question": "a", "answer": "b", "x": [float("inf")]}],
            r"rows:1: the column 'x' holds \[inf\], which is not JSON. Convert it to text",
        ),
        ([{"question": "a", "answer": "b", "x": "c\ud800"}], r"'x' holds 'c\\ud800', which is not"),
        ([{"question": "a", "answer": "b", "x": object()}], "'x' holds <object object at"),
        ([{"question": "a", "answer": "b", "id": "a"}], "already has a row 'a'"),
    ],
)
def test_bad_rows_are_named_and_change_nothing(index, rows, sentence):
    before = index.faqs(), len(index.store)
    with pytest.raises(DataError, match=sentence):
        index.add(rows)
    assert (index.faqs(), len(index.store)) == before


def test_headers_may_be_chinese(tmp_path):
    path = tmp_path / "faq.csv"
    path.write_text("问题,答案,来源\n怎么退款,在订单页,网站\n", encoding="utf-8-sig")
    [faq] = read_faqs(path)
    assert (faq.question, faq.answer, faq.metadata) == ("怎么退款", "在订单页", {"来源": "网站"})
    assert read_faqs(path, {"answer": "来源"})[0].answer == "网站"
    path.write_text("问句,答案\n想退钱,在订单页\n你好,\n", encoding="utf-8-sig")
    assert [(one.text, one.answer) for one in read_queries(path).values()] == [
        ("想退钱", "在订单页"),
        ("你好", None),
    ]


def test_bad_files_are_named(tmp_path):
    path = tmp_path / "faq.csv"
    path.write_text("frage,answer\na,b\n")
    with pytest.raises(DataError, match=r"faq.csv:1: has no column 'question', only"):
        read_faqs(path)
    with pytest.raises(DataError, match="has no column 'text'"):
        read_faqs(path, {"question": "text"})
    path.write_text("question,answer\n")
    with pytest.raises(DataError, match=r"faq.csv: holds no questions"):
        read_faqs(path)
    path.write_text("question,answer,answer\na,good,bad\n")
    with pytest.raises(DataError, match=r"faq.csv: the header names two columns 'answer'. Rena"):
        read_faqs(path)
    path.rename(tmp_path / "faq.pdf")
    with pytest.raises(DataError, match=r"the extension '.pdf' is unknown"):
        read_faqs(tmp_path / "faq.pdf")


def test_every_query_needs_a_label(tmp_path):
    rows = [{"query": "a", "answer": "x"}, {"query": "b", "answer": None}]
    path = tmp_path / "dev.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [query.in_scope for query in read_queries(path).values()] == [True, False]
    with path.open("a") as file:
        file.write('{"query": "c", "anwser": "x"}\n')
    remedy = r"dev.jsonl:3: the query has no label, only the columns \['query', 'anwser'\]. Add id"
    with pytest.raises(DataError, match=remedy):
        read_queries(path)


def test_bad_queries_and_changes(index, model):
    for query, sentence in [("", "is empty"), ("a\x07", "control"), ("a" * 10**7, "10,000,000")]:
        with pytest.raises(DataError, match=sentence):
            index.search(query)
    assert index.search("😀 what time is it", k=1)  # an unknown token, no error
    with pytest.raises(ValueError, match="k=0 is out of range"):
        index.search("what", k=0)
    with pytest.raises(ValueError, match="votes=0 is out of range"):
        FaqIndex.build(model, ROWS, votes=0)
    for change in (lambda: index.remove(["a", "z"]), lambda: index.update([ROWS[0] | {"id": "z"}])):
        with pytest.raises(DataError, match="has no row 'z'"):
            change()
    for row in (ROWS[0], Faq("a", "b")):
        with pytest.raises(TypeError, match=r"a single row, .*Pass a list of rows, \[row\]"):
            index.add(row)
    for read, key in ((read_faqs, "question"), (read_queries, "query")):
        with pytest.raises(
            TypeError, match=rf"A row is 'how to pay'; .* such as {{'{key}': \.\.\.}}"
        ):
            list(read(["how to pay"]))
    with pytest.raises(TypeError, match="The rows are None: pass a list of rows, or a file"):
        index.add(None)
    with pytest.raises(DataError, match="A row to update has no id"):
        index.update([Faq("a", "b")])
    assert len(index) == 5
    with pytest.raises(ValueError, match="kind='tree': choose one of auto"):
        FaqIndex.build(model, ROWS, store="tree")
    with pytest.raises(ValueError, match="at least 10,000 vectors, but there are 5: use flat"):
        FaqIndex.build("no-such/model", ROWS, store="ivf_pq")  # known before a model is loaded
    with pytest.raises(TypeError, match="The model is 7"):
        FaqIndex.build(7, ROWS)
    with pytest.raises(OSError, match="not a directory, and the Hub does not provide it"):
        FaqIndex.build("/no/such/model", ROWS)


def test_a_diverged_model_is_refused():
    broken = tiny_simbert()
    broken.bert.embeddings.LayerNorm.weight.data.fill_(float("nan"))
    with pytest.raises(DataError, match="is not of length 1"):
        FaqIndex.build(broken, ROWS)


@pytest.mark.parametrize("shape", [(1, 13), (13,), (5, 1, 13)])
def test_a_model_that_returns_other_than_a_vector_for_each_text_is_refused(shape):
    class Wrong(torch.nn.Module):
        def encode(self, texts, **options):
            return np.full(shape, 13**-0.5)

    with pytest.raises(DataError, match="It must return a vector for each, in their order"):
        FaqIndex.build(Wrong(), ROWS)


def test_new_ids_are_free(model):
    index = FaqIndex.build(
        model, [{"question": "a", "answer": "b"}, {"question": "c", "answer": "d", "id": "2"}]
    )
    index.add([{"question": "the", "answer": "b"}, {"question": "cat", "answer": "d", "id": "3"}])
    assert [row.id for row in index.faqs()] == ["0", "2", "4", "3"]


def test_questions_that_are_there_already_are_told(model, caplog):
    index = FaqIndex.build(
        model, [{"question": "a cat", "answer": "b"}, {"question": "c", "answer": "d"}]
    )
    index.add([{"question": "the cat", "answer": "b"}])
    assert not caplog.messages
    index.add([{"question": "a cat", "answer": "new"}, {"question": "go", "answer": "b"}])
    [message] = caplog.messages
    assert "already holds 1 of these questions, 0 with the same answer, such as 'a cat'" in message
    caplog.clear()
    index.add([{"question": "a cat", "answer": "b"}, {"question": "c", "answer": "e"}])
    assert "already holds 2 of these questions, 1 with the same answer" in caplog.text
    index.remove(["5", "6"])
    index.remove(["0", "3"])
    caplog.clear()
    index.add([{"question": "a cat", "answer": "b"}])
    assert not caplog.messages


def test_an_index_leaves_its_model_in_training(model):
    model.train()
    index = FaqIndex.build(model, ROWS[:2])
    assert index.search("a cat")
    assert model.training
    model.eval()


def test_augment_adds_other_questions_only(model):
    faqs = read_faqs(ROWS[:4])
    more = augment(ROWS[:4], model, k=3, n=10, min_similarity=-1.0, max_new_tokens=8)
    assert more[:4] == faqs
    made = more[4:]
    assert made
    assert all(row.metadata["paraphrase_of"] in {faq.question for faq in faqs} for row in made)
    assert len({row.question for row in more}) == len(more)
    by_question = {faq.question: faq for faq in faqs}
    for row in made:
        origin = by_question[row.metadata["paraphrase_of"]]
        assert (row.answer, row.group, row.id) == (origin.answer, origin.group, None)
    assert augment(faqs, model, k=3, n=10, min_similarity=1.0) == faqs
    assert augment(faqs[:1], model, k=21, min_similarity=1.0) == faqs[:1]  # writes more than k


def test_numbers_of_numpy_are_saved_and_answers_of_windows_found(model, tmp_path):
    rows = [{"question": "what time is it", "answer": "Late.\r\nGo home."}, *ROWS[:2]]
    index = FaqIndex.build(model, rows, votes=np.int64(2))
    queries = [
        {"query": "what time it is", "answer": "Late.\r\nGo home."},
        {"query": "learn english fast", "answer": None},
    ]
    index.calibrate(queries, false_accept_rate=np.float32(0.5))
    index.save(tmp_path / "index")
    again = FaqIndex.load(tmp_path / "index", model)
    assert (again.votes, again.calibration.wanted) == (2, 0.5)


def test_a_full_disk_is_an_oserror(tmp_path):
    store = FaissVectors("flat")
    store.add(unit(np.random.default_rng(0), 3, 4))
    (tmp_path / "vectors.faiss").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        store.save(tmp_path)


def test_paraphrases_go_with_their_row(model, monkeypatch):
    written = {"what time is it": ["what time it is"], "who is the dog": ["who the dog is"]}
    module = sys.modules["simbert_hf.index.augment"]  # the name is also a function's
    monkeypatch.setattr(
        module, "gen_synonyms", lambda texts, *_, **__: [written.get(text, []) for text in texts]
    )
    rows = [
        {"id": "a", "question": "what time is it", "answer": "Late.", "page": 3},
        {"id": "b", "question": "what is the time", "answer": "Noon."},
        {"id": "c", "question": "who is the dog", "answer": "Me."},
        {"id": "d", "question": "where is the cat", "answer": "Here.", "paraphrase_of": None},
    ]
    index = FaqIndex.build(model, augment(read_faqs(rows), model))
    assert len(index) == 6
    assert index.search("what time it is")[0].metadata == {
        "page": 3, "paraphrase_of": "what time is it"
    }  # fmt: skip
    index.update([{"id": "a", "question": "what time is it", "answer": "Early."}])
    index.remove("c")
    left = {(faq.question, faq.answer) for faq in index.faqs()}
    assert left == {
        ("what time is it", "Early."),
        ("what is the time", "Noon."),
        ("where is the cat", "Here."),
    }
    index.remove("d")


def test_nothing_is_written_for_questions_that_a_model_cannot_read(model, monkeypatch):
    monkeypatch.delattr(sys.modules["simbert_hf.index.augment"], "gen_synonyms")
    faqs = read_faqs([{"question": "营业时间", "answer": "九点"}])
    with pytest.raises(DataError, match="tokens are unknown to the model in 1 of 1 questions"):
        augment(faqs, model)


def test_columns_of_frames_are_metadata(model, tmp_path):
    day = datetime.date(2024, 1, 2)
    frame = pd.DataFrame(
        {"question": ["what", "where"], "answer": ["a", "b"], "page": [3, None], "day": [day] * 2,
         "at": pd.to_datetime(["2024-01-02", None]), "price": [Decimal("1.50"), None]}
    )  # fmt: skip
    plain = [
        {"page": 3.0, "day": "2024-01-02", "at": "2024-01-02T00:00:00", "price": "1.50"},
        {"page": None, "day": "2024-01-02", "at": None, "price": None},
    ]
    frame.to_parquet(tmp_path / "faq.parquet")
    for source in (frame.to_dict("records"), tmp_path / "faq.parquet"):
        index = FaqIndex.build(model, source)
        assert [faq.metadata for faq in index.faqs()] == plain
    row = {"question": "who", "answer": "c", "n": np.int64(7), "v": [np.ones(2), {"w": np.nan}]}
    assert read_faqs([row])[0].metadata == {"n": 7, "v": [[1.0, 1.0], {"w": None}]}


def test_ids_that_blanks_have_made_decimal(model, tmp_path):
    index = FaqIndex.build(model, [{**row, "id": i} for i, row in enumerate(ROWS, start=1)])
    queries = pd.DataFrame({"query": ["what time", "go fast", "sing"], "id": [3, 2, np.nan]})
    queries.to_csv(tmp_path / "dev.csv", index=False)
    assert "3.0" in (tmp_path / "dev.csv").read_text()
    for source in (queries.to_dict("records"), tmp_path / "dev.csv"):
        assert index.calibrate(source, false_accept_rate=0.5).rates.false_accepts.count == 1
    with pytest.raises(DataError, match=r"leads to the id '9\.0', which is not in the index"):
        index.calibrate([{"query": "what time", "id": "9.0"}], false_accept_rate=0.5)


def test_what_a_table_knows_of_its_rows_goes_with_changes(index):
    index.remove("b")
    index.add([{"question": "learn english", "answer": "Late.", "group": "cats"}])
    index.update([{"question": "where is the dog", "answer": "Out.", "id": "d"}])
    table = index._table
    anew = FaqTable(table.data)
    assert table.number_of == anew.number_of
    assert set(table.number_of) == {"a", "c", "5", "d", "e"}
    for key, value in (("answer", "Press it."), ("group", "cats"), ("answer", "On the mat.")):
        numbers = [table.number_of[faq.id] for faq in index.faqs() if getattr(faq, key) == value]
        assert table.codes_of(key, value) == set(table.groups[0][numbers].tolist())


def test_many_small_additions_leave_a_table_in_few_pieces():
    table = FaqTable()
    for i in range(200):
        table = table.with_rows([Faq(f"what {i}", "a")])
    assert table.data["id"].num_chunks <= CHUNKS
    assert [faq.question for faq in table.faqs(range(200))] == [f"what {i}" for i in range(200)]


def test_labels_of_a_query_that_disagree_are_named(index):
    query = {"query": "what time", "answer": "Late.", "id": "c"}
    index.calibrate([query, {"query": "fast", "id": ""}], precision=0.5)
    with pytest.raises(DataError, match=r"the query rows:1: its id and answer lead to different"):
        index.calibrate([query | {"id": "a"}], precision=0.5)


def test_a_model_in_16_bits_knows_its_index(model, tmp_path):
    model.save_pretrained(tmp_path / "m")
    half = SentenceTransformer(
        str(tmp_path / "m"), model_kwargs={"dtype": torch.bfloat16}, device="cpu"
    )
    made = FaqIndex.build(half, ROWS)
    assert abs(np.linalg.norm(made.store.vectors(np.arange(5)), axis=1) - 1).max() < 1e-6
    made.save(tmp_path / "faq")
    assert len(FaqIndex.load(tmp_path / "faq", half)) == 5


def test_a_paraphrase_of_two_answers_is_left_out(monkeypatch):
    written = {"it is a": ["both", "same", "one"], "it is b": ["Both", "two"], "it is c": ["same"]}
    module = sys.modules["simbert_hf.index.augment"]  # the name is also a function's
    monkeypatch.setattr(module, "gen_synonyms", lambda texts, *_, **__: map(written.get, texts))
    monkeypatch.setattr(module, "check_read", lambda *_: None)
    rows = [*zip(written, "121", strict=True), ("the hours", "3")]  # too short to be paraphrased
    faqs = read_faqs([{"question": question, "answer": answer} for question, answer in rows])
    made = augment(faqs, tiny_simbert())[4:]
    assert [(faq.question, faq.answer) for faq in made] == [
        ("same", "1"),
        ("one", "1"),
        ("two", "2"),
    ]


def test_columns_of_tables(tmp_path):
    path = tmp_path / "faq.csv"
    path.write_text('\nquestion,answer,metadata\nHow?,Yes,"{""page"": 3}"\n')
    assert read_faqs(path)[0].metadata == {"page": 3}
    path.write_text("question,answer,metadata\nHow?,Yes,page 3\n")
    with pytest.raises(DataError, match="metadata is 'page 3'"):
        read_faqs(path)
    rows = [{"text": "hi there", "answer": "another's"}]
    assert read_faqs(rows, {"question": "text", "answer": "text"}) == [Faq("hi there", "hi there")]
    with pytest.raises(DataError, match=r"has the unknown name 'text'.* question, id, group"):
        read_faqs(rows, {"text": "question"})
    with pytest.raises(DataError, match=r"has the unknown name 'metadata'.* query, id"):
        read_queries(rows, {"query": "text", "metadata": "answer"})


def test_rows_are_removed_by_their_ids_as_text(index):
    index.add([{"question": "learn english", "answer": "Fast.", "id": 7}])
    index.remove(np.int64(7))
    for again in ([7], 7, "7", np.int64(7), 7.0, [7.0]):
        with pytest.raises(DataError, match="The index has no row '7'"):
            index.remove(again)


@pytest.mark.parametrize("query", ["\u200b", "\ufeff \u00ad", "\u202e\u200d"])
def test_a_query_of_invisible_characters_is_empty(index, query):
    assert index.answer(query, threshold=-1).reason == "The query is empty."


def test_a_folder_may_have_any_name(index, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    index.save("~/faq")  # no shell has read it
    assert len(FaqIndex.load("~/faq", index.encoder.model)) == len(index)
    assert (tmp_path / "~" / "faq").is_dir()


def test_the_best_precision_is_one_that_a_threshold_has():
    """Of equal scores, all or none are answered."""
    scores, kinds = np.array([0.9, 0.9, 0.5]), [0, 1, 1]
    with pytest.raises(ValueError, match=r"reaches a precision of 0.8 .* the best is 0.500"):
        calibrate_scores(scores, kinds, "precision", 0.8)


def test_a_reply_shows_that_a_score_is_below_the_threshold(index):
    score = index.search("what time it is")[0].score
    reason = index.answer("what time it is", threshold=score + 4e-4).reason
    shown = re.findall(r"0\.\d+", reason)
    assert float(shown[0]) < float(shown[1])


def test_looking_for_warnings_leaves_the_model_s_tokenizer_alone(tmp_path):
    """Another thread may have told it to cut."""
    tiny_simbert().save_pretrained(tmp_path)
    model = SentenceTransformer(str(tmp_path), device="cpu")
    encoder = TextEncoder(model)
    engine = model.tokenizer.backend_tokenizer
    engine.enable_truncation(9)
    with pytest.warns(UserWarning, match="were cut"):
        encoder._warn([" ".join(WORDS * 30)])
    assert engine.truncation["max_length"] == 9
