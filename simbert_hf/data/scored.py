"""Pairs with a similarity score or a label, as in the files of benchmarks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from simbert_hf.data.readers import LABEL_COLUMNS, PAIR_COLUMNS, SCORE_COLUMNS, check_names
from simbert_hf.data.records import is_positive, text_of
from simbert_hf.utils.text import counted
from simbert_hf.utils.textfiles import (
    OBJECTS,
    check_exists,
    fault,
    read_cells,
    read_objects,
    separator_of,
    shorten,
    suffix_of,
)

Cells = list[tuple[int, list[Any]]]
SNIFFED_ROWS = 50  # rows that decide which column is the score if there is no header


class ScoredPair(NamedTuple):
    """Two sentences and how similar people found them."""

    first: str
    second: str
    score: float


class LabelledPair(NamedTuple):
    """Two sentences and whether people found that they mean the same."""

    first: str
    second: str
    same: bool


class _Layout(NamedTuple):
    """The indices of the two sentences and the score, and the number of cells in a row."""

    first: int
    second: int
    score: int
    width: int


STSB = _Layout(0, 1, 2, 3)
SEMEVAL = _Layout(1, 2, 0, 3)


def load_scored_pairs(path: str | Path, columns: Sequence[str] = ()) -> list[ScoredPair]:
    r"""Read scored pairs from a table (``.csv``, ``.tsv``, ``.txt``), ``.jsonl`` or ``.parquet``.

    Text files may be ``.gz`` or ``.xz``. With a header, or in objects, the columns are a known pair
    (``sentence1`` and ``sentence2``, ``s1`` and ``s2``, ...) and ``score`` or ``label``, in any
    order and among others. Otherwise there are three, and the score is last (STS-B) or first
    (SemEval), whichever column holds more numbers. SemEval's rows without a score were never
    judged: they are left out, as its own script does.

    Args:
        path: The file.
        columns: Names of the two sentences and the score; ignored for files without a header that
            holds these three.

    Returns:
        ``(first, second, score)`` for each row; blank lines are skipped.

    Raises:
        DataError: If the columns are unknown, a sentence is empty or a score is not a number.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "sts.tsv")
        ...     _ = path.write_text("4.5\tIt is late.\tIt's late.\n")
        ...     load_scored_pairs(path)
        [ScoredPair(first='It is late.', second="It's late.", score=4.5)]
    """
    rows, layout = _find_rows(path, columns, SCORE_COLUMNS + LABEL_COLUMNS)
    if layout is SEMEVAL:  # and not a header in that order
        rows = [(line, cells) for line, cells in rows if cells[0].strip()]
    if not rows:
        raise fault(path, None, "holds no scored row", "Add at least one scored pair")
    return [
        ScoredPair(first, second, _score(path, line, cell))
        for line, first, second, cell in _cells(path, rows, layout)
    ]


def load_labelled_pairs(path: str | Path, columns: Sequence[str] = ()) -> list[LabelledPair]:
    r"""Read labelled pairs from files like those of :func:`load_scored_pairs`.

    The third column is ``label``, ``is_duplicate``, ``quality`` or ``标签`` and holds 1 or 0 in
    every row.

    Args:
        path: The file.
        columns: Names of the two sentences and the label; ignored for files without a header that
            holds these three.

    Raises:
        DataError: If the columns are unknown, a sentence is empty or a label is neither 0 nor 1.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "mrpc.tsv")
        ...     _ = path.write_text("Quality\t#1 String\t#2 String\n1\tIt is late.\tIt's late.\n")
        ...     load_labelled_pairs(path)
        [LabelledPair(first='It is late.', second="It's late.", same=True)]
    """
    rows, layout = _find_rows(path, columns, LABEL_COLUMNS)
    if not rows:
        raise fault(path, None, "holds no labelled row", "Add at least one labelled pair")
    return [
        LabelledPair(first, second, is_positive(path, line, "label", cell))
        for line, first, second, cell in _cells(path, rows, layout)
    ]


def check_columns(columns: Sequence[str], paths: Iterable[str | Path]) -> None:
    """Raise a ValueError if no header holds the three columns; loading refuses other numbers."""
    wanted = {name.strip().lower() for name in columns}
    headers = (_rows(path)[:1] for path in paths)
    named = ({cell.strip().lower() for _, cells in header for cell in cells} for header in headers)
    if len(columns) == 3 and not any(map(wanted.issubset, named)):
        raise ValueError(f"--columns {' '.join(columns)}: no file has a header that holds these.")


def check_labels(path: str | Path, pairs: Sequence[LabelledPair]) -> None:
    """Raise a DataError unless there are pairs of both labels."""
    if len({pair.same for pair in pairs}) < 2:
        problem = f"labels every row {pairs[0].same:d}"
        raise fault(path, None, problem, "Add pairs with the other label")


def check_scores(path: str | Path, pairs: Sequence[ScoredPair]) -> None:
    """Raise a DataError unless there are two different scores, without which none correlates."""
    if len(pairs) < 2:
        raise fault(path, None, "holds one scored pair", "A correlation needs at least two pairs")
    if len({pair.score for pair in pairs}) < 2:
        problem = f"scores all {len(pairs)} pairs {pairs[0].score:g}, so nothing can correlate"
        raise fault(path, None, problem, "Add pairs with other scores")


def _find_rows(
    path: str | Path, columns: Sequence[str], third: Sequence[str]
) -> tuple[Cells, _Layout]:
    """Return the rows without the header, if there is one, and their layout."""
    if columns and len(columns) != 3:
        raise ValueError(f"columns is {columns!r}; name three: both sentences, score or label.")
    rows = _rows(path)
    if not rows:
        raise fault(path, None, "is empty", "Add at least one scored pair")
    names = [cell.strip().lower() for cell in rows[0][1]]
    headed = _headed(names, columns, third)
    if headed is None:
        return rows, _headless(path, rows, third[0])
    check_names(path, names)
    return rows[1:], headed


def _rows(path: str | Path) -> Cells:
    """Read the rows that are not blank, including a header."""
    check_exists(path)
    rows = _objects(path) if suffix_of(path) in OBJECTS else read_cells(path)
    return [(line, cells) for line, cells in rows if cells]


def _objects(path: str | Path) -> Cells:
    """Read a file of objects as a table with the names in the first one as its header."""
    objects = [(line, row) for line, row in read_objects(path) if row]
    names = list(objects[0][1]) if objects else []
    cells = [(line, [row.get(name) for name in names]) for line, row in objects]
    return [(1, names), *cells]


def _headed(names: list[str], columns: Sequence[str], third: Sequence[str]) -> _Layout | None:
    """Find the columns by name; return None if the first line is not a header."""
    at = {name: i for i, name in enumerate(names)}
    given = [name.strip().lower() for name in columns]
    if given and set(given) <= set(at):
        return _Layout(at[given[0]], at[given[1]], at[given[2]], len(names))
    pair = next((pair for pair in PAIR_COLUMNS if set(pair) <= set(at)), None)
    score = next((name for name in third if name in at), None)
    if pair is None or score is None:
        return None
    return _Layout(at[pair[0]], at[pair[1]], at[score], len(names))


def _headless(path: str | Path, rows: Cells, third: str) -> _Layout:
    line, cells = rows[0]
    head = [cells for _, cells in rows[:SNIFFED_ROWS]]
    first = sum(_number(cells[0]) is not None for cells in head)
    last = sum(_number(cells[-1]) is not None for cells in head)
    layout = STSB if last >= first else SEMEVAL
    score = cells[layout.score].strip() if len(cells) == 3 else ""
    named = len(head) > 1 and score and _number(score) is None  # by a header of unknown names
    if len(cells) != 3 or not (first or last) or named:
        problem = f"holds {shorten(cells)}, neither a known header nor a scored pair"
        remedy = (
            f"Write s1, s2, {third} in each row, or name them so in a header (in evaluations, "
            "--columns takes other names)"
        )
        raise fault(path, line, problem, separator_of(cells, remedy))
    return layout


def _cells(path: str | Path, rows: Cells, layout: _Layout) -> Iterator[tuple[int, str, str, Any]]:
    """Yield each row's line, sentences and third cell."""
    for line, cells in rows:
        if len(cells) != layout.width:
            problem = (
                f"has {counted(len(cells), 'cell')} instead of {layout.width}: {shorten(cells)}"
            )
            remedy = "Put quotes around commas in a .csv, and keep tabs out of sentences"
            raise fault(path, line, problem, separator_of(cells, remedy))
        first, second = (text_of(path, line, cells[at]) for at in (layout.first, layout.second))
        if not (first and second):
            raise fault(path, line, "a sentence is empty", "Fill it in, or drop the row")
        yield line, first, second, cells[layout.score]


def _score(path: str | Path, line: int, cell: object) -> float:
    score = _number(cell)
    if score is None:
        problem = f"the score {shorten(cell)} is not a number"
        raise fault(path, line, problem, "Write a number such as 3.5, or drop the row")
    return score


def _number(cell: object) -> float | None:
    """Return a finite number, or None."""
    try:
        value = float(str(cell))
    except ValueError:
        return None
    return value if math.isfinite(value) else None
