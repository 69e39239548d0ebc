"""Rows of any source -> questions with their answers, and labelled queries to calibrate by."""

from __future__ import annotations

import json
import logging
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any

from simbert_hf.data.readers import read_headed_rows
from simbert_hf.data.records import is_missing, text_of
from simbert_hf.utils.text import CONTROL, fold
from simbert_hf.utils.textfiles import TABLES, Row, fault, separator_of, shorten, suffix_of

logger = logging.getLogger(__name__)

MAX_CHARS = 10_000  # of a question or query; models read a few hundred tokens of it
ORIGIN = "paraphrase_of"  # in the metadata of a row that ``augment`` wrote: of which question
KEYS = ("id", "group", "answer")  # what a query can be labelled by

Columns = Mapping[str, str]
Place = tuple[str, int]  # a file, or other source, and a line of it


@dataclass(frozen=True)
class Faq:
    """One question and its answer.

    Attributes:
        question: What may be asked.
        answer: What is answered.
        group: Rows of one group are ways to ask for one answer; without it, rows with equal answers
            are.
        id: Names the row, to update or remove it; numbered if None.
        metadata: Anything else; hits bring it along, dates as text and what is missing as None.
    """

    question: str
    answer: str
    group: str | None = None
    id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def leads_to(self) -> str:
        """Tell rows of different groups or answers apart; a group may be named as an answer is."""
        return f"answer {as_key(self.answer)}" if self.group is None else f"group {self.group}"


@dataclass(frozen=True)
class Query:
    """A query and where it should lead: to a row's id, a group or an answer; to none if none is.

    Attributes:
        text: What was asked.
        id: The row's id.
        group: The group.
        answer: The answer.
    """

    text: str
    id: str | None = None
    group: str | None = None
    answer: str | None = None

    @property
    def in_scope(self) -> bool:
        """Whether it has an answer at all."""
        return any(getattr(self, key) is not None for key in KEYS)


Source = str | Path | Iterable[Mapping[str, Any] | Faq]
QuerySource = str | Path | Iterable[Mapping[str, Any] | Query]


def read_faqs(source: Source, columns: Columns | None = None) -> list[Faq]:
    r"""Read questions and answers.

    Args:
        source: A ``.csv``, ``.tsv``, ``.jsonl`` or ``.parquet`` file (``.gz`` and ``.xz`` too) with
            a header, a ``datasets.Dataset``, or rows: dictionaries or :class:`Faq`. Columns:
            ``question``, ``answer`` and perhaps ``group``, ``id`` and ``metadata``; the others are
            metadata too.
        columns: What the source calls them, where it is otherwise: ``{"question": "text"}``.

    Raises:
        DataError: If there is no row, a column or an answer is missing, ``columns`` names another,
            an id is used twice, or a question is empty, longer than 10,000 characters or holds
            control characters, or a column holds what JSON cannot.

    Example:
        >>> read_faqs([{"question": "Can I pay by card?", "answer": "Yes.", "page": 3}])
        [Faq(question='Can I pay by card?', answer='Yes.', ..., metadata={'page': 3})]
    """
    name, rows = _rows_of(source, "question", columns or {})
    faqs: list[Faq] = []
    seen: dict[str, int] = {}
    for line, row in rows:
        faq = _faq(name, line, row)
        if faq.id is not None and seen.setdefault(faq.id, line) != line:
            problem = f"the id {shorten(faq.id)} is that of row {seen[faq.id]} too"
            raise fault(name, line, problem, "Give every row an id of its own, or drop the column")
        faqs.append(faq)
    if not faqs:
        raise fault(name, None, "holds no question", "Give it at least one question and answer")
    _tell_of_repeats(name, faqs)
    return faqs


def _tell_of_repeats(name: str, faqs: Sequence[Faq]) -> None:
    """Warn of rows that say the same again, and of questions that one answer alone can be for."""
    distinct = dict.fromkeys((faq.question, faq.leads_to) for faq in faqs)
    if repeats := len(faqs) - len(distinct):
        logger.warning("%s: rows that repeat a question and its answer: %s", name, f"{repeats:,}")
    asked: dict[str, dict[str, str]] = defaultdict(dict)
    for question, leads_to in distinct:
        asked[fold(question)].setdefault(leads_to, question)
    several = [next(iter(answers.values())) for answers in asked.values() if len(answers) > 1]
    if several:
        logger.warning(
            "%s: questions with several answers, which are equally near: %s, such as %s",
            *(name, f"{len(several):,}", shorten(several[0])),
        )


