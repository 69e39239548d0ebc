"""What a FaqIndex is built, loaded, asked and calibrated with reaches the part that it is for."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import faiss
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from sentence_transformers import SentenceTransformer
from tokenizers import (
    NormalizedString,
    PreTokenizedString,
    Tokenizer,
    models,
    normalizers,
    pre_tokenizers,
)
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from simbert_hf import DEFAULT_MODEL
from simbert_hf.encoders.text_encoder import TextEncoder
from simbert_hf.index import FaissVectors, FaqIndex, faq_index, stores
from simbert_hf.index.calibration import calibrate_scores
from simbert_hf.index.ranking import nearest_groups
from simbert_hf.index.stores import FILE
from simbert_hf.index.table import SCHEMA, FaqTable
from simbert_hf.modeling.checkpoint import update_json
from simbert_hf.rows import unread
from simbert_hf.utils.textfiles import DataError
from tests.test_retrieval import ROWS
from tests.tiny import tiny_simbert


@pytest.fixture(scope="module")
def model():
    return tiny_simbert()


# Saved and loaded -------------------------------------------------------------------------------


def test_votes_and_recall_are_loaded_again_and_a_batch_size_is_each_ones_own(model, tmp_path):
    index = FaqIndex.build(model, ROWS, votes=2, batch_size=2)
    index.recall = 0.5
    index.save(tmp_path)
    again = FaqIndex.load(tmp_path, model, batch_size=3)
    assert (again.votes, again.recall) == (2, 0.5)
    assert (index.encoder.batch_size, again.encoder.batch_size) == (2, 3)


@pytest.fixture(scope="module")
def ivf_pq(tmp_path_factory):
    """A saved store of the kind with the most parts."""
    folder, store = tmp_path_factory.mktemp("ivf_pq"), FaissVectors("ivf_pq")
    drawn = np.random.default_rng(0).standard_normal((10_000, 8), dtype=np.float32)
    store.add(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))
    store.save(folder)
    return (folder / FILE).read_bytes()


@pytest.mark.parametrize("mmap", [True, False])
def test_parts_of_a_faiss_index_that_do_not_fit_are_refused(ivf_pq, mmap, tmp_path):
    """faiss would write 8 numbers into an array of 4: it corrupts memory, or aborts."""
    (tmp_path / FILE).write_bytes(ivf_pq)
    assert len(FaissVectors.load(tmp_path, "ivf_pq", np.arange(0), mmap=mmap)) == 10_000
    (tmp_path / FILE).write_bytes(ivf_pq[:4] + bytes([4]) + ivf_pq[5:])
    with pytest.raises(DataError, match=r"is damaged: its parts differ in their dimension"):
        FaissVectors.load(tmp_path, "ivf_pq", np.arange(0), mmap=mmap)


def test_numbers_of_vectors_beyond_the_last_are_refused(ivf_pq, tmp_path):
    (tmp_path / FILE).write_bytes(ivf_pq)
    index = faiss.read_index(str(tmp_path / FILE))
    lists = faiss.downcast_index(faiss.downcast_index(index).base_index).invlists
    full = next(i for i in range(lists.nlist) if lists.list_size(i))
    faiss.rev_swig_ptr(lists.get_ids(full), 1)[0] = 10_000
    faiss.write_index(index, str(tmp_path / FILE))
    with pytest.raises(DataError, match=r"is damaged: its parts differ in their number of vect"):
        FaissVectors.load(tmp_path, "ivf_pq", np.arange(0))


@pytest.mark.parametrize(
    ("spec", "metric", "why"),
    [
        (
            "HNSW32",
            faiss.METRIC_INNER_PRODUCT,
            r"its parts are \['IndexHNSWFlat', 'IndexFlat'\], not",
        ),
        ("IDMap,Flat", faiss.METRIC_INNER_PRODUCT, r"its parts are \['IndexIDMap"),
        ("Flat", faiss.METRIC_L2, r"its parts are|it does not compare by cosine"),
    ],
)
def test_another_kind_of_faiss_index_is_refused(spec, metric, why, tmp_path):
    faiss.write_index(faiss.index_factory(4, spec, metric), str(tmp_path / FILE))
    with pytest.raises(DataError, match=rf"vectors\.faiss: is damaged: {why}"):
        FaissVectors.load(tmp_path, "flat", np.arange(0))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rows", "6"), ("votes", -1), ("votes", 1.5), ("recall", None), ("model", {}), ("store", 5),
        ("model", {"name": "a"}), ("model", {"name": "", "fingerprint": "", "prompt": 5}),
        ("store", {}), ("store", {"type": "faiss"}), ("store", {"type": "faiss", "kind": "x"}),
        ("store", {"type": "milvus"}), ("store", {"type": "milvus", "uri": 5}),
        ("calibration", 5), ("calibration", {"threshold": 0.5}), ("files", {"rows.parquet": None}),
    ],
)  # fmt: skip
def test_a_manifest_of_another_form_is_told(model, name, value, tmp_path):
    """Not as a TypeError or KeyError; and -1 votes gave scores that nothing has."""
    FaqIndex.build(model, ROWS).save(tmp_path)
    update_json(tmp_path / "index.json", {name: value})
    with pytest.raises(
        DataError, match=r"is incomplete, or not an index's|has its vectors in an un"
    ):
        FaqIndex.load(tmp_path, model)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("threshold", "x"), ("threshold", float("nan")), ("scores", [0.5]), ("scores", 5),
        ("kinds", [7, 7]), ("kinds", None), ("interval", []), ("interval", ["x", 1]),
        ("interval", [10**30, None]), ("target", None),
    ],
)  # fmt: skip
def test_a_calibration_of_another_form_is_told(model, name, value, tmp_path):
    index = FaqIndex.build(model, ROWS)
    index.calibration = calibrate_scores([0.9, 0.1], [0, 2], "false_accept_rate", 0.5)
    index.save(tmp_path)
    assert FaqIndex.load(tmp_path, model).calibration.threshold == index.calibration.threshold
    update_json(
        tmp_path / "index.json", {"calibration": index.calibration.to_json() | {name: value}}
    )
    with pytest.raises(DataError, match=r"index\.json: is incomplete, or not an index's"):
        FaqIndex.load(tmp_path, model)


@pytest.mark.parametrize("name", [name for name in SCHEMA.names if name != "group"])
def test_empty_cells_of_saved_rows_are_told(name, tmp_path):
    row = {"id": "1", "question": "a", "answer": "b", "metadata": "{}", "removed": False}
    schema = pyarrow.schema([field.with_nullable(True) for field in SCHEMA])
    rows = pyarrow.Table.from_pylist([row | {name: None}], schema=schema)
    pyarrow.parquet.write_table(rows, tmp_path / "rows.parquet")
    with pytest.raises(DataError, match=rf"rows\.parquet: has an empty {name}\. Rebuild the index"):
        FaqTable.read(tmp_path / "rows.parquet")


@pytest.mark.parametrize("text", ["x", "[1]", "[" * 100_000])
def test_saved_metadata_that_are_no_object_are_told(text):
    row = {"id": "7", "question": "a", "answer": "b", "metadata": text, "removed": False}
    table = FaqTable(pyarrow.Table.from_pylist([row], schema=SCHEMA))
    with pytest.raises(
        DataError, match="The metadata of the index's row '7' are not a JSON object"
    ):
        table.faqs([0])


def test_an_index_knows_its_model_by_what_makes_vectors():
    one, other = tiny_simbert(), tiny_simbert()
    other.bert.pooler.dense.weight.data += 1  # their pooling is the mean
    assert TextEncoder(one).fingerprint == TextEncoder(other).fingerprint


@pytest.mark.parametrize("kind", ["simbert", "st", "st with a default"])
def test_a_prompt_is_kept_with_the_index(model, tmp_path, kind):
    named = {"prompts": {"q": "please "}, "default_prompt_name": "q"} if "default" in kind else {}
    model.save_pretrained(tmp_path / "model")
    encoder = model if kind == "simbert" else SentenceTransformer(str(tmp_path / "model"), **named)
    given = None if named else "please "
    index = FaqIndex.build(encoder, ROWS, prompt=given)
    index.save(tmp_path / "index")
    plain = FaqIndex.build(model, [row | {"question": f"please {row['question']}"} for row in ROWS])
    for found in (index, FaqIndex.load(tmp_path / "index", tmp_path / "model")):
        query = "where is my password"
        scores = [hit.score for hit in found.search(query, 3)]
        wanted = [hit.score for hit in plain.search(f"please {query}", 3)]
        assert scores == pytest.approx(wanted, abs=1e-5)


def test_what_cannot_be_read_gets_no_answer(model):
    index = FaqIndex.build(model, ROWS)
    with pytest.warns(UserWarning, match="unknown to the model"):
        read, unread = index.answer(["what time is it", "😊"], threshold=-1.0)
    assert read.answer == "Late."
    assert (unread.answer, unread.reason) == (
        None, "The model cannot read half or more of the query."
    )  # fmt: skip
    assert unread.hits


class Blanks:
    """Parts words as RoFormer's tokenizer does: by code of Python, which cannot be copied."""

    def pre_tokenize(self, text: PreTokenizedString) -> None:
        def part(_: int, words: NormalizedString) -> list[NormalizedString]:
            return words.split(" ", "removed")

        text.split(part)


