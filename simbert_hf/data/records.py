"""Rows -> records: cleaned sentences that mean the same, and counts of what was wrong."""

from __future__ import annotations

import logging
import math
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TypedDict

from simbert_hf.data.readers import (
    JUDGMENTS,
    LABELS,
    PAIR_COLUMNS,
    SNIFFED_ROWS,
    Numbered,
    ReadOptions,
    Shape,
    choose_shape,
    label_among,
)
from simbert_hf.utils.text import fold, is_whole
from simbert_hf.utils.textfiles import Row, fault, shorten

logger = logging.getLogger(__name__)

REMEMBERED = 100_000  # finished groups that a stream remembers; shuffled rows show far sooner
UNQUOTED = "Put it in quotes, or name another column"
NUMBER = re.compile(r"(?:unnamed: \d+|(?:.*_)?(?:id|idx|index))?")  # names of row numbers
LISTED = 'If it lists paraphrases, pass data_format="synonyms" (--data_format synonyms)'
MISSING = ("None", "nan", "NaT", "<NA>")  # missing values as printed
USABLE, ONE_MEMBER, NEGATIVE, BLANK = range(4)  # what becomes of a record


class Record(TypedDict):
    """One record after cleaning, with counts of what was wrong.

    Attributes:
        texts: Its different sentences, stripped; sentences that differ only in case or white
            space count as one.
        fate: USABLE, ONE_MEMBER (fewer than two sentences), NEGATIVE (labelled 0) or BLANK (an
            empty line).
        empty: Number of empty sentences dropped.
        repeats: Number of sentences dropped because the record repeats them.
        over_long: Number of kept sentences with more than ``max_chars`` characters.
    """

    texts: list[str]
    fate: int
    empty: int
    repeats: int
    over_long: int


def read_records(
    file: str | Path, rows: Numbered, options: ReadOptions, named: dict[str, str] | None = None
) -> Iterator[Record]:
    """Clean rows and yield them as records.

    Args:
        file: Name of the rows' source, for messages.
        rows: Line numbers and rows.
        options: How to read them.
        named: The file of each named group so far, to which this file's are added: a name that
            occurs in two files is refused, while numbers in a column "group" may restart in each.
            None skips this check, as for streams, where names would take too much memory.

    Raises:
        DataError: If there are no rows, their columns are unknown, or a value cannot be used.

    Example:
        >>> rows = [(1, {"text": "Hi", "synonyms": ["Hello", "hi ", ""]})]
        >>> list(read_records("a.jsonl", iter(rows), ReadOptions()))
        [{'texts': ['Hi', 'Hello'], 'fate': 0, 'empty': 1, 'repeats': 1, 'over_long': 0}]
    """
    head = list(_until_filled(rows))
    if not head or not head[-1][1]:
        raise fault(file, None, "is empty", "Give it at least one record")
    line, first = head[-1]
    shape = choose_shape(file, line, list(first), options)
    unlabelled = shape.data_format == "pairs" and not shape.label
    if unlabelled and not options.consecutive:  # a stream must not fail at a later file
        head += islice(rows, SNIFFED_ROWS)
        sniffed = [row for _, row in head if row]
        if options.text_columns not in (None, *PAIR_COLUMNS) and options.data_format == "auto":
            check_no_names(file, line, sniffed, shape)
        check_all_paraphrases(file, line, sniffed, shape, named=options.text_columns is not None)
    numbered = chain(head, rows)
    if shape.data_format == "groups":
        return _grouped_records(file, numbered, shape, options, named)
    return (_record(*_values(file, line, row, shape), options) for line, row in numbered)


