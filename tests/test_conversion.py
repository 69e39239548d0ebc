"""Original checkpoints in our form, against a NumPy graph and a tokenizer like bert4keras' own."""

import json
import shutil
import struct
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

from scripts.convert_tf_checkpoint import main
from simbert_hf import SimBert
from simbert_hf.cards import describe_model
from simbert_hf.conversion import bundle
from simbert_hf.conversion.bundle import MAGIC, TensorBundle, crc32c, masked, table_records
from simbert_hf.conversion.convert import (
    SIZES,
    find_vocabulary,
    find_weights,
    open_weights,
    read_settings,
    save,
)
from simbert_hf.conversion.keras import KerasWeights
from simbert_hf.conversion.vocabulary import build_tokenizer, read_vocabulary, simplify
from simbert_hf.generation.decoder import BertDecoder
from simbert_hf.modeling.encoder import load_encoder
from tests.make_tf_checkpoint import FIXTURE, FIXTURES, save_checkpoint
from tests.original import (
    CONFIG,
    FACTORISED,
    ROTARY,
    SPECIALS,
    VOCABULARY,
    Graph,
    random_weights,
    write_keras,
)
from tests.tiny import tiny_simbert

TEXTS = ["广州和深圳哪个好？", "你好吗", "Simberting 是什么²"]

WRITTEN = np.array([token not in ("[PAD]", "[SEP]") for token in VOCABULARY])  # in one test


def padded(rows: list[tuple[list[int], list[int]]]) -> tuple[np.ndarray, np.ndarray]:
    width = max(len(ids) for ids, _ in rows)
    ids = np.array([row + [0] * (width - len(row)) for row, _ in rows])
    return ids, np.array([row + [0] * (width - len(row)) for _, row in rows])


def assert_same_as(graph: Graph, folder: Path) -> None:
    """Every loader of the folder computes what the original's graph does."""
    model = SimBert.from_pretrained(folder)
    assert model.has_lm_head
    sources = [[VOCABULARY.index(t) for t in tokens] for tokens in map(reference_tokens, TEXTS)]
    ids, segments = padded([(row, [0] * len(row)) for row in sources])
    hidden = graph.hidden_states(ids, segments)
    real = ids != 0

    vectors = graph.vectors(hidden)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    assert np.abs(vectors @ vectors.T)[np.triu_indices(len(TEXTS), 1)].max() < 0.97  # they differ
    assert np.abs(model.encode(TEXTS) - vectors).max() < 1e-5
    theirs = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    assert np.abs(theirs - vectors).max() < 1e-5

    inputs = AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")
    assert inputs["input_ids"].tolist() == ids.tolist()
    with torch.no_grad():
        found = AutoModel.from_pretrained(folder)(**inputs).last_hidden_state.numpy()
        logits = AutoModelForMaskedLM.from_pretrained(folder)(**inputs).logits.numpy()
    assert np.abs(found - hidden)[real].max() < 1e-5
    assert np.abs(logits - graph.logits(hidden))[real].max() < 1e-4

    assert_same_pairs(graph, model, sources)
    assert_writes_as(graph, model, sources)


def assert_same_pairs(graph: Graph, model: SimBert, sources: list[list[int]]) -> None:
    """Under the UniLM mask, at every position of every row."""
    both = zip(sources, sources[::-1], strict=True)
    rows = [(a + b[1:], [0] * len(a) + [1] * (len(b) - 1)) for a, b in both]
    ids, segments = padded(rows)
    real = ids != 0
    positions = torch.tensor(real.ravel().nonzero()[0])
    inputs = (torch.tensor(value) for value in (ids, real.astype(int), segments))
    with torch.no_grad():
        logits = model(*inputs, lm_positions=positions).logits.numpy()
    expected = graph.logits(graph.hidden_states(ids, segments))[real]
    assert np.abs(logits - expected).max() < 1e-4