def test_a_tokenizer_that_cannot_be_copied_serves():
    model = tiny_simbert()
    model.tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.PreTokenizer.custom(Blanks())
    index = FaqIndex.build(model, ROWS)
    assert index.answer("what time is it", threshold=0.9).answer == "Late."
    assert index.encoder.unread(["what time is it", "你好吗"]) == ["你好吗"]
    assert model.tokenizer.tokenize("what time") == ["what", "time"]


def test_an_index_tells_of_questions_that_cannot_be_read_when_they_come(model, tmp_path, caplog):
    foreign = {"question": "如何重置密码", "answer": "Call us."}
    with pytest.warns(UserWarning, match="trained on their language"):
        index = FaqIndex.build(model, [foreign, *ROWS])
    assert "in 1 of 6 questions, such as '如何重置密码': it hardly tells them" in caplog.text
    index.save(tmp_path / "index")
    with warnings.catch_warnings(action="error"):
        again = FaqIndex.load(tmp_path / "index", model)
        assert again.answer("what time is it", threshold=0.5).answer == "Late."
    many = [foreign | {"question": 3 * char} for char in "你好吗朋友们再见"]
    rows = [{"question": f"the cat sat {i}", "answer": "Late."} for i in range(9)]
    with pytest.warns(UserWarning, match="trained on their language"):
        FaqIndex.build(model, many + rows).save(tmp_path / "many")
    other = tiny_simbert(pooling="cls")
    other.load_state_dict(model.state_dict())
    with pytest.raises(DataError, match="its pooling or length differs"):
        FaqIndex.load(tmp_path / "many", other)