def read_queries(source: QuerySource, columns: Columns | None = None) -> dict[Place, Query]:
    """Read labelled queries by file and line.

    Args:
        source: As for :func:`read_faqs`. Columns: ``query`` and, in every row, at least one of
            ``id``, ``group`` and ``answer``; where all of them are empty, the query is out of
            scope.
        columns: What the source calls them, where it is otherwise.

    Raises:
        DataError: If there is no query, a row lacks a column, or a query is empty, too long or
            holds control characters.

    Example:
        >>> rows = [{"query": "card?", "answer": "Yes."}, {"query": "Sing!", "answer": None}]
        >>> [query.in_scope for query in read_queries(rows).values()]
        [True, False]
    """
    name, rows = _rows_of(source, "query", columns or {})
    queries = {(name, line): _query(name, line, row) for line, row in rows}
    if not queries:
        raise fault(name, None, "holds no query", "Give it labelled queries")
    return queries


def check_question(name: str | Path, line: int | None, value: object) -> str:
    """Strip a question or query, or raise a DataError if it cannot be one.

    Example:
        >>> check_question("faq.csv", 2, " Can I pay by card? ")
        'Can I pay by card?'
    """
    text = text_of(name, line or 0, value)
    if why := why_no_question(text):
        what = f"the question {shorten(text, 40)}" if text else "the text"
        raise fault(name, line, f"{what} {why}", "Mend it, or leave it out")
    return text


def why_no_question(text: str) -> str:
    r"""Say why a text can be no question or query; nothing if it can.

    Example:
        >>> why_no_question("\t"), why_no_question("Where is it?")
        ('is empty', '')
    """
    text = text_of("the query", 0, text)
    if not any(char.isprintable() and not char.isspace() for char in text):
        return "is empty"
    if len(text) > MAX_CHARS:
        return f"has {len(text):,} characters, more than {MAX_CHARS:,}"
    control = CONTROL.search(text)
    return f"holds the control character {control[0]!r}" if control else ""


# Rows -------------------------------------------------------------------------------------------


def _rows_of(source: Any, text: str, columns: Columns) -> tuple[str, Iterator[tuple[int, Row]]]:
    """Return the source's name and its filled rows by number, under our names of the columns."""
    if isinstance(source, Mapping | Faq | Query):
        raise TypeError(
            f"The rows are {shorten(source)}, one row, or columns or splits: pass a list of rows, "
            "[row], or one split."
        )
    if not isinstance(source, Iterable | Path):
        raise TypeError(f"The rows are {shorten(source)}: pass a list of rows, or a file.")
    if isinstance(source, str | Path):
        name, rows = str(source), read_headed_rows(source)
    else:
        name, rows = f"the {text} rows", enumerate(map(_as_row, source), start=1)
    filled = ((line, row) for line, row in rows if row)
    first = next(filled, None)
    if first is None:
        return name, iter(())
    known = (text, *KEYS, *(["metadata"] if text == "question" else []))
    if wrong := [ours for ours in columns if ours not in known]:
        problem = f"columns={dict(columns)!r} is not understood: {wrong[0]!r} is none of ours"
        raise fault(name, None, problem, f"Name {', '.join(known)}, each with your column")
    columns = _named_alike(first[1], text) | dict(columns)
    _check_columns(name, first, text, columns)
    named = {*columns, *columns.values()}
    renamed = (  # a column may be two of ours
        (
            line,
            {name: value for name, value in row.items() if name and name not in named}
            | {ours: row[theirs] for ours, theirs in columns.items() if theirs in row},
        )
        for line, row in chain([first], filled)
    )
    return name, renamed


def _named_alike(row: Row, text: str) -> dict[str, str]:
    """Find our columns among names in capitals, as spreadsheets have them."""
    lower = {str(name).lower(): name for name in row}
    ours = {text, *KEYS} - set(row)
    return {name: lower[name] for name in sorted(ours & set(lower))}


