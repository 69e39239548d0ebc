"""Load a model by name: quietly, and with errors that name the damaged file."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any
from zipfile import is_zipfile

from safetensors import SafetensorError, safe_open
from transformers.utils import logging as hf_logging

from simbert_hf import CHINESE_MODEL, DEFAULT_MODEL

# What loaders read of a folder
READ = (
    "*config*.json", "*token*.json", "modules.json", "vocab.*", "*.safetensors",
    "pytorch_model*.bin", "[0-9]*_*/config.json", "[0-9]*_*/*.safetensors",
)  # fmt: skip
PICKLE = b"\x80\x02"  # how torch's files began before they were zip archives
ATTENTION = "does not support (an attention implementation|Flash Attention)"
MISSHAPEN = "ignore_mismatched_sizes|loading state_dict"  # transformers' and torch's words
SHIPPED = {Path(path).name: path for path in (DEFAULT_MODEL, CHINESE_MODEL)}
MISSING = re.compile(r"^(.+?) *\| *\S*MISSING", re.MULTILINE)  # a row of transformers' load report


def resolve_name(name_or_path: str | os.PathLike[str]) -> str:
    """Return the path of one of the package's own models for its bare name, which indexes store.

    Example:
        >>> Path(resolve_name("simbert-minilm-en")).is_dir(), resolve_name("org/name")
        (True, 'org/name')
    """
    own = None if Path(name_or_path).is_dir() else SHIPPED.get(os.fspath(Path(name_or_path)))
    return own or os.fspath(name_or_path)


def model_name(name_or_path: str | os.PathLike[str]) -> str:
    """Name a model by the last part of its directory or Hub id.

    Example:
        >>> model_name("org/model"), model_name("outputs/mine/"), model_name(".") == Path.cwd().name
        ('model', 'mine', True)
    """
    return Path(os.path.abspath(name_or_path)).name  # noqa: PTH100  resolve() follows links


def damage(file: Path) -> str:
    """Say what is wrong with a text, weights or torch file; empty if it seems complete.

    Truncation shows at the beginning or the end, so large files are not read in full.
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
            with file.open("rb") as raw:
                return "" if raw.read(len(PICKLE)) == PICKLE else "it is truncated"
    except (OSError, ValueError, SafetensorError, RecursionError) as error:
        return str(error)
    return ""


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Hide transformers' load reports and progress bars: what matters is checked here."""
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
    """Load a model quietly; errors name the damaged file, or the place without a model.

    Raises:
        OSError: If a file is truncated, missing or of another kind, or there is no such model.
        ValueError: If the model needs code that comes with it, or its weights have other shapes
            than its config says.
    """
    with quiet_transformers():
        try:
            yield
        except (ImportError, MemoryError):
            raise
        except Exception as error:
            if told := told_plainly(name_or_path, error):
                raise told from error
            raise


@contextmanager
def complete(name_or_path: str | os.PathLike[str], *dispensable: str) -> Iterator[None]:
    """Raise a ValueError if transformers lacks weights of the model loaded in the block.

    It draws them at random and only says so in a report. That is all which other libraries that
    load with it leave to tell: the report is read, and not shown.

    Args:
        name_or_path: The model, for the message.
        *dispensable: Parts of the names of weights that may be missing.
    """
    missing: list[str] = []

    def note(record: logging.LogRecord) -> bool:
        missing.extend(MISSING.findall(record.getMessage()))
        return record.levelno >= logging.ERROR

    logger = logging.getLogger("transformers.modeling_utils")
    level = logger.level
    logger.setLevel(logging.WARNING)
    logger.addFilter(note)
    try:
        yield
    finally:
        logger.removeFilter(note)
        logger.setLevel(level)
    if broken := [name for name in missing if not any(part in name for part in dispensable)]:
        raise lacking(name_or_path, broken)


def lacking(name_or_path: str | os.PathLike[str], names: Sequence[str]) -> ValueError:
    """Make the error for a model without some of its weights."""
    return ValueError(
        f"{name_or_path} does not hold the weights its config.json describes; missing or "
        f"mismatched: {', '.join(names)[:200]}."
    )


