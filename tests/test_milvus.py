"""The same index over Milvus Lite, the engine in this process."""

from __future__ import annotations

import numpy as np
import pytest

from simbert_hf.index import FaqIndex
from simbert_hf.utils.textfiles import DataError
from tests.test_retrieval import ROWS, sentences
from tests.tiny import tiny_simbert

milvus = pytest.importorskip("simbert_hf.index.milvus")


@pytest.mark.slow
def test_milvus_and_faiss_agree_through_changes_and_a_restart(tmp_path, monkeypatch):
    monkeypatch.setattr(milvus, "BATCH", 4)  # inserts and searches by several requests
    model = tiny_simbert()
    uri = str(tmp_path / "faq.db")
    store = milvus.MilvusVectors(uri, "faq")
    pair = FaqIndex.build(model, ROWS, store=store), FaqIndex.build(model, ROWS)
    for index in pair:
        index.add([{"question": text, "answer": text} for text in sentences(20)])
        index.remove(["a", "7"])
        index.update([{"question": "the cat ran", "answer": "No.", "id": "d"}])
    ours, flat = pair
    queries = sentences(6, seed=1)
    asked, search = [], store.client.search

    def spied(*args, data, **options):
        asked.append(len(data))
        return search(*args, data=data, **options)

    monkeypatch.setattr(store.client, "search", spied)

    def agree(index):
        for one, other in zip(index.search(queries), flat.search(queries), strict=True):
            assert [hit.id for hit in one] == [hit.id for hit in other]
            assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-5)

    agree(ours)
    assert asked == [4, 2]
    ours.save(tmp_path / "index")
    store.close()
    again = FaqIndex.load(tmp_path / "index", model)
    agree(again)
    again.store.close()


@pytest.mark.slow
def test_a_kill_or_a_second_writer_costs_no_saved_row(tmp_path, monkeypatch):
    model, place = tiny_simbert(), tmp_path / "index"
    writer = FaqIndex.build(model, ROWS, store=milvus.MilvusVectors(str(tmp_path / "faq.db"), "a"))
    flat = FaqIndex.build(model, ROWS)
    queries = [faq.question for faq in flat.faqs()]

    def agree(index):
        for one, other in zip(index.search(queries), flat.search(queries), strict=True):
            assert [hit.id for hit in one] == [hit.id for hit in other]

    def change(index, word):
        index.update([{"question": f"the {word} sat", "answer": "No.", "id": "d"}])
        index.add([{"question": f"a {word} ran", "answer": word, "id": word}])

    for index in (writer, flat):  # deleted long before the kill
        index.remove(["b"])
    writer.save(place)
    reader, stale = FaqIndex.load(place, model), FaqIndex.load(place, model)
    change(writer, "dog")  # and is killed before it saves
    killed = FaqIndex.load(place, model)
    agree(killed)
    change(killed, "cat")
    killed.remove(["cat"])
    change(killed, "cat")
    with pytest.raises(DataError, match="Another process has changed the collection"):
        writer.add([{"question": "the mat", "answer": "No."}])
    with monkeypatch.context() as broken:
        broken.setattr(killed.store, "settle", lambda _: None)  # or right after
        killed.save(place)
    with pytest.raises(DataError, match="was saved by another process, or a copy"):
        change(stale, "mat")
    change(flat, "cat")
    last = FaqIndex.load(place, model)
    agree(last)
    assert last.store.stored() == len(last) + 3  # loading deletes nothing
    last.remove(["cat"])
    flat.remove(["cat"])
    agree(last)
    last.save(place)
    assert last.store.stored() == len(last)
    agree(FaqIndex.load(place, model))
    assert {hit.id for [hit] in reader.search(queries, 1)} <= {faq.id for faq in reader.faqs()}
    twins = [FaqIndex.load(place, model) for _ in "ab"]
    rows = [{"question": f"what {w} is it", "answer": w, "id": w} for w in ("time", "password")]
    for twin, row in zip(twins, rows, strict=True):
        twin.add([row])
    with pytest.raises(DataError, match="Another process has changed the collection"):
        twins[0].save(place)
    twins[1].save(place)
    flat.add(rows[1:])
    last = FaqIndex.load(place, model)
    insert = last.store.client.insert

    for error in (KeyboardInterrupt, milvus.pymilvus.MilvusException(message="late")):

        def fails(*args, error=error):
            insert(*args)
            raise error

        last.add([{"question": "is it late", "answer": "No.", "id": "late"}])
        with monkeypatch.context() as broken:
            broken.setattr(last.store.client, "insert", fails)
            with pytest.raises((ConnectionError, KeyboardInterrupt)):
                last.update([{"question": "is it late", "answer": "No.", "id": "c"}])
        last.save(place)  # what was added before is not lost
        last.remove(["late"])
        last.save(place)
        agree(FaqIndex.load(place, model))
    other = {"id": int(last._table.living[-1]), "vector": np.eye(32, dtype=np.float32)[0]}
    last.store.client.upsert("a", [other])
    with pytest.raises(DataError, match=r"was built by another model, .* its pooling or length"):
        FaqIndex.load(place, model)
    total = len(last)
    last.store.client.delete("a", ids=[0])
    with pytest.raises(DataError, match="Another process has changed the collection"):
        last.save(place)
    with pytest.raises(DataError, match="Another process has changed the collection"):
        last.add([{"question": "the dog", "answer": "No."}])
    with pytest.raises(DataError, match=rf"holds {total - 1} vectors, but {total} were saved"):
        FaqIndex.load(place, model)
    with pytest.raises(DataError, match="lacks vector 0, which another process has removed"):
        last.store.vectors(np.arange(2))
    last.store.close()