def _as_row(item: object) -> Row:
    if isinstance(item, Query):
        return {"query": item.text} | {key: getattr(item, key) for key in KEYS}
    if isinstance(item, Faq):
        return asdict(item)
    if isinstance(item, Mapping):
        return dict(item)
    raise TypeError(
        f"A row is {shorten(item)}; give dictionaries such as {{'question': ...}}; of a pandas "
        "frame, frame.to_dict('records')."
    )


def _check_columns(name: str, first: tuple[int, Row], text: str, columns: Columns) -> None:
    line, row = first
    if suffix_of(name) in TABLES:
        line = 1  # the header
    needed = [text, "answer"] if text == "question" else [text]
    for ours in dict.fromkeys((*needed, *columns)):
        theirs = columns.get(ours, ours)
        if theirs not in row:
            problem = f"has no column {theirs!r}, only {shorten(list(row))}"
            remedy = f"Rename it, or name yours (--{ours}_column; columns={{{ours!r}: ...}})"
            raise fault(name, line, problem, separator_of(list(row), remedy))


def _faq(name: str, line: int, row: Row) -> Faq:
    question = check_question(name, line, _given(row, "question"))
    answer = text_of(name, line, _given(row, "answer"))
    if not answer:
        problem = f"the question {shorten(question, 40)} has no answer"
        raise fault(name, line, problem, "Fill it in, or drop the row")
    extra = {key: value for key, value in row.items() if key not in ("question", *KEYS, "metadata")}
    own = _given(row, "metadata") or {}
    if isinstance(own, str):  # as tables have it
        with suppress(ValueError):
            own = json.loads(own)
    if not isinstance(own, Mapping):
        raise fault(name, line, f"metadata is {shorten(own)}", 'Write an object: {"page": 3}')
    metadata = {key: _plain(name, line, key, value) for key, value in {**extra, **own}.items()}
    return Faq(question, answer, _key(row, "group"), _key(row, "id"), metadata)


def _plain(name: str, line: int, column: str, value: object) -> Any:
    """Turn a value into what JSON can hold: dates into text, what is missing into None."""
    if is_missing(value):
        return None
    try:
        text = json.dumps(value, default=_as_json, ensure_ascii=False)
        text.encode()  # half a character cannot be
        return json.loads(text, parse_constant=_constant)
    except (TypeError, ValueError, RecursionError):
        problem = f"the column {shorten(column)} holds {shorten(value, 40)}, which is not JSON"
        raise fault(name, line, problem, "Make it text, or leave the column out") from None


def _constant(name: str) -> None:
    """Take NaN for what is missing; raise a ValueError of infinity."""
    if name != "NaN":
        raise ValueError(name)


def _as_json(value: Any) -> Any:
    """Convert dates, NumPy's numbers and arrays, and decimals."""
    if is_missing(value):
        return None
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Decimal):
        return None if value.is_nan() else str(value)
    raise TypeError


def _given(row: Row, name: str) -> Any:
    value = row.get(name)
    return None if is_missing(value) else value


def _query(name: str, line: int, row: Row) -> Query:
    text = check_question(name, line, _given(row, "query"))
    if not any(key in row for key in KEYS):
        problem = f"labels no query: its columns are {shorten(list(row))}"
        remedy = f"Add {', '.join(KEYS[:-1])} or {KEYS[-1]}, empty for none"
        raise fault(name, line, problem, remedy)
    return Query(text, **{key: _key(row, key) for key in KEYS})


def _key(row: Row, name: str) -> str | None:
    """Return an id, group or label as text; None where it is empty."""
    value = _given(row, name)
    if value is None:
        return None
    return as_key(value) or None


def as_key(value: object) -> str:
    """Write an id, a group or a label as text.

    Example:
        >>> as_key(7.0), as_key(" a ")
        ('7', 'a')
    """
    if isinstance(value, float) and value.is_integer():  # a blank makes pandas' 1 a 1.0
        value = int(value)
    return unicodedata.normalize("NFC", str(value).strip().replace("\r\n", "\n"))
