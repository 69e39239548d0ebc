"""The last touches that let every loader read a saved model."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import is_zipfile

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers import BertConfig, BertModel, PreTrainedTokenizerBase
from transformers.utils import logging as hf_logging

from simbert_hf import DEFAULT_MODEL
from simbert_hf.utils.atomic import write_text

if TYPE_CHECKING:
    from simbert_hf.modeling.embedding import Embedder

# What loaders read of a folder
READ = (
    "*config*.json", "*token*.json", "modules.json", "vocab.*", "*.safetensors",
    "[0-9]*_*/config.json", "[0-9]*_*/*.safetensors",
)  # fmt: skip
GRAPHS_OF = "onnx/weights.json"


def resolve_name(name_or_path: str | os.PathLike[str]) -> str:
    """Give the path of the package's own model for its folder's name alone, as indexes have it.

    Example:
        >>> Path(resolve_name("simbert-minilm-en")).is_dir(), resolve_name("org/name")
        (True, 'org/name')
    """
    own = Path(DEFAULT_MODEL)
    is_own = Path(name_or_path) == Path(own.name) and not Path(name_or_path).is_dir()
    return DEFAULT_MODEL if is_own else os.fspath(name_or_path)


def model_name(name_or_path: str | os.PathLike[str]) -> str:
    """Name a model by the last part of its directory or Hub id.

    Example:
        >>> model_name("org/model"), model_name("outputs/mine/"), model_name(".") == Path.cwd().name
        ('model', 'mine', True)
    """
    return Path(os.path.abspath(name_or_path)).name  # noqa: PTH100  resolve() follows links


def damage(file: Path) -> str:
    """Say what is wrong with a file of text, weights or torch's; nothing if it seems to be whole.

    What was cut off shows at the beginning or the end, so that large files are not read.
    """
    try:
        if file.suffix in (".json", ".md", ".txt"):
            text = file.read_text(encoding="utf-8")
            if file.suffix == ".json":
                json.loads(text)
        elif file.suffix == ".safetensors":
            with safe_open(file, "pt"):
                pass
        elif file.suffix in (".pt", ".pth", ".bin") and not is_zipfile(file):
            return "it was cut off"
    except (OSError, ValueError, SafetensorError) as error:
        return str(error)
    return ""


def finish_checkpoint(model: Embedder, path: Path, weights: Mapping[str, Tensor]) -> None:
    """Add what plain transformers does not write: loader hints, tokenizer, modules.

    Args:
        model: Was saved; may be sharded.
        path: Directory that holds its weights and config.
        weights: Its whole weights, by name.
    """
    hints = {
        "architectures": [type(model.base_model).__name__],  # serving engines know no SimBert
        "dtype": "float32",  # else weights stored as fp16 load, and run slowly, as fp16
        "is_decoder": False,
        # WeightedLayerPooling reads all layers:
        "output_hidden_states": model.config.sentence_pooling == "first_last_mean",
    }
    update_json(path / "config.json", hints)
    if model.tokenizer is not None:
        model.tokenizer.save_pretrained(path)
        with torch.random.fork_rng(devices=[]):  # modules draw weights; saving must change no run
            write_modules(model, model.tokenizer, path, weights)
    for file in (*path.glob("*.safetensors"), *path.glob("*/*.safetensors")):
        shutil.copymode(path / "config.json", file)  # safetensors shows them to their owner alone


def update_json(path: Path, values: dict[str, Any]) -> None:
    """Change fields of a JSON file; a crash leaves the old file or the new one, never a half."""
    content = json.loads(path.read_text(encoding="utf-8")) | values
    write_text(path, json.dumps(content, indent=2, sort_keys=True) + "\n")


def write_modules(
    model: Embedder,
    tokenizer: PreTrainedTokenizerBase,
    directory: Path,
    weights: Mapping[str, Tensor],
) -> None:
    """Write the sentence-transformers modules through its own API, beside the saved weights.

    The modules are saved around a one-layer stand-in, so that the weights are not written twice.
    """
    from sentence_transformers import SentenceTransformer  # slow to import, needed only here
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Normalize

    with tempfile.TemporaryDirectory(dir=directory) as scratch, quiet_transformers():
        stand_in, out = Path(scratch) / "stand_in", Path(scratch) / "out"
        config = BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1)
        BertModel(config).save_pretrained(stand_in)
        tokenizer.save_pretrained(stand_in)
        modules = [Transformer(os.fspath(stand_in)), *vector_modules(model, weights), Normalize()]
        SentenceTransformer(modules=modules, device="cpu").save(
            os.fspath(out), create_model_card=False
        )
        written = json.loads((out / "modules.json").read_text(encoding="utf-8"))
        keep = ["modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"]
        for name in keep + [module["path"] for module in written if module["path"]]:
            if (out / name).is_dir():
                shutil.rmtree(directory / name, ignore_errors=True)
            (out / name).replace(directory / name)


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Hide transformers' load reports and progress bars: what matters is judged here."""
    level, bars = hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        hf_logging.set_verbosity(level)
        if bars:
            hf_logging.enable_progress_bar()


