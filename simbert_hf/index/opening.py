"""Load an index from its directory, and check that its model is the one that built it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from simbert_hf.encoders.text_encoder import TextEncoder
from simbert_hf.index.saving import ANEW, read_index
from simbert_hf.index.stores import VectorStore, store_from
from simbert_hf.index.table import FILE, FaqTable
from simbert_hf.utils.arrays import Vectors
from simbert_hf.utils.textfiles import fault

PROBES = 8  # questions encoded again
TOLERANCE = 1e-3  # of their cosines with the stored vectors, for half precision, other devices


def open_index(
    place: Path, model: Any, mmap: bool, batch_size: int
) -> tuple[TextEncoder, FaqTable, VectorStore, dict[str, Any]]:
    """Read a saved index, and check that the model makes its vectors; see ``FaqIndex.load``.

    Returns:
        The encoder, the rows, the vectors, and what the manifest says.

    Raises:
        DataError: If there is no complete index, or another model built it.
        OSError: If the model cannot be loaded.
    """

    def read(facts: dict[str, Any], folder: Path) -> tuple[Any, ...]:
        table = FaqTable.read(folder / FILE)
        store = store_from(facts["store"], folder, table.removed, mmap=mmap)
        return facts, table, store, _probes(table, store)

    facts, table, store, probes = read_index(place, read)
    if not len(table) == len(store) == facts["rows"]:
        problem = f"has {len(table)} rows and {len(store)} vectors where {facts['rows']} are due"
        raise fault(place, None, problem, ANEW)
    made = facts["model"]
    name = made["name"]
    if model is None and not name:
        raise fault(place, None, "was built by a model that was never saved", "Pass it as model=")
    options = {"batch_size": batch_size, "prompt": made["prompt"]}
    try:
        encoder = TextEncoder(name if model is None else model, **options)
    except OSError as error:
        if model is not None:
            raise
        remedy = "If it has moved, give its new path (--model; FaqIndex.load(path, model))"
        raise OSError(f"{place}: its model cannot be loaded: {error} {remedy}.") from error
    if why := _difference(encoder, made, probes):
        ours = encoder.name or "this"
        others = (
            f"another state of {name}" if name == ours else f"{name or 'another model'}, not {ours}"
        )
        remedy = "Pass the model that built it (--model), or rebuild it"
        raise fault(place, None, f"was built by {others}: {why}", remedy)
    return encoder, table, store, facts


def _probes(table: FaqTable, store: VectorStore) -> tuple[list[str], Vectors]:
    """Return a few questions, first to last, and their stored vectors."""
    living = table.living
    if not len(living):
        return [], np.empty((0, 0), dtype=np.float32)
    numbers = living[np.unique(np.linspace(0, len(living) - 1, PROBES, dtype=np.int64))]
    return [faq.question for faq in table.faqs(numbers)], store.vectors(numbers)


def _difference(
    encoder: TextEncoder, made: dict[str, Any], probes: tuple[list[str], Vectors]
) -> str:
    """Say how a model differs from the manifest's; an empty string if it does not.

    A few questions are encoded again: another pooling or prompt changes no weight, and weights
    rounded to another type can be checked in no other way.
    """
    same = encoder.fingerprint == made["fingerprint"]
    if not same and encoder.dtype == made["dtype"]:
        return "its weights differ"
    questions, stored = probes
    if questions:
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # told of when added
            again = encoder(questions)
        if again.shape != stored.shape or (again * stored).sum(axis=1).min() < 1 - TOLERANCE:
            return "its pooling or length differs" if same else "its vectors differ"
    return ""