@torch.no_grad()
def assert_writes_as(graph: Graph, model: SimBert, sources: list[list[int]]) -> None:
    """Sources of several lengths at once, with a cache: the graph's likeliest tokens."""
    banned = torch.tensor(np.flatnonzero(~WRITTEN))
    decoder, reader = (BertDecoder(model, sources, 6, banned) for _ in range(2))
    logits, rows = decoder.start(), torch.arange(len(sources))
    stepped: list[torch.Tensor] = []
    targets: list[list[int]] = [[] for _ in sources]
    for _ in range(6):
        for target, source, found in zip(targets, sources, logits.numpy(), strict=True):
            segments = [0] * len(source) + [1] * len(target)
            row = padded([(source + target, segments)])
            expected = graph.logits(graph.hidden_states(*row))[0, -1]
            assert np.abs(found[WRITTEN] - expected[WRITTEN]).max() < 1e-4
            expected[~WRITTEN] = -np.inf
            target.append(int(expected.argmax()))
        logits = decoder.step(rows, rows, torch.tensor(targets)[:, -1])
        stepped.append(logits)
    reader.start()
    for read, expected_logits in zip(reader.read(torch.tensor(targets)), stepped, strict=True):
        torch.testing.assert_close(read, expected_logits, atol=1e-4, rtol=0)
    after = reader.step(rows, rows, torch.tensor(targets)[:, 0])  # what was read is forgotten
    torch.testing.assert_close(after, stepped[0], atol=1e-4, rtol=0)
    assert len({tuple(target) for target in targets}) > 1
    written = model.gen_synonyms(TEXTS[0], n=6, k=2, max_new_tokens=8, seed=0, return_scores=True)
    ours = model.encode([TEXTS[0], written[0].text])
    assert abs(written[0].similarity - ours[0] @ ours[1]) < 1e-5


def reference_tokens(text: str, known: list[str] = VOCABULARY) -> list[str]:
    """bert4keras' tokenizer, from its description: spaces by kind of character, longest pieces."""
    text = "".join(
        char
        for char in unicodedata.normalize("NFD", text.lower())
        if unicodedata.category(char) != "Mn"
    )
    spaced = ""
    for char in text:
        kind = unicodedata.category(char)
        ascii_mark = char in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
        if ascii_mark or kind.startswith("P") or unicodedata.name(char, "").startswith("CJK UNI"):
            spaced += f" {char} "
        elif kind == "Zs" or char in "\t\n\r":
            spaced += " "
        elif kind not in ("Cc", "Cf") and char not in "\0\ufffd":
            spaced += char
    tokens = [piece for word in spaced.split() for piece in pieces(word, known)]
    return ["[CLS]", *(token if token in known else "[UNK]" for token in tokens), "[SEP]"]


def pieces(word: str, known: list[str]) -> list[str]:
    if len(word) > 200:
        return [word]
    found: list[str] = []
    while word:
        mark = "##" if found else ""
        ends = [end for end in range(len(word), 0, -1) if mark + word[:end] in known]
        if not ends:
            return ["[UNK]"]
        found.append(mark + word[: ends[0]])
        word = word[ends[0] :]
    return found


# --- TensorFlow's checkpoints ------------------------------------------------------------------


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """A copy of the folder that TensorFlow wrote."""
    return Path(shutil.copytree(FIXTURE, tmp_path / "released"))


@pytest.mark.parametrize("folder", FIXTURES, ids=lambda folder: folder.name)
def test_a_checkpoint_of_tensorflow_becomes_the_same_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    main([str(folder), "--output_dir", str(tmp_path / "new" / "model")])
    assert "2 layers of 16, 59 tokens, embeds and paraphrases" in capsys.readouterr().out
    config, rotary, seed = FIXTURES[folder]
    graph = Graph(random_weights(config, rotary, seed), config, rotary)
    assert_same_as(graph, tmp_path / "new" / "model")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["model"]