READ = (
    "where is my card?", "Où est ma carte d'été, Müller?", "Nguyễn Phú Trọng met Dvořák",
    "what does Привет mean?", "the angle β + δ", "Δx in μm", f"https://{100 * 'x'} is down again",
)  # fmt: skip
UNREAD = (
    "Привет, как дела?", "मैं अपना पासवर्ड भूल गया", "안녕하세요 제 카드는 어디에 있나요",
    "أين بطاقتي", "ξέχασα τον κωδικό", "איפה הכרטיס שלי", "カードはどこですか", "如何重置密码",
    "a" * 101,
)  # fmt: skip


def test_words_that_are_known_by_their_letters_alone_are_not_read():
    english = AutoTokenizer.from_pretrained(DEFAULT_MODEL)
    assert unread(english, [*READ, *UNREAD]) == list(UNREAD)
    pieces = "[UNK] 我 的 卡 привет при ##вет β 射 线 い ##く".split()
    engine = Tokenizer(
        models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]")
    )
    engine.normalizer = normalizers.BertNormalizer()
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    multilingual = PreTrainedTokenizerFast(tokenizer_object=engine, unk_token="[UNK]")
    assert unread(multilingual, ["我的卡", "β射线", "привет", "при", "いく"]) == ["いく"]


def test_a_long_word_is_told_of(model):
    with pytest.warns(UserWarning, match="unknown to the model"):
        model.encode("a" * 101)


def test_a_calibration_leaves_them_out(model, caplog):
    index = FaqIndex.build(model, ROWS)
    read = [{"query": "what time it is", "id": "c"}, {"query": "dog ran", "id": ""}]
    unread = [{"query": "是吗", "id": "d"}, {"query": "😊", "id": ""}]
    found = index.calibrate(read + unread, false_accept_rate=1.0)
    alone = index.calibrate(read, false_accept_rate=1.0)
    assert (found.threshold, found.rates) == (alone.threshold, alone.rates)
    assert "left out 2 of 4 queries: the model cannot read them" in caplog.text
    with pytest.raises(DataError, match="the model cannot read any of them"):
        index.calibrate(unread, false_accept_rate=0.5)


def test_labels_are_found_however_their_letters_are_encoded(model):
    composed, parts = "Caf\u00e9.", "Cafe\u0301."
    rows = [
        {"question": "where is the cat", "answer": composed},
        {"question": "is the cat on the mat", "answer": parts},
        {"question": "what time is it", "answer": "Late.", "group": composed, "id": composed},
    ]
    index = FaqIndex.build(model, rows)
    assert len(index.search("a cat", 5)) == 2
    queries = [{"query": "cat", "answer": label} for label in (composed, parts)]
    queries += [{"query": "time", key: parts} for key in ("group", "id")]
    index.calibrate([*queries, {"query": "dog ran", "id": None}], false_accept_rate=1.0)
    index.remove(parts)
    assert len(index) == 2
    index = FaqIndex.build(model, [rows[1]])  # in parts alone
    index.calibrate([{"query": "cat", "answer": composed}], precision=0.5)