def check_no_names(file: str | Path, line: int, rows: Sequence[Row], shape: Shape) -> None:
    """Refuse pairs whose first column repeats as names of groups do.

    Raises:
        DataError: If at least half of many rows repeat a value.

    Example:
        >>> rows = [{"intent": "late", "text": f"Is it {hour}?"} for hour in range(24)]
        >>> check_no_names("a.csv", 1, rows, Shape("pairs", ("intent", "text")))
        Traceback (most recent call last):
            ...
        simbert_hf.utils.textfiles.DataError: a.csv:1: the column 'intent' repeats: is 'late' a ...
    """
    name = shape.columns[0]
    label = label_among([str(row.get(name)).strip() for row in rows])
    if label is not None:
        problem = f"the column {name!r} repeats: is {shorten(label)} a group's name or a sentence?"
        raise fault(
            file, line, problem, 'Pass data_format="groups" or data_format="pairs" (--data_format)'
        )


def check_all_paraphrases(
    file: str | Path, line: int, rows: Sequence[Row], shape: Shape, *, named: bool = False
) -> None:
    """Refuse pairs if a column of an unknown name seems to say which of them are paraphrases.

    The check uses a file's first 1,000 rows, and none of a stream. If the caller ``named`` the
    pair's columns, it only warns.

    Raises:
        DataError: If there is such a column.

    Example:
        >>> rows = [{"s1": "a", "s2": "b", "same": value} for value in "01"]
        >>> check_all_paraphrases("a.csv", 1, rows, Shape("pairs", ("s1", "s2")))
        Traceback (most recent call last):
            ...
        simbert_hf.utils.textfiles.DataError: a.csv:1: the column 'same' has '0', '1', as if ...
    """
    for name in rows[0]:
        cells = {str(row.get(name)).strip().lower() for row in rows} - {"", "none", "nan"}
        number = NUMBER.fullmatch(name.strip().lower())
        if name not in shape.columns and not number and len(cells) > 1 and cells <= JUDGMENTS:
            found = ", ".join(map(repr, sorted(cells)))
            problem = f"the column {name!r} has {found}, as if not all rows were paraphrases"
            remedy = "Name it label, with 1 for a paraphrase and 0 otherwise"
            if named:
                logger.warning("%s", fault(file, line, f"{problem}, but all are used", remedy))
                return
            remedy += (
                "; or, if all are, drop it or name the pair: --text_columns "
                f"{shlex.join(shape.columns)} (text_columns=...)"
            )
            raise fault(file, line, problem, remedy)


def _until_filled(rows: Numbered) -> Numbered:
    for line, row in rows:
        yield line, row
        if row:
            return


def _values(file: str | Path, line: int, row: Row, shape: Shape) -> tuple[list[str], int]:
    """Return the sentences of a row, and its fate according to the label."""
    if not row:
        return [], BLANK
    first, second = (cell_of(file, line, row, name) for name in shape.columns)
    if shape.data_format == "synonyms":
        values = [first, *_synonyms(file, line, shape.columns[1], second)]
    else:
        values = [first, second]
    listed = LISTED if shape.data_format == "pairs" else UNQUOTED
    texts = [
        sentence_of(file, line, value, listed if isinstance(value, list) else UNQUOTED)
        for value in values
    ]
    if shape.label is None or is_positive(file, line, shape.label, row.get(shape.label)):
        return texts, USABLE
    return texts, NEGATIVE


def cell_of(file: str | Path, line: int, row: Row, name: str) -> object:
    """Return a column's value; raise a DataError if the row lacks it."""
    if name in row:
        return row[name]
    problem = f"has no {name!r}, only {shorten(list(row))}"
    raise fault(file, line, problem, "Give every record the columns of the first")


def _synonyms(file: str | Path, line: int, name: str, value: object) -> list[object]:
    if isinstance(value, list):
        return value
    problem = f"{name!r} is {shorten(value)}, not a list"
    raise fault(file, line, problem, 'Write it as a list of sentences: ["...", "..."]')


def is_missing(value: object) -> bool:
    """Return whether a cell is missing, to Python or pandas; a string never is."""
    return not isinstance(value, str) and str(value) in MISSING


def sentence_of(file: str | Path, line: int, value: object, remedy: str = UNQUOTED) -> str:
    """Do what :func:`text_of` does, and drop zero bytes, which no file could be read with."""
    whole = value.replace("\0", "") if isinstance(value, str) else value
    return text_of(file, line, whole, remedy)