def test_every_variable_is_read_as_it_was_saved() -> None:
    bundle = TensorBundle(FIXTURE / "bert_model.ckpt")
    for name, value in random_weights(CONFIG).items():
        assert np.array_equal(bundle.read(name), value)
    with pytest.raises(ValueError, match=r"global_step in .* is of type 9; only"):
        bundle.read("global_step")


def entry(dtype: int, shard: int, offset: int, data: bytes, shape: tuple[int, ...]) -> bytes:
    """A variable's record in the index, a ``BundleEntryProto``."""
    sizes = b"".join(bytes([0x12, 2, 0x08, size]) for size in shape)
    place = bytes([0x08, dtype, 0x12, len(sizes), *sizes, 0x18, shard, 0x20, offset])
    return place + bytes([0x28, len(data), 0x35]) + struct.pack("<I", masked(crc32c(data)))


def test_every_type_is_read_from_its_data_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two files, as several GPUs write them; TensorFlow numbers the types."""
    values = np.array([[0.5, -1.25, 3.0], [0.0, 96.0, -7.5]], dtype=np.float32)
    upper = (values.view(np.uint32) >> 16).astype(np.uint16)  # bfloat16
    stored = {1: values, 2: values.astype(np.float64), 14: upper, 19: values.astype(np.float16)}
    files, records = [b"", b""], {b"": bytes([0x08, 2])}
    for i, (dtype, value) in enumerate(stored.items()):
        data = value.tobytes()
        record = entry(dtype, i % 2, len(files[i % 2]), data, value.shape)
        records[f"w{dtype}".encode()] = record
        files[i % 2] += data
    (tmp_path / "model.ckpt.index").write_bytes(b"")
    for i, content in enumerate(files):
        (tmp_path / f"model.ckpt.data-0000{i}-of-00002").write_bytes(content)
    monkeypatch.setattr("simbert_hf.conversion.bundle.table_records", lambda _: records.items())
    bundle = TensorBundle(tmp_path / "model.ckpt")
    for dtype in stored:
        found = bundle.read(f"w{dtype}")
        assert found.dtype == np.float32
        assert np.array_equal(found, values), dtype


def table_of(*blocks: dict[bytes, bytes], kind: int = 0) -> bytes:
    """A table of LevelDB's in small: a block behind the other, then one of their places."""
    table, places = b"", {}
    for records in (*blocks, places):
        parts = (bytes([0, len(key), len(value), *key, *value]) for key, value in records.items())
        content = b"".join(parts) + struct.pack("<II", 0, 1)
        place = bytes([len(table), len(content)])
        places[b"~%d" % len(table)] = place
        kinded = content + bytes([kind])
        table += kinded + struct.pack("<I", masked(crc32c(kinded)))
    return table + (bytes(2) + place).ljust(40, b"\0") + MAGIC


def test_an_index_may_have_several_blocks_and_none_is_compressed() -> None:
    blocks = {b"": b"0", b"a": b"1"}, {b"b": b"2"}
    assert dict(table_records(table_of(*blocks))) == blocks[0] | blocks[1]
    with pytest.raises(ValueError, match="its blocks are compressed"):
        dict(table_records(table_of(*blocks, kind=1)))


def test_slices_of_a_variable_are_told_by_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    records = {b"": b"", b"\0w\0\x80": b"", b"w": bytes([0x08, 1, 0x3A, 2, 0x0A, 0])}
    monkeypatch.setattr("simbert_hf.conversion.bundle.table_records", lambda _: records.items())
    with pytest.raises(ValueError, match="parts"):
        TensorBundle(FIXTURE / "bert_model.ckpt").read("w")


def test_a_checkpoint_of_a_big_endian_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    records = {b"": bytes([0x10, 1])}
    monkeypatch.setattr("simbert_hf.conversion.bundle.table_records", lambda _: records.items())
    with pytest.raises(ValueError, match="was written by a big-endian machine"):
        TensorBundle(FIXTURE / "bert_model.ckpt")


