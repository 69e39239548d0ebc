"""Any encoder by its name: what is none, and what has no tokenizer, is refused."""

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file
from transformers.utils import logging as hf_logging

from simbert_hf import DEFAULT_MODEL, SentenceEncoder, SimBert
from simbert_hf.encoders.loader import load_sentence_transformer
from simbert_hf.judging.judge import word_embeddings
from simbert_hf.modeling import loading
from simbert_hf.modeling.checkpoint import update_json
from simbert_hf.onnx_export import OnnxSimBert
from tests.tiny import tiny_simbert


def test_a_checkpoint_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    """transformers makes one up, by which every text has one vector."""
    tiny_simbert().save_pretrained(tmp_path)
    assert load_sentence_transformer(str(tmp_path)).get_embedding_dimension() == 32
    for path in tmp_path.glob("*token*"):
        path.unlink()
    with pytest.raises(ValueError, match=r"has no tokenizer that fits its weights .*; copy the"):
        load_sentence_transformer(str(tmp_path))


@pytest.mark.parametrize(
    "load",
    [
        load_sentence_transformer, SimBert.from_pretrained, SentenceEncoder.from_pretrained,
        OnnxSimBert, word_embeddings,
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["outputs/mien", "mien", "nowhere/at/all"])
def test_a_mistyped_path_is_named(load: Callable[[str], object], name: str) -> None:
    with pytest.raises(
        OSError, match=f"Cannot load '{name}': it is not a directory.*Check the path"
    ):
        load(name)


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another package's model in the Hub's cache, as ``org/name``; the Hub is out of reach."""
    place = tmp_path / "models--org--name"
    snapshot = place / "snapshots" / COMMIT
    tiny_simbert().save_pretrained(snapshot)
    config = json.loads((snapshot / "config.json").read_text())
    (snapshot / "config.json").write_text(
        json.dumps({name: value for name, value in config.items() if name != "sentence_pooling"})
    )
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(COMMIT)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return snapshot


def test_half_a_cached_model_is_told(cached: Path, caplog: pytest.LogCaptureFixture) -> None:
    told = "org/name: its modules.json, which says how its vectors are made, is neither in the"
    load_sentence_transformer("org/name")
    assert told not in caplog.text
    (cached / "modules.json").unlink()
    load_sentence_transformer("org/name")
    assert told in caplog.text
    caplog.clear()
    absent = cached.parents[1] / ".no_exist" / COMMIT / "modules.json"  # as the Hub said once
    absent.parent.mkdir(parents=True)
    absent.touch()
    load_sentence_transformer("org/name")
    assert told not in caplog.text


def test_a_cache_of_sentence_transformers_counts(
    cached: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SENTENCE_TRANSFORMERS_HOME", constants.HF_HUB_CACHE)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cached))
    load_sentence_transformer("org/name")
    assert "is neither in the cache" not in caplog.text


@pytest.mark.parametrize("load", [load_sentence_transformer, SimBert.from_pretrained])
def test_damage_in_the_cache_is_told(cached: Path, load: Callable[[str], object]) -> None:
    os.truncate(cached / "model.safetensors", 1000)
    with pytest.raises(OSError, match=r"^org/name cannot be loaded: .*Safetensor.*`hf cache rm`"):
        load("org/name")


def test_the_hub_s_reason_is_told(cached: Path) -> None:
    with pytest.raises(OSError, match=r"does not provide it \(We couldn't connect to"):
        SimBert.from_pretrained("org/name", revision="v9")


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"holds neither a config.json nor a modules.json. Check the"):
        load_sentence_transformer(str(tmp_path))


@pytest.mark.parametrize("load", [load_sentence_transformer, SimBert.from_pretrained])
def test_the_package_s_model_has_a_short_name(
    load: Callable[[str], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = Path(DEFAULT_MODEL).name
    tiny_simbert().save_pretrained(tmp_path / name)
    monkeypatch.setitem(loading.SHIPPED, name, str(tmp_path / name))
    assert load(name).encode("a cat").shape == (32,)


@pytest.mark.parametrize("batch_size", [0, -2, 1.5, True])
def test_batches_of_none_are_refused(batch_size: int) -> None:
    with pytest.raises(ValueError, match=f"batch_size={batch_size} is out of range"):
        tiny_simbert().encode(["a cat"], batch_size=batch_size)


@pytest.mark.parametrize("lost", ["modules.json", "tokenizer_config.json", "1_Pooling/config.json"])
@pytest.mark.parametrize("load", [load_sentence_transformer, SimBert.from_pretrained])
def test_a_damaged_file_is_named(load: Callable[[str], object], lost: str, tmp_path: Path) -> None:
    tiny_simbert().save_pretrained(tmp_path)
    whole = (tmp_path / lost).read_text()
    (tmp_path / lost).write_text(whole[: len(whole) // 2])
    with pytest.raises(
        OSError, match=f"{lost} is truncated or damaged .* Copy or download it again"
    ):
        load(str(tmp_path))


def test_a_missing_module_is_named(tmp_path: Path) -> None:
    tiny_simbert("linear_pooler").save_pretrained(tmp_path)
    shutil.rmtree(tmp_path / "2_Dense")
    with pytest.raises(OSError, match=r"2_Dense.config\.json is missing, though modules\.json"):
        load_sentence_transformer(str(tmp_path))


def test_vectors_are_not_made_otherwise_where_modules_are_missing(tmp_path: Path) -> None:
    for pooling in ("cls", "mean"):
        model = tiny_simbert(pooling)
        model.save_pretrained(tmp_path / pooling)
        (tmp_path / pooling / "modules.json").unlink()
    with pytest.raises(
        OSError, match=r"cls lacks modules\.json .* \(its config\.json says 'cls'\)"
    ):
        load_sentence_transformer(str(tmp_path / "cls"))
    found = load_sentence_transformer(str(tmp_path / "mean"))  # sentence-transformers' own default
    assert found.encode("a cat", normalize_embeddings=True) == pytest.approx(
        model.encode("a cat"), abs=1e-5
    )


def test_errors_that_no_file_is_to_blame_for_are_told_as_they_are(tmp_path: Path) -> None:
    tiny_simbert().save_pretrained(tmp_path)
    (tmp_path / "notes.txt").write_bytes("\u4f60".encode("gbk"))
    no_device = AssertionError("Torch not compiled with CUDA enabled")
    full = torch.OutOfMemoryError("full"), MemoryError("full")
    for error in (*full, no_device, ValueError("wrong")):
        with pytest.raises(type(error), match=str(error)), loading.loading(tmp_path):
            raise error
    (tmp_path / "tokenizer.json").write_text("{")
    for error in full:
        with pytest.raises(type(error), match="full"), loading.loading(tmp_path):
            raise error


@pytest.mark.parametrize("bars", [True, False])
def test_loading_leaves_transformers_as_loud_as_it_was(
    bars: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hf_logging, "_tqdm_active", bars)
    level = hf_logging.get_verbosity()
    with suppress(KeyError), loading.quiet_transformers():
        assert hf_logging.get_verbosity() == hf_logging.ERROR != level
        assert not hf_logging.is_progress_bar_enabled()
        raise KeyError
    assert (hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()) == (level, bars)


CODE = """
from pathlib import Path
from transformers import BertConfig, BertModel

Path({marker!r}).touch()


class OtherConfig(BertConfig):
    model_type = "other"


class OtherModel(BertModel):
    config_class = OtherConfig
"""


@pytest.mark.parametrize(
    "load", [load_sentence_transformer, SentenceEncoder.from_pretrained, word_embeddings]
)
def test_code_that_comes_with_a_checkpoint_is_not_run(
    load: Callable[[str], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers would ask on the terminal, and take a "y" of any text piped in as consent."""
    model, marker = tmp_path / "model", tmp_path / "was_run"
    tiny_simbert().save_pretrained(model)
    (model / "other.py").write_text(CODE.format(marker=str(marker)))
    own = {"AutoConfig": "other.OtherConfig", "AutoModel": "other.OtherModel"}
    update_json(model / "config.json", {"model_type": "other", "auto_map": own})
    monkeypatch.setattr("builtins.input", lambda _: "y")
    with pytest.raises(ValueError, match=r"model needs code that comes with it, which is not run"):
        load(str(model))
    assert not marker.exists()


def test_remote_code_cannot_be_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"trust_remote_code= is not supported: code that comes"):
        SentenceEncoder.from_pretrained(tmp_path, trust_remote_code=True)


