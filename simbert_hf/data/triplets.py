"""Triplets (anchor, positive, hard negative; or preferences), and one-way pairs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from simbert_hf.data.readers import NEGATIVE_COLUMNS, PAIR_COLUMNS, read_headed_rows
from simbert_hf.data.records import cell_of, text_of
from simbert_hf.utils.textfiles import Row, fault, shorten

NAMES = "Name them sent0, sent1 and hard_neg; for preferences, prompt, chosen and rejected"
PAIR_NAMES = "Name them source and target"


class Triplet(NamedTuple):
    """A sentence, one that means the same, and a similar one that does not.

    For preferences: a sentence, a good paraphrase and a bad one.
    """

    anchor: str
    positive: str
    negative: str


def load_triplets(path: str | Path) -> list[Triplet]:
    r"""Read triplets from a ``.csv``, ``.tsv``, ``.txt``, ``.jsonl`` or ``.parquet`` file.

    The columns are a known pair (``sent0`` and ``sent1``, ``anchor`` and ``positive``, ...) and
    ``hard_neg``, ``negative`` or ``rejected``, in any order, among others; tables have a header.

    Returns:
        ``(anchor, positive, negative)`` for each row; blank lines are skipped.

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
    return [Triplet(*texts) for texts in _read(path, "triplet", NAMES, NEGATIVE_COLUMNS)]


def load_one_way_pairs(path: str | Path) -> list[tuple[str, str]]:
    """Read pairs whose direction matters, from files like those of :func:`load_triplets`.

    Returns:
        ``(source, target)`` for each row, from a known pair of columns; others are ignored.

    Raises:
        DataError: If the columns are unknown, or a sentence is missing or empty.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "written.jsonl")
        ...     _ = path.write_text('{"source": "i wants tea", "target": "I want some tea."}')
        ...     load_one_way_pairs(path)
        [('i wants tea', 'I want some tea.')]
    """
    return [(source, target) for source, target in _read(path, "pair", PAIR_NAMES)]


def _read(path: str | Path, what: str, advice: str, thirds: Sequence[str] = ()) -> list[list[str]]:
    """Read a known pair of columns, and one of ``thirds`` if any are given: each row's texts."""

    def columns_of(line: int, names: Sequence[str]) -> list[str]:
        known = {name.strip().lower(): name for name in names}
        pair = next((pair for pair in PAIR_COLUMNS if set(pair) <= set(known)), None)
        third = [known[name] for name in thirds if name in known][:1]
        if pair is None or len(third) < bool(thirds):
            problem = f"the columns {shorten(list(names), 120)} hold no {what}s"
            raise fault(path, line, problem, advice)
        return [known[name] for name in pair] + third

    rows = list(read_headed_rows(path, columns_of))
    if not rows:
        raise fault(path, None, f"holds no {what}", f"Write a header and at least one {what}")
    columns = columns_of(rows[0][0], list(rows[0][1]))
    return [_texts(path, line, row, columns) for line, row in rows]


def _texts(path: str | Path, line: int, row: Row, columns: Sequence[str]) -> list[str]:
    texts = {name: text_of(path, line, cell_of(path, line, row, name)) for name in columns}
    empty = next((name for name, text in texts.items() if not text), None)
    if empty is not None:
        raise fault(path, line, f"{empty!r} is empty", "Fill it in, or drop the row")
    return list(texts.values())
