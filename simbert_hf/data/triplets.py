"""Triplets: an anchor, a positive and a hard negative; or what is preferred to what."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from simbert_hf.data.readers import PAIR_COLUMNS, read_headed_rows
from simbert_hf.data.records import cell_of, text_of
from simbert_hf.utils.textfiles import Row, fault, shorten

NEGATIVE_COLUMNS = ("hard_neg", "negative", "hard_negative", "rejected")
NAMES = "Name them sent0, sent1 and hard_neg; of preferences prompt, chosen and rejected"


class Triplet(NamedTuple):
    """A sentence, one that means the same, and one that does not although it looks alike.

    Of preferences: a sentence, a good paraphrase and a bad one.
    """

    anchor: str
    positive: str
    negative: str


def load_triplets(path: str | Path) -> list[Triplet]:
    r"""Read triplets from a ``.csv``, ``.tsv``, ``.txt``, ``.jsonl`` or ``.parquet`` file.

    The columns are a known pair (``sent0`` and ``sent1``, ``anchor`` and ``positive``, ...) and
    ``hard_neg``, ``negative`` or ``rejected``, in any order, beside others; tables have a header.

    Returns:
        ``(anchor, positive, negative)`` for each row; blank lines are left out.

    Raises:
        DataError: If the columns are unknown, or a sentence is missing or empty.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "nli.csv")
        ...     _ = path.write_text("sent0,sent1,hard_neg\nIt rains.,It is wet.,It is dry.\n")
        ...     load_triplets(path)
        [Triplet(anchor='It rains.', positive='It is wet.', negative='It is dry.')]
    """
    rows = list(read_headed_rows(path, lambda line, names: _columns(path, line, names)))
    if not rows:
        raise fault(path, None, "holds no triplet", "Give it a header and at least one triplet")
    columns = _columns(path, rows[0][0], list(rows[0][1]))
    return [_triplet(path, line, row, columns) for line, row in rows]


def _columns(path: str | Path, line: int, names: Sequence[str]) -> tuple[str, str, str]:
    """Find the three columns by name."""
    known = {name.strip().lower(): name for name in names}
    pair = next((pair for pair in PAIR_COLUMNS if set(pair) <= set(known)), None)
    negative = next((known[name] for name in NEGATIVE_COLUMNS if name in known), None)
    if pair is None or negative is None:
        problem = f"the columns {shorten(list(names), 120)} hold no triplets"
        raise fault(path, line, problem, NAMES)
    return known[pair[0]], known[pair[1]], negative


def _triplet(path: str | Path, line: int, row: Row, columns: tuple[str, str, str]) -> Triplet:
    texts = {name: text_of(path, line, cell_of(path, line, row, name)) for name in columns}
    empty = next((name for name, text in texts.items() if not text), None)
    if empty is not None:
        raise fault(path, line, f"{empty!r} is empty", "Fill it in, or drop the row")
    return Triplet(*texts.values())
