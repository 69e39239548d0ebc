"""Check that a model's ONNX graphs were exported from its weights."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from simbert_hf.utils.atomic import write_json

GRAPHS_OF = "onnx/weights.json"


def record_graphs(folder: Path) -> None:
    """Record next to a model's ONNX graphs which weights they were exported from."""
    write_json(folder / GRAPHS_OF, hashes_of(folder))


def check_graphs(folder: Path) -> None:
    """Refuse ONNX graphs that were exported from other weights than the folder's.

    Graphs of other tools have no record, and a folder for serving may hold no weights; both pass.

    Raises:
        ValueError: If the weights have changed.
    """
    record = folder / GRAPHS_OF
    found = hashes_of(folder) if record.exists() else {}
    recorded = json.loads(record.read_text(encoding="utf-8")) if found else {}
    if found.items() - recorded.items():
        raise ValueError(
            f"The graphs in {record.parent} were exported from other weights than those in "
            f"{folder}: export them again with scripts/export_onnx.py, or delete them."
        )


def hashes_of(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each weights file, including sentence-transformers modules."""
    found = {}
    for path in sorted(
        [*folder.glob("model*.safetensors"), *folder.glob("[0-9]*_*/model.safetensors")]
    ):
        with path.open("rb") as file:
            name = path.relative_to(folder).as_posix()
            found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found