def test_ids_of_former_indexes_are_found_however_their_letters_are_encoded(model):
    index = FaqIndex.build(model, [{"question": "where is it", "answer": "x", "id": "caf\u00e9"}])
    data = index._table.data
    place = data.schema.get_field_index("id")
    table = FaqTable(data.set_column(place, data.schema.field("id"), [["cafe\u0301"]]))
    assert table.number_of == {"caf\u00e9": 0}


@pytest.mark.parametrize("prompt", ["", "please please please please "])
def test_a_prompt_counts_where_texts_are_cut(model, tmp_path, prompt, recwarn):
    model.save_pretrained(tmp_path)
    encoder = SentenceTransformer(str(tmp_path))
    encoder.max_seq_length = 8
    TextEncoder(encoder, prompt=prompt)(["what time is it"])
    assert any("were cut" in str(warning.message) for warning in recwarn) == bool(prompt)


# Stores and votes -------------------------------------------------------------------------------


def test_recall_is_measured_where_a_store_may_miss(model, monkeypatch):
    monkeypatch.setattr(faq_index, "measure_recall", lambda store, vectors: len(vectors) / 10)
    assert FaqIndex.build(model, ROWS, store="hnsw").recall == 0.5
    assert FaqIndex.build(model, ROWS).recall == 1.0


def test_a_deeper_search_looks_at_more_of_a_graph(monkeypatch):
    make, asked = faiss.SearchParametersHNSW, []
    monkeypatch.setattr(
        faiss,
        "SearchParametersHNSW",
        lambda efSearch: asked.append(efSearch) or make(efSearch=efSearch),
    )
    store = FaissVectors("hnsw")
    store.add(np.eye(8, dtype=np.float32)[np.arange(2000) % 8])
    for k in (5, 100):
        store.search(np.eye(8, dtype=np.float32)[:1], k)
    store.remove(np.arange(1000))  # half of them
    for k in (1, 40):  # the last is a scan, which takes no longer
        assert (store.search(np.eye(8, dtype=np.float32)[:1], k)[1] >= 1000).all()
    assert asked == [128, 200, 128]


def test_vectors_that_cannot_be_parted_into_codes_are_refused():
    with pytest.raises(
        ValueError, match=r"divisible by 8, but the vectors have 12: use flat or hnsw\."
    ):
        FaissVectors("ivf_pq").add(np.eye(10_000, 12, dtype=np.float32))


def test_equally_near_answers_keep_the_order_of_their_rows(model):
    rows = [{"question": "a cat", "answer": answer} for answer in "xyz"]
    assert [hit.answer for hit in FaqIndex.build(model, rows).search("a cat", 3)] == list("xyz")


def test_a_vote_behind_many_rows_of_another_group_counts():
    """The nearest row's group has its second one behind all forty of the other."""
    cosines = np.array([0.7] * 40 + [0.95, 0.6], dtype=np.float32)
    store = FaissVectors("flat")
    store.add(np.stack([cosines, np.sqrt(1 - cosines**2)], axis=1))
    codes, query = np.array([0] * 40 + [1, 1]), np.array([[1.0, 0.0]], dtype=np.float32)
    ((best,),) = nearest_groups(store, (codes, np.bincount(codes)), query, 1, 2)
    assert (best.code, best.score) == (1, pytest.approx((0.95 + 0.6) / 2))


# Answers and calibration ------------------------------------------------------------------------


def test_an_answer_brings_as_many_hits_as_asked_for(model):
    index = FaqIndex.build(model, ROWS)
    assert len(index.answer("what time is it", threshold=0.5, k=2).hits) == 2
    (reply,) = index.answer(["what time is it"], threshold=0.5, k=1)
    assert len(reply.hits) == 1


def test_queries_are_calibrated_by_named_columns(model):
    asked = [{"text": "what time", "row": "c"}, {"text": "fast", "row": ""}]
    names = {"query": "text", "id": "row"}
    found = FaqIndex.build(model, ROWS).calibrate(asked, precision=0.5, columns=names)
    assert found.kinds.tolist() == [0, 2]


def test_an_index_in_a_folder_with_a_chinese_name_loads_on_windows(model, tmp_path, monkeypatch):
    def opens(file, *flags):
        if isinstance(file, str) and not file.isascii():
            raise RuntimeError("could not open")
        return read(file, *flags)

    read, place = faiss.read_index, tmp_path / "问答"
    FaqIndex.build(model, ROWS).save(place)
    monkeypatch.setattr(faiss, "read_index", opens)
    monkeypatch.setattr(stores, "os", SimpleNamespace(name="nt"))
    index = FaqIndex.load(place, model)
    index.add([{"question": "new", "answer": "yes"}])
    index.save(place)
    assert len(FaqIndex.load(place, model)) == len(ROWS) + 1
    assert FaqIndex.load(place, model).answer("new", threshold=0.9).answer == "yes"