LOADERS = [load_sentence_transformer, SimBert.from_pretrained]
FORMS = [
    ("modules.json", {"a": 1}, r"modules\.json holds (no JSON array|\{'a': 1\}, which is not)"),
    ("modules.json", [{"path": 5, "type": "Pooling"}], r"modules\.json holds .* is not a module"),
    (
        "modules.json",
        [{"path": "../a", "type": "Pooling"}],
        r"the folder '\.\./a', outside the mod",
    ),
    ("config.json", [1], r"config\.json does not hold the JSON object|Unrecognized model in"),
    ("config.json", None, r"config\.json does not hold|cannot be loaded: one of its files"),
    ("1_Pooling/config.json", [1], r"config\.json holds no JSON object|cannot be loaded: one of"),
    ("sentence_bert_config.json", {"max_seq_length": "a"}, r"sets max_seq_length to 'a', not to"),
    (
        "tokenizer_config.json",
        [],
        r"cannot be loaded: one of its files, or an argument, is not what",
    ),
]


@pytest.mark.parametrize("load", LOADERS)
@pytest.mark.parametrize(("file", "content", "message"), FORMS)
def test_json_of_another_form_is_told(
    load: Callable[[str], object], file: str, content: object, message: str, tmp_path: Path
) -> None:
    """Not as a TypeError, KeyError or AttributeError, with a traceback."""
    tiny_simbert().save_pretrained(tmp_path)
    (tmp_path / file).write_text(json.dumps(content))
    with pytest.raises((OSError, ValueError), match=message):
        load(str(tmp_path))