@contextmanager
def loading(name_or_path: str | os.PathLike[str]) -> Iterator[None]:
    """Load a model quietly, and name its file if one is damaged, or its place if it has none.

    Raises:
        OSError: If a file is cut, missing or of another kind; or there is no such model.
    """
    with quiet_transformers():
        try:
            yield
        except (RuntimeError, MemoryError):  # torch's, of devices and memory
            raise
        except Exception as error:
            if Path(name_or_path).is_dir():
                if fault := fault_of_model(Path(name_or_path)):
                    raise OSError(f"{fault} Copy or download it again.") from error
                raise
            if not isinstance(error, OSError):
                raise
            raise OSError(
                f"Cannot load {str(name_or_path)!r}: it is no directory, and the Hub does not give "
                f"it ({' '.join(str(error).split()).rstrip('.')}). Check the path (this process "
                f"runs in {Path.cwd()}) or the id, the token and the network."
            ) from error


def fault_of_model(folder: Path) -> str:
    """Name the file by which a model cannot be loaded; nothing if none is known.

    Example:
        >>> fault_of_model(Path(DEFAULT_MODEL))
        ''
    """
    for file in sorted(path for read in READ for path in folder.glob(read)):
        if fault := damage(file):
            return f"{file} is cut or damaged ({fault})."
    modules = folder / "modules.json"
    named = json.loads(modules.read_text(encoding="utf-8")) if modules.exists() else []
    for module in named:
        config = folder / module["path"] / "config.json"
        if module["type"].endswith(("Transformer", "Pooling", "Dense")) and not config.exists():
            return f"{config} is missing, though {modules.name} names its folder."
    return ""


def vector_modules(model: Embedder, weights: Mapping[str, Tensor]) -> list[nn.Module]:
    """Return the modules that pool as ``model.config.sentence_pooling`` says, and then whiten."""
    from sentence_transformers.sentence_transformer.modules import Pooling, WeightedLayerPooling

    size, pooling = model.config.hidden_size, model.config.sentence_pooling
    modules: list[nn.Module] = [Pooling(size, model.pooling_mode)]
    if pooling == "first_last_mean":
        layers = model.config.num_hidden_layers
        shares = torch.zeros(layers)  # layers 1 .. last; the embedding layer is left out
        shares[0] += 1
        shares[-1] += 1
        modules.insert(0, WeightedLayerPooling(size, layers, 1, nn.Parameter(shares)))
    elif pooling in ("linear_pooler", "tanh_pooler"):
        activation = nn.Tanh() if pooling == "tanh_pooler" else nn.Identity()
        pooler: Any = model.pooler  # a SimBert's
        modules.append(dense_of(model, pooler, weights, activation))
    if model.whitening is not None:
        modules.append(dense_of(model, model.whitening, weights, nn.Identity()))
    return modules


def dense_of(
    model: nn.Module, linear: nn.Linear, weights: Mapping[str, Tensor], activation: nn.Module
) -> nn.Module:
    """Copy a linear layer to a sentence-transformers module, by its name among whole weights."""
    from sentence_transformers.base.modules import Dense

    name = next(name for name, module in model.named_modules() if module is linear)
    weight, bias = (weights[f"{name}.{part}"].float().clone() for part in ("weight", "bias"))
    return Dense(
        linear.in_features,
        linear.out_features,
        activation_function=activation,
        init_weight=weight,
        init_bias=bias,
    )


def record_graphs(folder: Path) -> None:
    """Write beside a model's ONNX graphs which weights they were made from."""
    write_text(folder / GRAPHS_OF, json.dumps(hashes_of(folder), indent=2) + "\n")


def check_graphs(folder: Path) -> None:
    """Refuse ONNX graphs that were made from other weights than those beside them.

    Graphs of other tools have no record, and a folder that only serves may hold no weights.

    Raises:
        ValueError: If the weights have changed.
    """
    record = folder / GRAPHS_OF
    found = hashes_of(folder) if record.exists() else {}
    if found and found != json.loads(record.read_text(encoding="utf-8")):
        raise ValueError(
            f"The graphs in {record.parent} were made from other weights than those in {folder}: "
            "export again with scripts/export_onnx.py, or delete them."
        )


def hashes_of(folder: Path) -> dict[str, str]:
    """SHA-256 of each file of weights."""
    found = {}
    for path in sorted(folder.glob("model*.safetensors")):
        with path.open("rb") as file:
            found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found