def text_of(file: str | Path, line: int, value: object, remedy: str = UNQUOTED) -> str:
    """Strip a sentence ("" if missing); raise a DataError with a remedy if it is not a string."""
    if is_missing(value):
        return ""
    if not isinstance(value, str):
        problem = f"{shorten(value)} is {type(value).__name__}, not a sentence"
        raise fault(file, line, problem, remedy)
    if not is_whole(value):
        problem = f"{shorten(value)} holds half a character"
        raise fault(file, line, problem, "Save it again as UTF-8")
    return value.strip().replace("\r\n", "\n")  # as inside quotes


def is_positive(file: str | Path, line: int, name: str, value: object) -> bool:
    """Read a label; raise a DataError unless it is 0 or 1."""
    label = LABELS.get(str(value).strip().lower())
    if label is not None:
        return label
    remedy = "Write 1 for a paraphrase, else 0, or drop the column if all rows are paraphrases"
    raise fault(file, line, f"the {name} {shorten(value)} is neither 0 nor 1", remedy)


def _record(texts: list[str], fate: int, options: ReadOptions) -> Record:
    kept: dict[str, str] = {}
    for text in texts:
        if text:
            kept.setdefault(fold(text), text)
    empty = texts.count("") + (fate == BLANK)
    if fate == USABLE and len(kept) < 2:
        fate = ONE_MEMBER
    most = math.inf if options.max_chars is None else options.max_chars
    return Record(
        texts=list(kept.values()),
        fate=fate,
        empty=empty,
        repeats=len(texts) - texts.count("") - len(kept),
        over_long=sum(len(text) > most for text in kept.values()),
    )


def _grouped_records(
    file: str | Path,
    rows: Numbered,
    shape: Shape,
    options: ReadOptions,
    named: dict[str, str] | None,
) -> Iterator[Record]:
    """Collect sentences by group id: over the whole file, or over neighbouring rows."""
    groups: dict[str, list[str]] = {}
    ended: set[int] = set()
    for line, row in rows:
        if not row:
            yield _record([], BLANK, options)
            continue
        key = _group_id(file, line, cell_of(file, line, row, shape.columns[0]), shape.columns[0])
        if key not in groups:
            if named is not None:
                _check_name(file, line, key, named, shape.columns[0])
            if options.consecutive:
                _check_new(file, line, key, ended)
                if len(ended) < REMEMBERED:
                    ended |= set(map(hash, groups))
                yield from _records_of(groups, options)
                groups.clear()
        text = sentence_of(file, line, cell_of(file, line, row, shape.columns[1]))
        groups.setdefault(key, []).append(text)
    yield from _records_of(groups, options)


def _check_name(file: str | Path, line: int, key: str, named: dict[str, str], column: str) -> None:
    """Refuse a name that another file has, too; numbers in a column "group" may recur."""
    numbered = column == "group" and key.isdecimal()
    if not numbered and named.setdefault(key, str(file)) != str(file):
        remedy = "Join the files if it is the same group, else rename it"
        raise fault(file, line, f"{column} {shorten(key)} is also in {named[key]}", remedy)


def _check_new(file: str | Path, line: int, key: str, ended: set[int]) -> None:
    """Refuse an id whose group is finished."""
    if hash(key) in ended:
        remedy = "Sort the file by group, or read it without streaming"
        raise fault(file, line, f"group {shorten(key)} has earlier rows elsewhere", remedy)


def _records_of(groups: dict[str, list[str]], options: ReadOptions) -> Iterable[Record]:
    return (_record(texts, USABLE, options) for texts in groups.values())


def _group_id(file: str | Path, line: int, value: object, column: str) -> str:
    key = "" if is_missing(value) else str(value).strip()
    if not key:
        name = "group id" if column == "group" else column
        raise fault(file, line, f"the {name} is empty", f"Give every row a {name}, or drop it")
    return key