def told_plainly(name_or_path: str | os.PathLike[str], error: Exception) -> Exception | None:
    """Say what is wrong with a model that a loader could not load; None if its error does so."""
    folder, words = Path(name_or_path), " ".join(str(error).split())
    if isinstance(error, ValueError) and "trust_remote_code" in words:
        return ValueError(
            f"{name_or_path} needs code that comes with it, which is not run here, as it may do "
            "anything. Choose another model; or, if you trust it, load it in Python with "
            "SentenceTransformer(..., trust_remote_code=True) and pass that."
        )
    if isinstance(error, ValueError) and re.search(ATTENTION, words):
        return ValueError(
            f"{name_or_path} cannot be loaded with this attn_implementation: the model's attention "
            "masks, or its layers, do not support it. Leave it out, or pass 'eager'."
        )
    if isinstance(error, RuntimeError) and re.search(MISSHAPEN, words):
        return ValueError(
            f"{name_or_path} does not hold the weights its config.json describes: some have other "
            "shapes. Copy both from the same model."
        )
    if isinstance(error, RuntimeError | AssertionError) and not isinstance(error, RecursionError):
        return None  # torch's, of devices and memory
    if folder.is_dir() and (fault := fault_of_model(folder)):
        return OSError(f"{fault} Copy or download it again.")
    if isinstance(error, UnpicklingError):
        return OSError(
            f"{name_or_path} has a pickle (.bin) with more than weights in it, which is not "
            "loaded, as it could run code. Choose a model whose weights are in safetensors."
        )
    if isinstance(error, OSError) and not folder.is_dir():
        return OSError(
            f"Cannot load {str(name_or_path)!r}: it is not a directory, and the Hub does not "
            f"provide it ({words.rstrip('.')}). Check the path (this process runs in "
            f"{Path.cwd()}) or the id, token and network."
        )
    if isinstance(error, ValueError | OSError) or "unexpected keyword" in words:
        return None
    again = "Copy or download it again"
    if not folder.is_dir():
        again = "Delete it from the Hub's cache (`hf cache rm`), so that it is downloaded again"
    return OSError(
        f"{name_or_path} cannot be loaded: one of its files, or an argument, is not what it must "
        f"be ({type(error).__name__}: {words[:120]}). {again}."
    )


def fault_of_model(folder: Path) -> str:
    """Name the file that keeps a model from loading; empty if none is known.

    Example:
        >>> fault_of_model(Path(DEFAULT_MODEL))
        ''
    """
    for file in sorted(path for read in READ for path in folder.glob(read)):
        if fault := damage(file):
            return f"{file} is truncated or damaged ({fault})."
    modules = folder / "modules.json"
    named = json.loads(modules.read_text(encoding="utf-8")) if modules.exists() else []
    if fault := fault_of_modules(named):
        return f"{modules} {fault}."
    for module in named:
        config = folder / module["path"] / "config.json"
        if module["type"].endswith(("Transformer", "Pooling", "Dense")) and not config.exists():
            return f"{config} is missing, though {modules.name} names its folder."
    return ""


def fault_of_modules(named: Any) -> str:
    """Say why a modules.json does not list modules in a model's folder; empty if it does.

    Example:
        >>> fault_of_modules(
        ...     [{"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]
        ... )
        ''
        >>> fault_of_modules([{"path": "../other", "type": "sentence_transformers.models.Pooling"}])
        "names the folder '../other', outside the model's"
    """
    for module in named if isinstance(named, list) else [named]:
        parts = [module.get(key) if isinstance(module, dict) else None for key in ("path", "type")]
        if not all(isinstance(part, str) for part in parts):
            return f"holds {module!r:.60}, which is not a module"
        path = Path(str(parts[0]))
        if path.is_absolute() or ".." in path.parts:
            return f"names the folder {parts[0]!r:.60}, outside the model's"
    return ""