@pytest.mark.parametrize("load", LOADERS)
@pytest.mark.parametrize("file", ["modules.json", "config.json", "tokenizer.json"])
def test_brackets_without_end_are_told(
    load: Callable[[str], object], file: str, tmp_path: Path
) -> None:
    tiny_simbert().save_pretrained(tmp_path)
    (tmp_path / file).write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(OSError, match=rf"{file}.* Copy or download it again"):
        load(str(tmp_path))


@pytest.mark.parametrize("load", [*LOADERS, SentenceEncoder.from_pretrained, word_embeddings])
def test_weights_of_another_shape_are_told(load: Callable[[str], object], tmp_path: Path) -> None:
    """transformers' error is a RuntimeError that refers to a report, which is not shown here."""
    tiny_simbert().save_pretrained(tmp_path)
    update_json(tmp_path / "config.json", {"vocab_size": 99})
    with pytest.raises(ValueError, match=r"does not hold the weights its config\.json describes: "):
        load(str(tmp_path))


@pytest.mark.parametrize("load", [*LOADERS, SentenceEncoder.from_pretrained])
def test_weights_that_are_not_there_are_told(load: Callable[[str], object], tmp_path: Path) -> None:
    """transformers draws them at random, and each time others."""
    tiny_simbert().save_pretrained(tmp_path)
    update_json(tmp_path / "config.json", {"num_hidden_layers": 9})
    with pytest.raises(ValueError, match=r"describes; missing or mismatched: .*encoder\.layer"):
        load(str(tmp_path))


class Hostile:
    """A pickle of it writes a file when it is loaded."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.marker,)


@pytest.mark.parametrize("load", LOADERS)
def test_a_pickle_of_more_than_weights_is_refused(
    load: Callable[[str], object], tmp_path: Path
) -> None:
    """torch's own error advises to load it with ``weights_only=False``."""
    tiny_simbert().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save({"a": Hostile(tmp_path / "was_run")}, tmp_path / "pytorch_model.bin")
    with pytest.raises(
        OSError, match=r"has a pickle \(\.bin\) with more than weights in it, which"
    ):
        load(str(tmp_path))
    assert not (tmp_path / "was_run").exists()


@pytest.mark.parametrize("load", LOADERS)
@pytest.mark.parametrize("content", [b"", b"version https://git-lfs.github.com/spec/v1\n", None])
def test_a_damaged_pickle_is_no_hostile_one(
    load: Callable[[str], object], content: bytes | None, tmp_path: Path
) -> None:
    """Such as git's note of a file that was not downloaded, or half a file."""
    tiny_simbert().save_pretrained(tmp_path)
    weights, file = load_file(tmp_path / "model.safetensors"), tmp_path / "pytorch_model.bin"
    (tmp_path / "model.safetensors").unlink()
    torch.save(weights, file, _use_new_zipfile_serialization=False)  # as old versions did
    load(str(tmp_path))
    torch.save(weights, file)
    load(str(tmp_path))
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] if content is None else content)
    with pytest.raises(
        OSError, match=r"pytorch_model\.bin is truncated or damaged .* Copy or down"
    ):
        load(str(tmp_path))


def test_a_module_of_another_shape_is_told(tmp_path: Path) -> None:
    tiny_simbert("tanh_pooler").save_pretrained(tmp_path)
    update_json(tmp_path / "2_Dense" / "config.json", {"out_features": 9})
    with pytest.raises(ValueError, match=r"does not hold the weights its config\.json describes: "):
        load_sentence_transformer(str(tmp_path))
