"""ONNX graphs beside a model, and whether they are of its weights."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from simbert_hf.utils.atomic import write_json

GRAPHS_OF = "onnx/weights.json"


def record_graphs(folder: Path) -> None:
    """Write beside a model's ONNX graphs which weights they were made from."""
    write_json(folder / GRAPHS_OF, hashes_of(folder))


def check_graphs(folder: Path) -> None:
    """Refuse ONNX graphs that were made from other weights than those beside them.

    Graphs of other tools have no record, and a folder that only serves may hold no weights.

    Raises:
        ValueError: If the weights have changed.
    """
    record = folder / GRAPHS_OF
    found = hashes_of(folder) if record.exists() else {}
    recorded = json.loads(record.read_text(encoding="utf-8")) if found else {}
    known = {name: digest for name, digest in found.items() if name in recorded or "/" not in name}
    if known.items() - recorded.items():  # older records lack the modules
        raise ValueError(
            f"The graphs in {record.parent} were made from other weights than those in {folder}: "
            "export again with scripts/export_onnx.py, or delete them."
        )


def hashes_of(folder: Path) -> dict[str, str]:
    """SHA-256 of each file of weights, those of sentence-transformers' modules among them."""
    found = {}
    for path in sorted(
        [*folder.glob("model*.safetensors"), *folder.glob("[0-9]*_*/model.safetensors")]
    ):
        with path.open("rb") as file:
            name = path.relative_to(folder).as_posix()
            found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found
