"""The command: results on stdout, messages on stderr, and exit codes that tell them apart."""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE
from threading import Thread
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet
import pytest
import torch
from filelock import FileLock
from sentence_transformers import SentenceTransformer

from simbert_hf import SimBert, __version__
from simbert_hf.cli import NONE, main, read_arguments
from simbert_hf.encoders import vectorfiles
from simbert_hf.index import FaqIndex, TextEncoder
from simbert_hf.utils.atomic import put_in_place, whole
from simbert_hf.utils.console import as_json, blocks_of, hanging
from tests.tiny import save_tiny_simbert, tiny_simbert

FAQ = """question,answer
how do i reset my password,Press it.
what time is it,Late.
where is the cat,On the mat.
"""
QUERIES = """query,answer
please reset the password,Press it.
what time is it today,Late.
learn english fast,
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    save_tiny_simbert(path)
    return str(path)


def put_on_stdin(monkeypatch, content):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


@pytest.fixture
def run(capsys):
    """Run the command: exit code, JSON lines (or text) of stdout, stderr."""

    def call(*argv):
        code = main([str(arg) for arg in argv])
        out, err = capsys.readouterr()
        return code, [json.loads(x) for x in out.splitlines()] if "--json" in argv else out, err

    return call


def test_an_index_from_file_to_answer(run, model, tmp_path, monkeypatch):
    index = tmp_path / "index"
    (tmp_path / "faq.csv").write_text(FAQ)
    (tmp_path / "dev.csv").write_text(QUERIES)
    code, _, error = run("index", "build", tmp_path, "none.csv", "--model", model)
    assert (code, "holds something other than an index" in error) == (1, True)
    built = run("index", "build", index, tmp_path / "faq.csv", "--model", model, "--json")
    assert built[:2] == (
        0,
        [{"index": str(index), "rows": 3, "store": "flat", "recall_at_10": 1.0}],
    )
    assert "has no threshold: choose one with `simbert index calibrate`" in built[2]
    code, (line,), error = run("index", "search", index, "what time is it", "-k", 2, "--json")
    assert (code, "answer" in line, len(line["hits"])) == (0, False, 2)  # no threshold yet
    assert error.startswith("The index has no threshold")
    assert line["hits"][0]["answer"] == "Late."
    _, (line,), _ = run("index", "search", index, "what time is it", "--threshold", 0, "--json")
    assert line["answer"] == "Late."  # with one, it decides
    put_on_stdin(monkeypatch, b"\n")
    assert run("index", "search", index, "--json")[1][0]["reason"] == "The query is empty."
    argv = ["index", "calibrate", index, tmp_path / "dev.csv", "--false_accept_rate", 0.1]
    picture = tmp_path / "new" / "scores.svg"
    code, out, error = run(*argv, "--plot", tmp_path / "scores.foo")
    assert (code, out, "scores.foo is not an image file: end it in" in error) == (1, "", True)
    code, (found,), _ = run(*argv, "--plot", picture, "--json")
    assert "out of scope" in picture.read_text()
    assert (code, found["false_accepts"]["value"], found["false_accepts"]["count"]) == (0, 0, 1)
    put_on_stdin(monkeypatch, b"\xef\xbb\xbfwhat time is it\r\nlearn english fast\n")
    code, (hit, miss), _ = run("index", "search", index, "--json")
    assert (hit["query"], miss["query"]) == ("what time is it", "learn english fast")
    assert (hit["answer"], miss["answer"]) == ("Late.", None)
    assert miss["reason"].startswith("The best score, ")
    for flags in ([], ["--threshold", 0.5]):  # one that is none stops no other
        put_on_stdin(monkeypatch, b"what time is it\n\nso\x1b[0m late\n")
        code, replies, _ = run("index", "search", index, "--json", *flags)
        assert (code, [bool(reply["hits"]) for reply in replies]) == (0, [True, False, False])
        assert replies[1]["reason"] == "The query is empty."
        assert replies[2]["reason"].startswith("The query holds the control character")
    code, text, _ = run("index", "search", index, "learn english fast", "--threshold", -1)
    assert code == 0
    assert "reaches the threshold -1" in text
    assert (
        hanging("  0.500  One,\nMain St  (where?)") == "  0.500  One,\n         Main St  (where?)"
    )


class AnyIndex:
    """Stands for an index."""

    recall, store, calibration = 0.98765, SimpleNamespace(kind="flat"), None

    def __len__(self) -> int:
        return 3

    def save(self, place: Path) -> None:
        pass


def test_a_wrong_number_of_paraphrases_is_refused_before_any_is_written(run, tmp_path):
    code, out, error = run("index", "build", tmp_path / "index", "nofile.csv", "--augment", -1)
    assert (code, out) == (1, "")
    assert error == (
        "simbert: augment=-1 is out of range: it must be a whole number of at least 1, or 0 for "
        "none.\n"
    )


def test_every_flag_reaches_what_it_is_for(run, tmp_path, monkeypatch):
    told: list = []

    def note(name, found=None):
        def call(*given, **options):
            told.append((name, *given, options))
            if found is None:
                raise ValueError("That is all.")
            return found

        return call

    index, faqs = tmp_path / "index", [1, 2]
    monkeypatch.setattr(FaqIndex, "build", note("build", AnyIndex()))
    monkeypatch.setattr(FaqIndex, "load", note("load", AnyIndex()))
    monkeypatch.setattr(AnyIndex, "calibrate", staticmethod(note("calibrate")), raising=False)
    monkeypatch.setattr(AnyIndex, "answer", staticmethod(note("answer")), raising=False)
    monkeypatch.setattr("simbert_hf.index.read_faqs", note("read", faqs))
    monkeypatch.setattr("simbert_hf.index.augment", note("augment", [*faqs, 3]))
    monkeypatch.setattr("simbert_hf.index.saving.read_manifest", note("manifest", {}))
    monkeypatch.setattr("simbert_hf.encoders.vectorfiles.encode_file", note("encode", 0))
    monkeypatch.setitem(sys.modules, "simbert_hf.app.page", SimpleNamespace(launch=note("app")))

    flags = ["--model", "m", "--kind", "hnsw", "--votes", 2, "--prompt", "q: ", "--augment", 4]
    built = run("index", "build", index, "a.csv", *flags, "--id_column", "nr", "--json")
    assert built[1] == [{"index": str(index), "rows": 3, "store": "flat", "recall_at_10": 0.9877}]
    options = {"store": "hnsw", "votes": 2, "prompt": "q: ", "columns": {}, "progress": True}
    assert told == [
        ("read", "a.csv", {"id": "nr"}, {}),
        ("augment", faqs, "m", {"k": 4, "progress": True, "save_to": index}),
        ("build", "m", [*faqs, 3], options | {"save_to": index}),
    ]
    told.clear()
    run("index", "calibrate", index, "dev.csv", "--precision", 0.9, "--model", "m")
    run("index", "search", index, "a", "-k", 7, "--threshold", 0.3, "--model", "m")
    wanted = {"false_accept_rate": None, "precision": 0.9, "columns": {}}
    assert told[1:] == [
        ("load", index, "m", {}),
        ("calibrate", "dev.csv", wanted),
        ("load", str(index), "m", {}),
        ("answer", ["a"], {"threshold": 0.3, "k": 7}),
    ]
    told.clear()
    (tmp_path / "a.txt").write_text("a cat\n")
    out = tmp_path / "a.npy"
    run("encode", tmp_path / "a.txt", "--model", "m", "--output", out, "--processes", 2)
    run("app", "--model", "m", "--index", "i", "--host", "h", "--port", 8)
    assert told == [
        ("encode", ["a cat"], "m", out, {"processes": 2}),
        ("app", "m", {"index": "i", "host": "h", "port": 8}),
    ]


def test_what_is_not_known_is_said_so(run, model, tmp_path):
    (tmp_path / "faq.csv").write_text(FAQ)
    (tmp_path / "dev.csv").write_text("".join(QUERIES.splitlines(keepends=True)[:3]))
    run("index", "build", tmp_path / "index", tmp_path / "faq.csv", "--model", model)
    argv = ["index", "calibrate", tmp_path / "index", tmp_path / "dev.csv", "--precision", 0.5]
    _, shown, _ = run(*argv)  # no query is out of scope
    assert "false accepts  not known\n" in shown
    assert as_json({"auroc": math.nan}) == '{"auroc": null}'


def test_every_text_is_in_one_block() -> None:
    texts = [str(i) for i in range(70)]
    assert [text for block in blocks_of(texts) for text in block] == texts


def test_rows_of_an_index_come_and_go(run, model, tmp_path, monkeypatch):
    index, path = Path("index"), tmp_path / "faq.csv"
    monkeypatch.chdir(tmp_path)
    path.write_text(FAQ)
    (tmp_path / "dev.csv").write_text(QUERIES)
    (tmp_path / "new.csv").write_text("nr,question,answer\n2,who is the dog,Nobody.\n")
    new = [index, tmp_path / "new.csv", "--id_column", "nr"]
    run("index", "build", index, path, "--model", model)
    run("index", "calibrate", index, tmp_path / "dev.csv", "--false_accept_rate", 0.1)
    code, _, error = run("index", "add", *new)
    assert (code, "already has a row '2'" in error) == (1, True)
    code, (facts,), error = run("index", "update", *new, "--json")
    assert (code, facts, "Its threshold is unchanged" in error) == (
        0, {"index": str(index), "rows": 3}, True
    )  # fmt: skip
    assert run("index", "remove", index, 0, 1)[:2] == (0, f"{index}: 1 question\n")
    assert run("index", "add", index, tmp_path / "dev.csv", "--question_column", "query")[0] == 1
    assert [faq.answer for faq in FaqIndex.load(index, model).faqs()] == ["Nobody."]
    error = run("index", "build", index, path, "--model", model)[2]
    assert f"This replaced the index in {index} with its calibration." in error
    manifest = index / "index.json"
    manifest.write_text(manifest.read_text().replace('"format": 1', '"format": 2'))
    code, _, error = run("index", "build", index, path, "--model", model)
    assert (code, f"This replaced the index in {index}." in error) == (0, True)


def test_changes_of_an_index_take_turns(run, model, tmp_path, monkeypatch):
    index = tmp_path / "index"
    (tmp_path / "faq.csv").write_text(FAQ)
    (tmp_path / "dev.csv").write_text(QUERIES)
    (tmp_path / "new.csv").write_text("question,answer\nwho is the dog,Nobody.\n")
    run("index", "build", index, tmp_path / "faq.csv", "--model", model)
    calibrate = FaqIndex.calibrate
    other = Thread(target=main, args=([*map(str, ("index", "add", index, tmp_path / "new.csv"))],))

    def meanwhile(self, *args, **options):
        other.start()
        other.join(0.5)
        assert other.is_alive()
        return calibrate(self, *args, **options)

    monkeypatch.setattr(FaqIndex, "calibrate", meanwhile)
    argv = ["index", "calibrate", index, tmp_path / "dev.csv", "--false_accept_rate", 0.1]
    assert run(*argv)[0] == 0
    other.join()
    again = FaqIndex.load(index, model)
    assert len(again) == 4
    assert again.calibration is not None


def test_where_nothing_may_be_written_no_work_begins(run, model, tmp_path, read_only):
    index = tmp_path / "index"
    (tmp_path / "faq.csv").write_text(FAQ)
    (tmp_path / "dev.csv").write_text(QUERIES)
    assert run("index", "build", index, tmp_path / "faq.csv", "--model", model)[0] == 0
    argv = ["index", "calibrate", index, tmp_path / "dev.csv", "--false_accept_rate", 0.1]
    read_only(tmp_path)
    code, _, error = run("index", "build", tmp_path / "new", "none.csv", "--model", model)
    assert (code, f"{tmp_path} is not writable, so {tmp_path / 'new'}" in error) == (
        1,
        True,
    )
    code, _, error = run(*argv, "--plot", tmp_path / "scores.svg")
    assert (code, "is not writable" in error) == (1, True)
    read_only(index)
    code, _, error = run(*argv)
    assert (code, f"{index} is not writable" in error) == (1, True)


def test_repeated_rows_are_told_once(run, model, tmp_path, caplog):
    path = tmp_path / "faq.csv"
    path.write_text("question,answer\nwhat,a\nwhat,a\n")
    assert run("index", "build", tmp_path / "index", path, "--model", model)[0] == 0
    assert caplog.messages.count(f"{path}: rows that repeat a question and its answer: 1") == 1
    assert sum("repeat a question" in message for message in caplog.messages) == 1


def test_texts_may_stand_behind_flags(run, model, tmp_path):
    (tmp_path / "faq.csv").write_text(FAQ)
    assert run("index", "build", tmp_path / "index", tmp_path / "faq.csv", "--model", model)[0] == 0
    code, found, _ = run("index", "search", tmp_path / "index", "-k", "1", "--json", "the cat", "b")
    assert (code, [row["query"] for row in found]) == (0, ["the cat", "b"])
    with pytest.raises(SystemExit):
        main(["index", "search", str(tmp_path / "index"), "--kk", "1", "the cat"])


def test_synonyms(run, model):
    argv = ["synonyms", "what time is it", "--model", model, "-n", 20, "-k", 3, "--seed", 0]
    code, (line,), _ = run(*argv, "--json")
    assert code == 0
    assert line["text"] == "what time is it"
    assert 0 < len(line["paraphrases"]) <= 3
    _, text, _ = run(*argv)
    assert line["paraphrases"][0]["text"] in text
    _, (line,), _ = run(*argv, "--top_k", 0, "--json")
    found = SimBert.from_pretrained(model).gen_synonyms(argv[1], 20, 3, seed=0, top_k=None)
    assert [one["text"] for one in line["paraphrases"]] == found
    assert run(*argv[:4], "-n", 5)[0] == 0  # fewer than are shown by default
    more = {"temperature": 3.0, "max_new_tokens": 4, "copying": 0.0, "min_similarity": -1.0}
    more |= {"top_k": 7, "top_p": 0.9, "fluency_weight": 0.5, "diversity": 0.0}
    more |= {"strategy": "sample"}
    flags = [part for name, value in more.items() for part in (f"--{name}", value)]
    _, (line,), _ = run(*argv, *flags, "--repeats", "--json")
    ours = SimBert.from_pretrained(model)
    more |= {"repeats": True}
    found = ours.gen_synonyms(argv[1], 20, 3, seed=0, **more)
    assert [one["text"] for one in line["paraphrases"]] == found


@pytest.mark.filterwarnings("ignore:The model has no token")  # it is tiny
def test_texts_that_look_like_flags_stand_behind_dashes(run, model) -> None:
    argv = ["synonyms", "-n", 5, "a cat", "-k", 2, "--seed", 0, "--model", model]
    found = [run(*argv, *more)[:2] for more in ((), ("--", "-5 is cold"))]
    assert [code for code, _ in found] == [0, 0]
    assert found[1][1].endswith(f"-5 is cold\n{NONE}\n")
    with pytest.raises(SystemExit):
        main(["index", "build", "there", "faqs.csv", "--", "-5"])
    args = read_arguments(["index", "remove", "there", "a", "--", "-5"])
    assert args.ids == ["a", "-5"]
    assert read_arguments([*map(str, argv), "--", "-5", "-6"]).texts == ["a cat", "-5", "-6"]


@pytest.mark.filterwarnings("ignore:The model has no token")  # it is tiny
def test_synonyms_of_lines(run, model):
    text = "go,\nwhat is it? the cat ran"
    argv = ["synonyms", text, "--model", model, "-n", 20, "-k", 3, "--seed", 0]
    argv += ["--max_new_tokens", 8]
    ours = SimBert.from_pretrained(model)
    for flags, by_sentence in (([], True), (["--whole"], False)):
        _, (line,), _ = run(*argv, *flags, "--json")
        found = ours.gen_synonyms(text, 20, 3, seed=0, max_new_tokens=8, by_sentence=by_sentence)
        assert [one["text"] for one in line["paraphrases"]] == found
        assert (found[0][:4] == "go,\n") == by_sentence
    _, shown, _ = run(*argv)
    assert shown.count("go,\n         ") == 3  # of the paraphrases, not of the text


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_encode_goes_on_where_a_kill_stopped_it(run, model, tmp_path, monkeypatch, suffix):
    texts = [f"the cat sat {i}" if i % 3 else "a dog ran" for i in range(10)]
    (tmp_path / "in.txt").write_text("\n".join(texts))
    output = tmp_path / f"out{suffix}"
    argv = ["encode", tmp_path / "in.txt", "--model", model, "--output", output, "--json"]
    monkeypatch.setattr(vectorfiles, "BLOCK", 4)
    calls = []
    encode = TextEncoder.__call__

    def third_is_killed(self, block):
        calls.append(len(block))
        if len(calls) == 4:  # the first are the probes
            raise KeyboardInterrupt
        return encode(self, block)

    monkeypatch.setattr(TextEncoder, "__call__", third_is_killed)
    assert run(*argv)[0] == 130
    assert not output.exists()
    code, (facts,), _ = run(*argv)
    assert (code, facts["texts"], facts["resumed"], calls) == (0, 10, 8, [8, 4, 4, 2, 8, 2])
    if suffix == ".npy":
        vectors = np.load(output)
    else:
        table = pyarrow.parquet.read_table(output)
        assert table["text"].to_pylist() == texts
        vectors = np.array(table["vector"].to_pylist(), dtype=np.float32)
    np.testing.assert_allclose(vectors, tiny_simbert().encode(texts), atol=1e-5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", f"out{suffix}"]
    assert f"This replaced an earlier {output}." in run(*argv)[2]


@pytest.mark.parametrize("last", ["encoding", "saving"])
def test_an_index_goes_on_where_a_kill_stopped_it(run, model, tmp_path, monkeypatch, last):
    texts = [f"the {who} {did}" for who in ("cat", "dog") for did in "sat ran is it what".split()]
    faqs = "".join(f"{text},{text}\n" for text in texts)
    (tmp_path / "faq.csv").write_text(f"question,answer\n{faqs}")
    argv = ["index", "build", tmp_path / "index", tmp_path / "faq.csv", "--model", model, "--json"]
    monkeypatch.setattr(vectorfiles, "BLOCK", 4)
    calls, encode = [], TextEncoder.__call__

    def counted(self, block):
        calls.append(len(block))
        if len(calls) == 4 and last == "encoding":  # the first are the probes
            raise KeyboardInterrupt
        return encode(self, block)

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(TextEncoder, "__call__", counted)
    with monkeypatch.context() as patch:
        patch.setattr("simbert_hf.index.faq_index.write_index", killed)
        assert run(*argv)[0] == 130
    assert calls == [8, 4, 4, 2]
    code, (facts,), _ = run(*argv)
    assert (code, facts["rows"], calls[4:]) == (0, 10, [8, 2] if last == "encoding" else [8])
    assert not (tmp_path / "index" / "vectors.parts").exists()
    index = FaqIndex.load(tmp_path / "index")
    assert [hits[0].answer for hits in index.search(texts, 1)] == texts


def test_paraphrases_go_on_where_a_kill_stopped_them(model, tmp_path, monkeypatch):
    module = sys.modules["simbert_hf.index.augment"]  # the name is also a function's
    monkeypatch.setattr(module, "BLOCK", 2)
    words = ["cat", "dog", "mat", "time", "password"]
    faqs = [{"question": f"what is the {word}", "answer": word} for word in words]
    options = {"k": 2, "n": 4, "min_similarity": -1.0, "max_new_tokens": 8}
    whole = module.augment(faqs, model, **options)
    assert len(whole) > len(faqs)
    asked, write = [], module.gen_synonyms

    def killed_at_last(texts, *args, **settings):
        asked.append(len(texts))
        if len(texts) == 1 and asked.count(1) == 1:
            raise KeyboardInterrupt
        return write(texts, *args, **settings)

    monkeypatch.setattr(module, "gen_synonyms", killed_at_last)
    place = tmp_path / "i"
    with pytest.raises(KeyboardInterrupt):
        module.augment(faqs, model, **options, save_to=place)
    assert module.augment(faqs, model, **options, save_to=place) == whole
    assert asked == [2, 2, 1, 1]
    module.augment(faqs, model, **options | {"n": 5}, save_to=place)
    other = tiny_simbert("cls", num_hidden_layers=1)
    module.augment(faqs[:2], other, **options, save_to=place)
    assert asked[4:] == [2, 2, 1, 2]  # nothing is kept of another call or model
    with monkeypatch.context() as patch:
        patch.setattr(module, "__version__", "0")
        module.augment(faqs[:2], model, **options, save_to=place)
    assert asked[8:] == [2]  # nor of another version, which may write otherwise
    for kept in (place / "vectors.parts").iterdir():
        kept.write_text("[[")  # a damaged disk
    assert module.augment(faqs, model, **options, save_to=place) == whole
    index = FaqIndex.build(model, whole, save_to=place)
    assert len(index) == len(whole)
    assert not (place / "vectors.parts").exists()
    (tmp_path / "mine.txt").touch()
    with pytest.raises(ValueError, match="holds something other than an index"):
        module.augment(faqs, model, save_to=tmp_path)


def test_an_index_of_other_questions_begins_anew(model, tmp_path, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("simbert_hf.index.faq_index.write_index", killed)
        with pytest.raises(KeyboardInterrupt):
            FaqIndex.build(model, [{"question": "a cat", "answer": "1"}], save_to=tmp_path / "i")
    assert (tmp_path / "i" / "vectors.parts" / "0.npy").exists()
    faqs = [{"question": "a dog", "answer": "2"}]
    index = FaqIndex.build(model, faqs, save_to=tmp_path / "i")
    assert index.search("a dog")[0].score == pytest.approx(1)
    assert FaqIndex.load(tmp_path / "i").search("a dog")[0].score == pytest.approx(1)
    assert not (tmp_path / "i" / "vectors.parts").exists()


def test_an_index_begins_anew_where_a_model_reads_more_of_long_texts(tmp_path, monkeypatch):
    class Letters(torch.nn.Module):  # anything with `encode`; it need not know its device
        most = 4

        def encode(self, texts, **_):
            found = np.array([[text[: self.most].count(c) for c in "abcdeqt"] for text in texts])
            return found / np.linalg.norm(found, axis=1, keepdims=True)

    texts = ["a cat", *["at"] * 9, "a quick brown dog"]
    faqs = [{"question": text, "answer": str(i)} for i, text in enumerate(texts)]
    with monkeypatch.context() as patch:
        patch.delattr("simbert_hf.index.faq_index.write_index")
        with pytest.raises(NameError):
            FaqIndex.build(Letters(), faqs, save_to=tmp_path / "i")
    model = Letters()
    model.most = 100
    index = FaqIndex.build(model, faqs, save_to=tmp_path / "i")
    assert index.search(texts[-1])[0].score == pytest.approx(1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_encode_goes_on_after_a_full_disk(run, model, tmp_path, monkeypatch):
    """It is told of by a write; with a map of the file in memory, the system ends the process."""
    read = np.lib.format.open_memmap

    def read_only(file, mode="r+", **options):
        assert mode == "r"
        return read(file, mode=mode, **options)

    @contextmanager
    def full(place):
        with whole(place) as made:
            if place == output:
                made.symlink_to("/dev/full")
            yield made

    (tmp_path / "in.txt").write_text("a cat\na dog")
    output = tmp_path / "out.npy"
    argv = ["encode", tmp_path / "in.txt", "--model", model, "--output", output, "--json"]
    monkeypatch.setattr(np.lib.format, "open_memmap", read_only)
    with monkeypatch.context() as patch:
        patch.setattr(vectorfiles, "whole", full)
        code, _, error = run(*argv)
    assert (code, output.exists()) == (1, False)
    assert f"No space left on device: '{output}'" in error
    code, (facts,), _ = run(*argv)
    assert (code, facts["resumed"]) == (0, 2)
    np.testing.assert_allclose(
        np.load(output), tiny_simbert().encode(["a cat", "a dog"]), atol=1e-5
    )


def test_a_block_that_does_not_fit_is_told_of(tmp_path):
    resource = pytest.importorskip("resource", reason="file size limits stand for a full disk")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match=r"File too large: '.*0\.npy'"):
            vectorfiles._write_block(tmp_path / "0.npy", np.zeros((1000, 100), dtype=np.float32))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())


def test_encode_refuses_what_is_left_of_other_texts(model, tmp_path, monkeypatch):
    def killed(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(vectorfiles, "_encoding", killed)
    output = tmp_path / "out.npy"
    with pytest.raises(KeyboardInterrupt):
        vectorfiles.encode_file(["a cat"], model, output)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="holds vectors of other texts"):
        vectorfiles.encode_file(["a dog"], model, output)
    save_tiny_simbert(tmp_path / "cls", "cls")  # of the same weights
    with pytest.raises(ValueError, match="another model"):
        vectorfiles.encode_file(["a cat"], str(tmp_path / "cls"), output)
    assert vectorfiles.encode_file(["a cat"], model, output) == 0


def test_encode_refuses_what_another_process_fills(model, tmp_path, monkeypatch):
    output = tmp_path / "out.npy"
    encode = TextEncoder.__call__

    def meanwhile(self, texts):
        monkeypatch.setattr(TextEncoder, "__call__", encode)
        with pytest.raises(ValueError, match=r"out\.npy\.parts: is in use by another process"):
            vectorfiles.encode_file(["a cat"], model, output)
        return encode(self, texts)

    monkeypatch.setattr(TextEncoder, "__call__", meanwhile)
    assert vectorfiles.encode_file(["a cat"], model, output) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out.npy"]


def test_nothing_is_left_where_releasing_a_lock_removes_it(model, tmp_path, monkeypatch):
    class WindowsLock(FileLock):
        def _release(self):
            super()._release()
            Path(self.lock_file).unlink(missing_ok=True)

    monkeypatch.setattr("simbert_hf.utils.locks.FileLock", WindowsLock)
    vectorfiles.encode_file(["a cat"], model, tmp_path / "out.npy")
    assert not (tmp_path / "out.npy.parts").exists()


@pytest.mark.parametrize("name", ["out.npy", "out.parquet"])
def test_encode_file_takes_arrays_and_a_path_as_text(model, tmp_path, name):
    assert vectorfiles.encode_file(np.array(["a cat", "a dog"]), model, f"{tmp_path}/{name}") == 0
    assert (tmp_path / name).exists()


def test_a_line_of_control_characters_is_blank(run, model, monkeypatch):
    put_on_stdin(monkeypatch, b"a\nb\n\x07 \x1b\n")
    code, out, error = run("synonyms", "--model", model)
    assert (code, out) == (1, "")
    assert "stdin:3: is blank" in error


def test_encode_leaves_folders_alone_and_wants_texts(model, tmp_path):
    output = tmp_path / "vectors.parquet"
    output.mkdir()
    (output / "part-0.parquet").write_text("somebody's")
    with pytest.raises(ValueError, match="is a folder"):
        vectorfiles.encode_file(["a cat"], model, output)
    (tmp_path / "made").write_text("new")
    with pytest.raises(IsADirectoryError, match="name another"):
        put_in_place(tmp_path / "made", output)
    assert (output / "part-0.parquet").read_text() == "somebody's"
    with pytest.raises(ValueError, match="no texts"):
        vectorfiles.encode_file([], model, tmp_path / "out.npy")
    with pytest.raises(ValueError, match="processes=0 is out of range"):
        vectorfiles.encode_file(["a cat"], model, tmp_path / "out.npy", processes=0)


@pytest.mark.parametrize("gone", ["work.json", "probe.npy"])
def test_encode_takes_nothing_from_a_folder_that_was_being_removed(
    model, tmp_path, monkeypatch, gone
):
    unlink = Path.unlink

    def killed(path, **options):
        unlink(path, **options)
        if path.name == gone:
            raise KeyboardInterrupt

    output = tmp_path / "out.npy"
    monkeypatch.setattr(Path, "unlink", killed)
    with pytest.raises(KeyboardInterrupt):
        vectorfiles.encode_file(["a cat"], model, output)
    monkeypatch.undo()
    assert vectorfiles.encode_file(["what time is it"], model, output) == 0
    np.testing.assert_allclose(
        np.load(output), tiny_simbert().encode(["what time is it"]), atol=1e-5
    )


@pytest.mark.parametrize("name", ["faq.csv", "faq.tsv.gz", "faq.jsonl"])
def test_encode_takes_no_rows_for_texts(run, tmp_path, name):
    (tmp_path / name).write_text(FAQ)
    code, _, err = run("encode", tmp_path / name, "--output", tmp_path / "out.npy")
    assert code == 1
    assert f"{name}: holds rows (" in err


def test_a_closed_stdin_is_told_of(run, model, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)  # as Python does
    code, _, error = run("synonyms", "--model", model)
    assert (code, error) == (1, "simbert: stdin is closed: redirect it, or give texts or a file.\n")


def test_stdin_is_decoded_like_a_file(run, tmp_path, monkeypatch):
    put_on_stdin(monkeypatch, b"a\n\xff\n")
    code, _, err = run("encode", "-", "--output", tmp_path / "out.npy")
    assert (code, "stdin:2: is not UTF-8 at byte 0" in err) == (1, True)


def test_damaged_weights_end_with_a_sentence(run, tmp_path):
    save_tiny_simbert(tmp_path / "cut")
    (tmp_path / "cut" / "model.safetensors").write_bytes(b"cut")
    (tmp_path / "in.txt").write_text("a cat\n")
    for argv in (["synonyms", "a cat"], ["encode", tmp_path / "in.txt", "--output", "a.npy"]):
        code, _, err = run(*argv, "--model", tmp_path / "cut")
        assert code == 1
        assert "model.safetensors is truncated or damaged" in err


@pytest.mark.multiproc
def test_encode_by_two_processes(model, tmp_path, monkeypatch):
    monkeypatch.setattr(vectorfiles, "BLOCK", 8)
    texts, sizes = ["the cat sat", "a dog ran", "what time is it"] * 5, []
    start = SentenceTransformer.start_multi_process_pool

    def watched(self, devices):
        pool = start(self, devices)
        put = pool["input"].put
        pool["input"].put = lambda job: (sizes.append(len(job[1])), put(job))
        return pool

    monkeypatch.setattr(SentenceTransformer, "start_multi_process_pool", watched)
    vectorfiles.encode_file(texts, model, tmp_path / "out.npy", processes=2)
    assert sizes == [2] * 7 + [1]  # long enough to group texts of like length
    np.testing.assert_allclose(
        np.load(tmp_path / "out.npy"), tiny_simbert().encode(texts), atol=1e-5
    )


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["index", "search", "nowhere", "hi"], "nowhere: does not exist. Build one"),
        (["index", "build", "i", "none.csv", "--model", "m"], "none.csv: is not a file"),
        (["encode", "a.txt", "--model", "m", "--output", "a.csv"], "a .npy or .parquet file"),
        (["encode", "none.txt", "--model", "m", "--output", "a.npy"], "none.txt: is not a file"),
        (["encode", "-", "--model", "m", "--output", "a.npy"], "stdin:2: is blank"),
        (["synonyms", "-"], "stdin:2: is blank"),
        (["synonyms", "hi", __file__], f"{__file__} is a file, not a text: for the texts in it"),
        (["index", "search", "i", __file__], f"give < {__file__}."),
        (["evaluate", "--sts", "x.csv"], "There are no models to measure; give --models."),
    ],
)
def test_what_cannot_be_done_ends_with_a_sentence(run, argv, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put_on_stdin(monkeypatch, b"a\n\nb\n")
    code, out, err = run(*argv)
    assert (code, out) == (1, "")
    assert sentence in err
    assert err.startswith("simbert: ")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "argv",
    [[], ["index"], ["index", "build", "i"], ["sing"], ["index", "calibrate", "i", "q.csv"]],
)
def test_wrong_usage_ends_with_2(argv, capsys):
    with pytest.raises(SystemExit) as stop:
        main(argv)
    assert stop.value.code == 2
    assert "usage: simbert" in capsys.readouterr().err


def test_evaluate_describes_itself(run):
    code, out, _ = run("evaluate", "--help")
    assert code == 0
    assert out.startswith("usage: simbert evaluate ")
    assert "--sts" in out
    assert "--json  " in out


def test_version_is_the_packages(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"simbert {__version__}\n"


def test_a_closed_stdout_is_told_in_one_sentence(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["synonyms", "a cat"]) == 1
    assert capsys.readouterr().err == (
        "simbert: stdout, where results go, is closed: redirect it to a file or a pipe.\n"
    )


@pytest.mark.parametrize("argv", [[], ["--help"]])
def test_a_command_that_nobody_reads_on_ends_quietly(argv):
    instead = "args = SimpleNamespace(run=lambda _: cli.show(['line']))"
    code = (
        "import sys; from types import SimpleNamespace; from simbert_hf import cli; "
        f"{'' if argv else f'{instead}; cli.read_arguments = lambda _: args; '}"
        f"sys.stdin.read(); sys.exit(cli.main({argv}))"
    )
    run = {"env": os.environ | {"PYTHONUNBUFFERED": ""}, "stdin": PIPE, "stdout": PIPE}
    with subprocess.Popen([sys.executable, "-c", code], stderr=PIPE, **run) as command:
        command.stdout.close()
        assert command.communicate()[1] == b""
    assert command.returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_for_what_is_written_shows_no_traceback():
    run = {"env": os.environ | {"PYTHONUNBUFFERED": ""}, "stderr": PIPE, "text": True}
    command = [sys.executable, "-m", "simbert_hf.cli", "--help"]
    with Path("/dev/full").open("w") as place:
        found = subprocess.run(command, stdout=place, check=False, **run)
    assert "No space left on device" in found.stderr
    assert "Traceback" not in found.stderr
    assert found.returncode


def test_help_loads_no_model_library():
    code = "import sys; from simbert_hf.cli import make_parser; make_parser().format_help()"
    check = "; sys.exit(bool({'torch', 'transformers', 'faiss'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code + check], check=False).returncode == 0