class Gone:
    """A server without collections."""

    def has_collection(self, name):
        return False


@pytest.mark.slow
def test_ctrl_c_in_a_build_leaves_no_collection(tmp_path, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    store = milvus.MilvusVectors(str(tmp_path / "faq.db"), "faq")
    with monkeypatch.context() as patch:
        patch.setattr(store.client, "insert", stopped)
        with pytest.raises(KeyboardInterrupt):
            store.add(np.eye(4, dtype=np.float32))
    store.add(np.eye(4, dtype=np.float32))
    assert (len(store), store.stored()) == (4, 4)
    store.close()


@pytest.mark.slow
def test_what_a_killed_build_has_begun_is_dropped(tmp_path, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    uri, vectors = str(tmp_path / "faq.db"), np.eye(4, dtype=np.float32)
    store = milvus.MilvusVectors(uri, "faq")
    monkeypatch.setattr(store.client, "flush", killed)
    monkeypatch.setattr(store.client, "drop_collection", lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        store.add(vectors)
    [left] = store.client.list_collections()
    store.close()
    store = milvus.MilvusVectors(uri, "faq")
    store.add(vectors[:2])
    assert (len(store), store.stored()) == (2, 2)
    assert store.search(vectors[:1], 1)[1] == 0
    assert (left, store.client.list_collections()) == ("faq_begun", ["faq"])
    store.client.rename_collection("faq", "other")
    late, insert = milvus.MilvusVectors(uri, "faq"), store.client.insert

    def slow(*given):
        insert(*given)
        late.client.rename_collection("other", "faq")  # as another process would

    monkeypatch.setattr(late.client, "insert", slow)
    with pytest.raises(ConnectionError):
        late.add(vectors)
    assert late.client.list_collections() == ["faq"]  # the other's
    late.close()
    store.close()


@pytest.mark.slow
def test_a_collection_that_is_taken_or_gone(tmp_path, monkeypatch):
    uri = str(tmp_path / "faq.db")
    vectors = np.eye(4, dtype=np.float32)
    store = milvus.MilvusVectors(uri, "faq")
    store.add(vectors)
    facts = store.save(tmp_path)
    with pytest.raises(ValueError, match="already has a collection 'faq'"):
        milvus.MilvusVectors(uri, "faq")
    with pytest.raises(DataError, match="has no collection 'other'"):
        milvus.MilvusVectors.open(facts | {"collection": "other"}, np.arange(0))
    insert, calls = store.client.insert, []

    def fails_midway(*args):
        calls.append(args)
        if len(calls) > 1:
            raise milvus.pymilvus.MilvusException(message="full")
        return insert(*args)

    monkeypatch.setattr(store.client, "insert", fails_midway)
    monkeypatch.setattr(milvus, "BATCH", 2)
    with pytest.raises(ConnectionError, match="full"):
        store.add(vectors)
    assert (len(store), store.stored()) == (4, 4)
    with monkeypatch.context() as broken:
        broken.setattr(store.client, "insert", insert)
        broken.setattr(store.client, "flush", fails_midway)  # it has been called twice
        with pytest.raises(ConnectionError, match="full"):
            store.add(vectors)
    assert (len(store), store.stored()) == (4, 4)
    store.close()
    fresh = milvus.MilvusVectors(uri, "fresh")
    with monkeypatch.context() as broken:
        broken.setattr(fresh.client, "insert", fails_midway)
        with pytest.raises(ConnectionError, match="full"):
            fresh.add(vectors)
    fresh.add(vectors)  # a failed build leaves no collection behind
    assert (len(fresh), fresh.stored()) == (4, 4)
    fresh.close()
    tokens = []
    monkeypatch.setenv("MILVUS_TOKEN", "secret")

    def client(uri, token, timeout):
        tokens.append(token)
        return Gone()

    monkeypatch.setattr(milvus.pymilvus, "MilvusClient", client)
    for named in ("http://mine", "http://theirs"):
        monkeypatch.setenv("MILVUS_URI", named)
        with pytest.raises(DataError, match="has no collection 'faq'"):
            milvus.MilvusVectors.open(facts | {"uri": "http://mine"}, np.arange(0))
    assert tokens == ["secret", ""]
    monkeypatch.undo()
    with pytest.raises(ConnectionError, match=r"Milvus at http://127.0.0.1:1 does not respond"):
        milvus.MilvusVectors("http://127.0.0.1:1", "faq", timeout=1)