@pytest.mark.parametrize("suffix", ["", ".index", ".data-00000-of-00001", ".meta"])
def test_the_checkpoint_may_be_named_by_any_of_its_files(suffix: str) -> None:
    prefix = FIXTURE / "bert_model.ckpt"
    assert find_weights(prefix.with_name(prefix.name + suffix)) == find_weights(FIXTURE) == prefix


def test_settings_and_vocabulary_may_lie_elsewhere(released: Path, tmp_path: Path) -> None:
    tokens = [*SPECIALS[1:], "A", SPECIALS[0], *VOCABULARY[5:]]
    (tmp_path / "mine.txt").write_text("\n".join(tokens), encoding="utf-8")
    settings = CONFIG | {"hidden_dropout_prob": 0.3, "initializer_range": 0.01}
    (tmp_path / "mine.json").write_text(json.dumps(settings))
    out = tmp_path / "out"
    given = [
        "--config_file",
        str(tmp_path / "mine.json"),
        "--vocab_file",
        str(tmp_path / "mine.txt"),
    ]
    main([str(released), "--output_dir", str(out), *given, "--cased", "--pooling", "mean"])
    model = SimBert.from_pretrained(out)
    config = model.config
    assert (config.hidden_dropout_prob, config.initializer_range) == (0.3, 0.01)
    assert (config.pad_token_id, config.sentence_pooling) == (4, "mean")
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert tokenizer("A a")["input_ids"] == [1, 3, tokens.index("a"), 2]
    assert (tokenizer.pad_token_id, tokenizer.model_max_length) == (4, 40)


