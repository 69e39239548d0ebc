"""Files of any supported shape -> rows, and the meaning of their columns.

The columns tell these shapes apart:

- ``{"text": ..., "synonyms": [...]}``: JSON lines, Parquet or a Hub data set.
- Pairs: one of :data:`PAIR_COLUMNS`, or two columns named by the caller. If there is also one
  of :data:`LABEL_COLUMNS`, rows with label 0 are not pairs: they are counted and left out.
- ``group id TAB sentence``: a ``.tsv`` or ``.txt`` file without a header; or two of
  :data:`GROUP_COLUMNS`, such as text and label: sentences with the same label mean the same.

A ``.csv`` file always has a header. A ``.tsv`` or ``.txt`` file has one if its first line holds
known or given columns. Without a header, three columns are labelled pairs if the third is 0 or 1,
and two columns are groups if the first 1,000 values of the first are whole numbers. They are pairs
if these values all differ, or if more than half of them do and some repeat in rows that are not
neighbours, unless the second column repeats as labels do. Anything else must be named by
``data_format``, and by ``text_columns`` if there is a header.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Literal, get_args

from simbert_hf.utils.checks import check_choice
from simbert_hf.utils.text import counted
from simbert_hf.utils.textfiles import (
    OBJECTS,
    TABLES,
    DataError,
    Row,
    check_exists,
    fault,
    read_cells,
    read_objects,
    separator_of,
    shorten,
    suffix_of,
)

DataFormat = Literal["auto", "synonyms", "pairs", "groups"]
Numbered = Iterator[tuple[int, Row]]

PAIR_COLUMNS = (
    ("sentence1", "sentence2"),
    ("text_a", "text_b"),
    ("anchor", "positive"),
    ("s1", "s2"),
    ("question1", "question2"),
    ("sent0", "sent1"),
    ("text1", "text2"),
    ("source", "target"),
    ("query", "title"),  # Chinese retrieval sets
    ("#1 string", "#2 string"),  # MRPC
    ("sentence_a", "sentence_b"),  # SICK
    ("prompt", "chosen"),  # preferences, with "rejected"
    ("标准问", "相似问"),  # of Chinese FAQs
    ("句子1", "句子2"),
)
GROUP_COLUMNS = (
    ("group", "sentence"),
    ("group", "text"),
    ("category", "text"),
    ("intent", "text"),
    ("label", "text"),
)
KNOWN: dict[DataFormat, tuple[tuple[str, str], ...]] = {
    "synonyms": (("text", "synonyms"),),
    "pairs": PAIR_COLUMNS,
    "groups": GROUP_COLUMNS,
}
GROUP_NAMES = {first for first, _ in GROUP_COLUMNS}
LABEL_COLUMNS = ("label", "is_duplicate", "quality", "标签")
LABELS = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}
JUDGMENTS = {*LABELS, "entailment", "neutral", "contradiction", "yes", "no", "y", "n", "-"}
JUDGMENTS |= {"是", "否", "对", "错", "相似", "不相似"}
SCORE_COLUMNS = ("score", "similarity_score", "similarity", "relatedness_score", "分数", "相似度")
NEGATIVE_COLUMNS = ("hard_neg", "negative", "hard_negative", "rejected")
SNIFFED_ROWS = 1000  # rows that decide what a table without a header is
MANY_ROWS = 20  # rows from which on a column that repeats looks like labels


@dataclass(frozen=True)
class ReadOptions:
    """How to read rows.

    Attributes:
        data_format: The shape of the rows, or "auto".
        text_columns: The two columns to read: a pair, text and synonyms, or group and sentence.
        max_chars: Sentences with more characters are counted as over-long; None counts none.
        consecutive: Group only neighbouring rows with the same id, which needs no memory;
            otherwise rows anywhere in a file.
    """

    data_format: DataFormat = "auto"
    text_columns: tuple[str, ...] | None = None
    max_chars: int | None = None
    consecutive: bool = False

    def __post_init__(self) -> None:
        check_choice("data_format", self.data_format, get_args(DataFormat))
        if self.text_columns is not None and len(self.text_columns) != 2:
            raise ValueError(f"text_columns is {self.text_columns!r}; name two columns.")


@dataclass(frozen=True)
class Shape:
    """What the columns of a file mean: a format, its two columns and an optional label."""

    data_format: DataFormat
    columns: tuple[str, str]
    label: str | None = None


def read_rows(path: str | Path, options: ReadOptions) -> Numbered:
    """Yield line numbers and rows of a file, read according to its extension.

    Raises:
        DataError: If the extension or the header is unknown, or a row does not parse.
    """
    return _table_rows(path, options) if _is_table(path) else read_objects(path)


def describe_file(path: str | Path, options: ReadOptions) -> str:
    """Describe which columns of a file are read, and which are not; "" for an empty file.

    Raises:
        DataError: If the columns are unknown, or the first row does not parse.
    """
    line, row = next(((line, row) for line, row in read_rows(path, options) if row), (1, None))
    if row is None:
        return ""
    told = describe_columns(path, list(row), options, line)
    if _is_table(path):
        cells = next(cells for _, cells in read_cells(path) if cells)
        told += "" if [cell.strip() for cell in cells] == list(row) else ", without a header"
    return told


def describe_columns(
    path: str | Path, columns: Sequence[str], options: ReadOptions, line: int = 1
) -> str:
    """Describe which columns are read, and which are not.

    Example:
        >>> describe_columns("a.csv", ["id", "s1", "s2", "label"], ReadOptions())
        "pairs of 's1' and 's2', where 'label' is 1; not read: 'id'"
        >>> describe_columns("a.jsonl", ["intent", "text"], ReadOptions())
        "sentences of 'text', grouped by 'intent'"
    """
    data_format, (first, second), label = astuple(choose_shape(path, line, columns, options))
    told = {
        "pairs": f"pairs of {first!r} and {second!r}",
        "groups": f"sentences of {second!r}, grouped by {first!r}",
        "synonyms": f"{first!r} and its {second!r}",
    }[data_format]
    told += f", where {label!r} is 1" if label else ""
    unread = [name for name in columns if name not in (first, second, label)]
    elsewhere = " (use train_triplet.py --examples triplets)"
    shown = [f"{name!r}{elsewhere * (name.lower() in NEGATIVE_COLUMNS)}" for name in unread]
    return told + (f"; not read: {', '.join(shown)}" if shown else "")


def _is_table(path: str | Path) -> bool:
    """Return whether a file is a table or holds objects, according to its extension."""
    suffix = suffix_of(path)
    if suffix not in (*TABLES, *OBJECTS):
        known = ", ".join((*TABLES, *OBJECTS))
        problem, remedy = f"the extension {suffix!r} is unknown", f"Use one of {known}"
        raise fault(path, None, problem, f"{remedy} (.gz and .xz too)")
    return suffix in TABLES


def read_headed_rows(
    path: str | Path, check: Callable[[int, list[str]], object] = lambda line, names: None
) -> Numbered:
    """Yield line numbers and non-blank rows of a file; a table must have a header.

    Args:
        path: The file.
        check: Called with the header's line number and names before any row is read.

    Raises:
        DataError: If there is no such file, its extension is unknown, or a row does not parse.
    """
    check_exists(path)
    if not _is_table(path):
        yield from ((line, row) for line, row in read_objects(path) if row)
        return
    filled = ((line, cells) for line, cells in read_cells(path) if cells)
    first, header = next(filled, (1, []))
    names = [cell.strip() for cell in header]
    if names:
        check(first, names)
    for line, cells in filled:
        yield line, named_cells(path, line, names, cells)


def choose_shape(
    file: str | Path, line: int, columns: Sequence[str], options: ReadOptions
) -> Shape:
    """Infer from its columns what a file holds.

    Raises:
        DataError: If no known shape fits, or several shapes of groups do, or pairs have a score.

    Example:
        >>> choose_shape("a.csv", 1, ["id", "s1", "s2", "label"], ReadOptions())
        Shape(data_format='pairs', columns=('s1', 's2'), label='label')
    """
    names = _lowered(columns)
    data_format, found = _find_columns(columns, options)
    if found is None:
        raise _columns_fault(file, line, columns, options)
    if data_format != "pairs":
        others = [names[name] for name in GROUP_NAMES & names.keys() - {found[0].strip().lower()}]
        if (
            data_format == "groups"
            and others
            and "group" not in names
            and options.text_columns is None
        ):
            both = " and ".join(map(repr, sorted([found[0], *others])))
            problem = f"the columns {both} may both say which sentences mean the same"
            remedy = f"Name one: --data_format groups --text_columns {found[0]} {found[1]}"
            raise fault(file, line, problem, remedy)
        return Shape(data_format, found)
    labels = (names[name] for name in LABEL_COLUMNS if name in names)
    label = next((name for name in labels if name not in found), None)
    score = next((name for name in SCORE_COLUMNS if name in names), None)
    if score and not label and options.text_columns is None:
        problem = f"has a column {score!r} beside {found[0]!r} and {found[1]!r}"
        remedy = "Keep only true paraphrases, then drop the column or pass text_columns"
        raise fault(file, line, problem, remedy)
    return Shape(data_format, found, label)


def _lowered(columns: Sequence[str]) -> dict[str, str]:
    return {name.strip().lower(): name for name in columns}


def _find_columns(
    columns: Sequence[str], options: ReadOptions
) -> tuple[DataFormat, tuple[str, str] | None]:
    if options.text_columns is not None:
        first, second = options.text_columns
        data_format: DataFormat = "pairs" if options.data_format == "auto" else options.data_format
        present = {first, second} <= set(columns)
        return data_format, (first, second) if present else None
    names = _lowered(columns)
    for data_format, candidates in KNOWN.items():
        for first, second in candidates if options.data_format in ("auto", data_format) else ():
            if first in names and second in names:
                return data_format, (names[first], names[second])
    return options.data_format, None


def _columns_fault(
    file: str | Path, line: int, columns: Sequence[str], options: ReadOptions
) -> DataError:
    wanted = " and ".join(map(repr, options.text_columns or ()))
    if not wanted:
        usual = (
            pairs[0]
            for data_format, pairs in KNOWN.items()
            if options.data_format in ("auto", data_format)
        )
        wanted = ", ".join(f"{first!r} and {second!r}" for first, second in usual)
        wanted += " or another known pair"
    problem = f"the columns {shorten(list(columns), 120)} do not hold {wanted}"
    remedy = (
        "Rename the columns (a .csv needs a header), or name yours: --text_columns first second, "
        "with --data_format groups if the first is a label (text_columns=, data_format=; in "
        "evaluations --columns LABEL TEXT)"
    )
    label = next((name for name in columns if name.strip().lower() in GROUP_NAMES), None)
    if label and options.data_format in ("auto", "groups"):
        others = [name for name in columns if name != label]
        names = shlex.join([label, others[0] if len(others) == 1 else "SENTENCE"])
        remedy = (
            f"If {label!r} says which sentences mean the same, give --data_format groups "
            f"--text_columns {names}; else name a pair's columns: --text_columns A B"
        )
    return fault(file, line, problem, separator_of(columns, remedy))


# Tables -----------------------------------------------------------------------------------------


def _table_rows(path: str | Path, options: ReadOptions) -> Numbered:
    numbered = read_cells(path)
    sniffed = list(islice(numbered, SNIFFED_ROWS))
    filled = [cells for _, cells in sniffed if cells]
    if not filled:
        raise fault(path, None, "is empty", "Give it at least one row")
    names = _header(path, filled[0], options)
    rows = chain(sniffed, numbered)
    if names is None:
        names = _guess_names(path, filled, options)
    else:
        line = next(line for line, cells in rows if cells)  # skips the header
        choose_shape(path, line, names, options)
    for line, cells in rows:
        yield line, named_cells(path, line, names, cells) if cells else {}


def _header(path: str | Path, cells: list[str], options: ReadOptions) -> list[str] | None:
    """Return the names in the first line if it is a header."""
    names = [cell.strip() for cell in cells]
    must = suffix_of(path) == ".csv" or options.text_columns is not None
    return names if must or _find_columns(names, options)[1] else None


def _guess_names(path: str | Path, rows: list[list[str]], options: ReadOptions) -> list[str]:
    """Name the columns of a table without a header."""
    width = len(rows[0])
    rows = [cells for cells in rows if len(cells) == width]  # reading reports the others
    if width == 3 and all(cells[-1].strip().lower() in LABELS for cells in rows):
        return [*PAIR_COLUMNS[0], LABEL_COLUMNS[0]]
    if width != 2:
        raise _width_fault(path, width)
    data_format = (
        options.data_format if options.data_format != "auto" else _guess_format(path, rows)
    )
    return list(GROUP_COLUMNS[0] if data_format == "groups" else PAIR_COLUMNS[0])


def _width_fault(path: str | Path, width: int) -> DataError:
    if width == 1:
        remedy = "Write two sentences, or a group id and a sentence, separated by a tab"
        return fault(path, 1, "has one column, so no pairs", remedy)
    remedy = "If it is a header, name its two columns as text_columns; else keep two columns"
    return fault(path, 1, f"has {width} columns, but no known names", remedy)


def _guess_format(path: str | Path, rows: list[list[str]]) -> DataFormat:
    first = [cells[0].strip() for cells in rows]
    if all(cell.isdecimal() for cell in first):
        return "groups"
    if len(rows) > 1 and all(cell.isdecimal() for cell in first[1:]):
        names = tuple(cell.strip() for cell in rows[0])
        remedy = f'Name them group and text, or pass text_columns={names} and data_format="groups"'
        raise fault(path, 1, f"the columns {shorten(names)} are unknown", remedy)
    counts = Counter(first)
    # Ids of small groups repeat too, but in neighbouring rows; first sentences repeat anywhere.
    scattered = len(counts) < sum(1 for _ in groupby(first))
    if len(counts) < len(first) and not (scattered and 2 * len(counts) > len(first)):
        [(most, _)] = counts.most_common(1)
        problem = f"the first column repeats: is {shorten(most)} a group id or a sentence?"
        raise fault(
            path, 1, problem, 'Pass data_format="groups" or data_format="pairs" (--data_format)'
        )
    label = label_among([cells[1].strip() for cells in rows])
    if label is not None:
        problem = f"the second column repeats: is {shorten(label)} a label or a sentence?"
        raise fault(
            path, 1, problem, 'Name the columns "text" and "label", or pass data_format="pairs"'
        )
    return "pairs"


def label_among(cells: Sequence[str]) -> str | None:
    """Return a column's most frequent cell if there are many that repeat as labels do.

    Example:
        >>> label_among(["late"] * 20), label_among(["late"] * 19), label_among([*"late"] * 10)
        ('late', None, 'l')
    """
    counts = Counter(cells)
    if len(cells) < MANY_ROWS or 2 * len(counts) > len(cells):
        return None
    [(most, _)] = counts.most_common(1)
    return most


def named_cells(path: str | Path, line: int, names: list[str], cells: list[str]) -> Row:
    """Pair the header's names with a row's cells.

    Raises:
        DataError: If their numbers differ, or two columns have the same name (unless empty).
    """
    if len(cells) == len(names):
        row: Row = dict(zip(names, cells, strict=True))
        if len(row) < len(names):
            check_names(path, names)
        return row
    problem = f"has {counted(len(cells), 'cell')} instead of {len(names)}: {shorten(cells)}"
    remedy = "Separate cells by single tabs, and keep tabs out of sentences"
    if suffix_of(path) == ".csv":
        remedy = "Separate cells by commas, and put quotes around sentences that contain one"
    raise fault(path, line, problem, remedy)


def check_names(path: str | Path, names: Sequence[str]) -> None:
    """Raise a :class:`DataError` if two columns have the same name (unless empty)."""
    twice = next((name for name in names if name and names.count(name) > 1), None)
    if twice is not None:
        problem = f"the header names two columns {shorten(twice)}"
        raise fault(path, None, problem, "Rename or drop one of them")