def change_config(**values: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        config = {k: v for k, v in (CONFIG | values).items() if v is not None}
        (folder / "bert_config.json").write_text(json.dumps(config))

    return change


def cut(name: str, size: int) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


def flip(name: str, at: int) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        data[at] ^= 1
        (folder / name).write_bytes(data)

    return change


def lines(change: Callable[[list[str]], list[str]]) -> Callable[[Path], object]:
    return lambda folder: (folder / "vocab.txt").write_text(
        "\n".join(change(VOCABULARY)) + "\n", encoding="utf-8"
    )


INDEX, DATA = "bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001"
BROKEN: dict[str, tuple[Callable[[Path], object], type[Exception], str]] = {
    "index missing": (lambda d: (d / INDEX).unlink(), OSError, "There is no bert_model.ckpt.index"),
    "data missing": (lambda d: (d / DATA).unlink(), OSError, r"is missing: .* names 1 data file"),
    "config missing": (lambda d: (d / "bert_config.json").unlink(), OSError, "bert_config.json"),
    "vocab missing": (lambda d: (d / "vocab.txt").unlink(), OSError, "vocab.txt"),
    "two": (lambda d: shutil.copy(d / INDEX, d / "b.index"), ValueError, "several weight files: b"),
    "index cut": (cut(INDEX, 1000), ValueError, "not a complete index .*its end is missing"),
    "index empty": (cut(INDEX, 0), ValueError, "not a complete index"),
    "index damaged": (flip(INDEX, 700), ValueError, "the block at byte 0 is damaged"),
    "data cut": (cut(DATA, 20000), ValueError, r"00001 is truncated at bert/"),
    "data damaged": (flip(DATA, 100), ValueError, r"00001 is damaged at bert/"),
    "no json": (cut("bert_config.json", 9), ValueError, "bert_config.json cannot be read as JSON"),
    "no size": (change_config(hidden_size=None), ValueError, "no positive integer for hidden_size"),
    "activation": (change_config(hidden_act="relu"), ValueError, "'relu'; only gelu"),
    "other shape": (
        change_config(intermediate_size=32), ValueError,
        r"layer_0/intermediate/dense/kernel has the shape \(16, 24\), .* requires \(16, 32\)",
    ),
    "more layers": (change_config(num_hidden_layers=3), ValueError, "lack bert/encoder/layer_2/"),
    "fewer layers": (
        change_config(num_hidden_layers=1), ValueError, "hold bert/encoder/layer_1/.* no place"
    ),
    "more tokens": (lines(lambda v: [*v, "x"]), ValueError, "gives 60 tokens, .* embed 59; give"),
    "fewer tokens": (lines(lambda v: v[:-1]), ValueError, "gives 58 tokens, .* embed 59; give"),
    "longer form": (lines(lambda v: ["[unused1]", *v]), ValueError, "has 59: add --simplified"),
    "token twice": (lines(lambda v: [*v[:-1], "我"]), ValueError, "lines 29 and 59 are both '我'"),
    "no specials": (lines(lambda v: [*v[1:], "x"]), ValueError, r"lacks \[PAD\]"),
    "not utf-8": (
        lambda d: (d / "vocab.txt").write_bytes("我".encode("gbk")), ValueError, "is not UTF-8"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_what_does_not_fit_is_named_and_nothing_is_written(
    released: Path, tmp_path: Path, case: str
) -> None:
    breaking, error, message = BROKEN[case]
    breaking(released)
    with pytest.raises(error, match=message):
        main([str(released), "--output_dir", str(tmp_path / "out")])
    assert [path.name for path in tmp_path.iterdir()] == ["released"]


def test_what_a_kill_has_left_is_swept(tmp_path: Path) -> None:
    left, others = tmp_path / ".out-_saving", tmp_path / ".out-mine"
    for folder in (left, others):
        folder.mkdir()
    main([str(FIXTURE), "--output_dir", str(tmp_path / "out")])
    assert {path.name for path in tmp_path.iterdir()} == {"out", ".out-mine"}


def test_what_an_output_directory_holds_is_kept(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="is not an empty directory"):
        main([str(FIXTURE), "--output_dir", str(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_the_current_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for place in (".", str(tmp_path)):
        with pytest.raises(ValueError, match="is the current directory or a mount"):
            main([str(FIXTURE), "--output_dir", place])
    assert not list(tmp_path.iterdir())


def test_a_failed_save_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(made: Path, place: Path) -> None:
        assert (made / "model.safetensors").is_file()
        raise OSError("No space left on device")

    monkeypatch.setattr("simbert_hf.conversion.convert.put_in_place", fail)
    with pytest.raises(OSError, match="No space left"):
        main([str(FIXTURE), "--output_dir", str(tmp_path / "out")])
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_tensorflow_writes_what_is_read(tmp_path: Path, shards: int, dtype: str) -> None:
    tf = pytest.importorskip("tensorflow")
    weights = random_weights(CONFIG | {"hidden_size": 64, "vocab_size": 700}, seed=1)
    stored = {
        name: value.astype(tf.as_dtype(dtype).as_numpy_dtype) for name, value in weights.items()
    }
    save_checkpoint(tmp_path / "model.ckpt", stored, shards)
    assert len(list(tmp_path.glob("*.data-*"))) == shards
    bundle = TensorBundle(tmp_path / "model.ckpt")
    for name, value in stored.items():
        assert np.array_equal(bundle.read(name), value.astype(np.float32))


# --- Keras' weights, and the other architectures -----------------------------------------------


@pytest.fixture
def keras_folder(tmp_path: Path) -> Path:
    """Keras weights, ``dict.txt`` and ``bert_config.json``."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    write_keras(folder / "latest_model.weights", random_weights(CONFIG))
    (folder / "bert_config.json").write_text(json.dumps(CONFIG))
    (folder / "dict.txt").write_text("\n".join(VOCABULARY), encoding="utf-8")
    return folder


KERNEL = "bert/encoder/layer_1/output/dense/kernel"
ARCHITECTURES = {
    "bert": (CONFIG, False, "BertModel"),
    "factorised": (FACTORISED, False, "ElectraModel"),
    "rotary": (ROTARY, True, "RoFormerModel"),
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_keras_weights_become_the_same_model(keras_folder: Path, tmp_path: Path, name: str) -> None:
    config, rotary, expected = ARCHITECTURES[name]
    weights = random_weights(config, rotary, seed=2)
    write_keras(keras_folder / "latest_model.weights", weights)
    (keras_folder / "bert_config.json").write_text(json.dumps(config))
    out = tmp_path / "out"
    main([str(keras_folder), "--output_dir", str(out)])
    assert json.loads((out / "config.json").read_text())["architectures"] == [expected]
    assert type(AutoModel.from_pretrained(out)).__name__ == expected
    graph = Graph(weights, config, rotary)
    assert_same_as(graph, out)
    model = SimBert.from_pretrained(out)
    model.save_pretrained(tmp_path / "again")
    again = SimBert.from_pretrained(tmp_path / "again")
    assert all(map(torch.equal, model.state_dict().values(), again.state_dict().values()))
    described = describe_model(out)
    assert described["bert"]
    assert described["writes"]
    assert type(load_encoder(str(out))) is type(model)


@pytest.mark.parametrize("form", ["whole", "nested"])
def test_weights_inside_a_whole_or_a_nested_model_are_found(tmp_path: Path, form: str) -> None:
    weights = random_weights(CONFIG)
    write_keras(tmp_path / "model.h5", weights, **{form: True})
    found = open_weights(tmp_path / "model.h5")
    assert set(found.shapes) == set(weights)
    assert all(np.array_equal(found.read(name), value) for name, value in weights.items())


def test_a_model_trained_on_a_simplified_vocabulary(keras_folder: Path, tmp_path: Path) -> None:
    full = ["[PAD]", "[unused1]", *SPECIALS[1:], "##我", "[MASK]", *VOCABULARY[4:], "##，"]
    (keras_folder / "dict.txt").write_text("\n".join(full), encoding="utf-8")
    out = str(tmp_path / "out")
    with pytest.raises(ValueError, match=r"gives 63 tokens, .* embed 59; .* add --simplified"):
        main([str(keras_folder), "--output_dir", out])
    main([str(keras_folder), "--output_dir", out, "--simplified"])
    ids = AutoTokenizer.from_pretrained(out)(TEXTS[0])["input_ids"]
    assert ids == [VOCABULARY.index(token) for token in reference_tokens(TEXTS[0])]


def test_a_model_trained_on_the_whole_vocabulary(keras_folder: Path, tmp_path: Path) -> None:
    whole = [*VOCABULARY[:-1], "##，"]
    (keras_folder / "dict.txt").write_text("\n".join(whole), encoding="utf-8")
    flags = [str(keras_folder), "--output_dir", str(tmp_path / "out")]
    with pytest.raises(ValueError, match=r"58 tokens, .* embed 59; .* leave out --simplified"):
        main([*flags, "--simplified"])
    main(flags)


def test_weights_without_a_head_embed(
    keras_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = ("cls/", "bert/pooler")
    weights = {n: v for n, v in random_weights(CONFIG).items() if not n.startswith(parts)}
    write_keras(keras_folder / "latest_model.weights", weights)
    flags = [str(keras_folder), "--output_dir", str(tmp_path / "out")]
    with pytest.raises(ValueError, match="hold no bert/pooler/dense/kernel; choose another"):
        main(flags)
    main([*flags, "--pooling", "cls"])
    assert "embeds (there is no LM head)" in capsys.readouterr().out
    model = SimBert.from_pretrained(tmp_path / "out")
    assert not model.has_lm_head
    ids = np.array([[VOCABULARY.index(token) for token in reference_tokens(TEXTS[0])]])
    expected = Graph(weights, CONFIG).hidden_states(ids, 0 * ids)[0, 0]
    found = model.encode(TEXTS[0], normalize_embeddings=False)
    assert np.abs(found - expected).max() < 1e-5


@pytest.mark.parametrize(
    ("breaking", "message"),
    [
        (cut("latest_model.weights", 500), "latest_model.weights is not a complete HDF5 file"),
        (
            lambda d: write_keras(d / "b.h5", {}),
            "several weight files: b.h5, latest_model.weights",
        ),
        (
            lambda d: write_keras(d / "latest_model.weights", {}),
            r"hold no bert/embeddings/word_embeddings \(Keras: Embedding-Token\)",
        ),
        (
            lambda d: write_keras(
                d / "latest_model.weights",
                {n: v for n, v in random_weights(CONFIG).items() if "self/key/bias" not in n},
            ),
            "SelfAttention has 7 weights; in SimBERT it has 8",
        ),
        (
            lambda d: write_keras(
                d / "latest_model.weights",
                random_weights(CONFIG)
                | {KERNEL: np.full_like(random_weights(CONFIG)[KERNEL], np.nan)},
            ),
            f"{KERNEL} holds NaN or infinity",
        ),
    ],
)
def test_broken_keras_weights_are_named(
    keras_folder: Path, tmp_path: Path, breaking: Callable[[Path], object], message: str
) -> None:
    breaking(keras_folder)
    with pytest.raises(ValueError, match=message):
        main([str(keras_folder), "--output_dir", str(tmp_path / "out")])
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]


def test_keras_weights_name_the_extra(
    keras_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r"pip install '\.\[convert\]' in a clone"):
        main([str(keras_folder), "--output_dir", str(tmp_path / "out")])


# --- vocabularies and tokens -------------------------------------------------------------------


def test_a_released_vocabulary_goes_before_a_dictionary(tmp_path: Path) -> None:
    for name in ("dict.txt", "vocab.txt"):
        (tmp_path / name).touch()
        assert find_vocabulary(tmp_path).name == name


def test_token_ids_are_those_of_bert4keras() -> None:
    tokenizer = build_tokenizer(VOCABULARY, 40)
    rng = np.random.default_rng(0)
    alphabet = [*"abcABÉéj我你𠮷豈，。?!-_'^ \t\n\u3000\u200b²İ한か\x00\ufffd", *"simbert", *"ing"]
    texts = ["".join(rng.choice(alphabet, size=rng.integers(1, 12))) for _ in range(1000)]
    texts += ["a" * 200, "a" * 201, "我" * 300, "a [unused1] b"]
    for text in texts:
        expected = [VOCABULARY.index(token) for token in reference_tokens(text)]
        assert tokenizer(text)["input_ids"] == expected, repr(text)


def test_a_vocabulary_may_have_a_mark_and_blank_lines_at_its_ends(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes("\ufeff[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n\n\n".encode())
    assert read_vocabulary(tmp_path / "vocab.txt")[0] == "[PAD]"
    assert len(read_vocabulary(tmp_path / "vocab.txt")) == 5


def test_settings_are_an_object(tmp_path: Path) -> None:
    (tmp_path / "bert_config.json").write_text("[768]")
    with pytest.raises(ValueError, match="does not hold a JSON object"):
        read_settings(tmp_path / "bert_config.json")


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("num_attention_heads", 0, "no positive integer for num_attention_heads"),
        ("hidden_size", True, "no positive integer for hidden_size"),
        ("max_position_embeddings", None, "no positive integer for max_position"),
        ("initializer_range", "0.02", "no number for initializer_range"),
    ],
)
def test_settings_are_numbers(tmp_path: Path, name: str, value: object, fault: str) -> None:
    place, settings = tmp_path / "bert_config.json", dict.fromkeys(SIZES, 4)
    place.write_text("\ufeff" + json.dumps(settings), encoding="utf-8")
    assert read_settings(place) == settings
    place.write_text(json.dumps(settings | {name: value}))
    with pytest.raises(ValueError, match=fault):
        read_settings(place)


def test_case_may_be_kept() -> None:
    tokens = [*SPECIALS, "A", "a", "É"]
    assert build_tokenizer(tokens, 40, lower_case=False)("A a É")["input_ids"] == [2, 4, 5, 6, 3]
    assert build_tokenizer(tokens, 40)("A a É")["input_ids"] == [2, 5, 5, 1, 3]


def test_a_mask_is_one_where_the_vocabulary_has_it() -> None:
    assert build_tokenizer([*SPECIALS, "[MASK]"], 40).mask_token_id == 4
    assert build_tokenizer([*SPECIALS, "a"], 40).mask_token is None


def test_a_simplified_vocabulary_keeps_what_chinese_text_yields() -> None:
    full = ["[unused1]", *SPECIALS[::-1], "[MASK]", "我", "##我", "，", "##，", "go", "##go", "go-"]
    rare = ["𠮷", "##𠮷", "㐀", "##㐀"]  # of the planes and blocks beyond the first
    assert simplify([*full, *rare]) == [*SPECIALS, "我", "，", "go", "##go", "𠮷", "㐀"]


def test_a_link_to_another_disk_is_followed(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "model")
    save(tiny_simbert(), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "disk" / "model" / "config.json").exists()


def test_weights_that_keras_did_not_write_are_refused(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    for name, lay_out in {
        "none": lambda file: file.create_group("a").attrs.create("weight_names", ["a/b"]),
        "data": lambda file: file.create_dataset("model_weights", data=[1.0]),
        "bytes": lambda file: file.create_group("a").attrs.create("weight_names", [b"\xff/b"]),
    }.items():
        path = tmp_path / f"{name}.h5"
        with h5py.File(path, "w") as file:
            lay_out(file)
        with pytest.raises(ValueError, match=rf"{name}\.h5 is not laid out as Keras writes"):
            KerasWeights(path)


def test_the_layout_without_names_of_layers_is_told(tmp_path: Path) -> None:
    """TensorFlow 2.12 and newer write it where a name ends in .weights.h5."""
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "latest_model.weights.h5"
    with h5py.File(path, "w") as file:
        file.create_group("vars")
        file["layers/embedding/vars/0"] = np.zeros((59, 16), np.float32)
    with pytest.raises(ValueError, match=r"latest_model\.weights\.h5 has Keras' newer layout"):
        main([str(path), "--output_dir", str(tmp_path / "out")])


def test_a_damaged_table_of_keras_weights_is_told(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    path = tmp_path / "model.h5"
    write_keras(path, random_weights(CONFIG))
    path.write_bytes(path.read_bytes().replace(b"SNOD", b"SNOE"))  # groups' tables of names
    with pytest.raises(ValueError, match=r"model\.h5 is not a complete HDF5 file"):
        KerasWeights(path)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "uint16", "bool", "S4"])
def test_only_floating_point_keras_weights_are_read(tmp_path: Path, dtype: str) -> None:
    """Numbers of quantised weights, or the bits of bfloat16, would be taken for the weights."""
    pytest.importorskip("h5py")
    path, weights = tmp_path / "model.h5", random_weights(CONFIG)
    write_keras(path, weights | {KERNEL: weights[KERNEL].astype(dtype)})
    if dtype.startswith("float"):
        assert np.abs(KerasWeights(path).read(KERNEL) - weights[KERNEL]).max() < 1e-3
        return
    with pytest.raises(ValueError, match=rf"model\.h5: {KERNEL} holds .*, not floating-point"):
        KerasWeights(path)


@pytest.mark.parametrize(
    "entry",
    [
        b"\x10\x05",  # a number for the shape
        b"\x22\x01a",  # a text for the offset
        b"\x20" + b"\xff" * 9 + b"\x01",  # an offset beyond all files
    ],
)
def test_an_entry_of_another_form_is_told(entry, tmp_path, monkeypatch):
    """Not as a TypeError or OverflowError."""
    (tmp_path / "model.ckpt.index").touch()
    monkeypatch.setattr(bundle, "table_records", lambda _: [(b"", b""), (b"weight", entry)])
    with pytest.raises(ValueError, match=r"is not a complete index of a TensorFlow checkpoint"):
        bundle.TensorBundle(tmp_path / "model.ckpt")
