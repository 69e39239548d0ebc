"""Read questions with their answers, and labelled queries for calibration, from any source."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any

from simbert_hf.data.readers import read_headed_rows
from simbert_hf.data.records import is_missing, text_of
from simbert_hf.utils.text import CONTROL, compose, fold, is_whole
from simbert_hf.utils.textfiles import TABLES, Row, fault, separator_of, shorten, suffix_of

logger = logging.getLogger(__name__)

MAX_CHARS = 10_000  # of a question or query; models read a few hundred tokens of it
ORIGIN = "paraphrase_of"  # metadata key of a row that ``augment`` generated: its question
KEYS = ("id", "group", "answer")  # what a query can be labelled by
CHINESE = {"question": ["标准问", "问题"], "answer": ["回答", "答案"], "query": ["问题", "问句"]}

Columns = Mapping[str, str]
Place = tuple[str, int]  # a file, or other source, and a line of it


@dataclass(frozen=True)
class Faq:
    """One question and its answer.

    Attributes:
        question: The question.
        answer: Its answer.
        group: Rows of one group ask for the same answer; without groups, rows with equal answers
            do.
        id: Identifies the row for updates and removal; numbered if None.
        metadata: Anything else that hits should carry, dates as text and missing values as None.
    """

    question: str
    answer: str
    group: str | None = None
    id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def leads_to(self) -> str:
        """Key of the row's group or answer; a group may have the same name as an answer."""
        return f"answer {as_key(self.answer)}" if self.group is None else f"group {self.group}"


@dataclass(frozen=True)
class Query:
    """A query and where it should lead: a row's id, a group or an answer; out of scope if none.

    Attributes:
        text: The query.
        id: Id of the expected row.
        group: The expected group.
        answer: The expected answer.
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
            ``question``, ``answer`` and optionally ``group``, ``id`` and ``metadata``; all others
            become metadata too.
        columns: Maps these names to the source's where they differ: ``{"question": "text"}``.

    Raises:
        DataError: If there are no rows, a column or an answer is missing, ``columns`` has an
            unknown name, an id is used twice, a question is empty, longer than 10,000 characters
            or holds control characters, or a column holds what JSON cannot.

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
            problem = f"the id {shorten(faq.id)} is already used in row {seen[faq.id]}"
            raise fault(name, line, problem, "Give every row a unique id, or drop the column")
        faqs.append(faq)
    if not faqs:
        raise fault(name, None, "holds no questions", "Add at least one question and its answer")
    _tell_of_repeats(name, faqs)
    return faqs


def _tell_of_repeats(name: str, faqs: Sequence[Faq]) -> None:
    """Warn of repeated rows, and of questions with several answers."""
    distinct = dict.fromkeys((faq.question, faq.leads_to) for faq in faqs)
    if repeats := len(faqs) - len(distinct):
        logger.warning("%s: rows that repeat a question and its answer: %s", name, f"{repeats:,}")
    asked: dict[str, dict[str, str]] = defaultdict(dict)
    for question, leads_to in distinct:
        asked[fold(question)].setdefault(leads_to, question)
    several = [next(iter(answers.values())) for answers in asked.values() if len(answers) > 1]
    if several:
        logger.warning(
            "%s: questions with several, equally near answers: %s, such as %s",
            *(name, f"{len(several):,}", shorten(several[0])),
        )


def read_queries(source: QuerySource, columns: Columns | None = None) -> dict[Place, Query]:
    """Read labelled queries, keyed by file and line.

    Args:
        source: As for :func:`read_faqs`. Columns: ``query`` and, in every row, at least one of
            ``id``, ``group`` and ``answer``; where all of them are empty, the query is out of
            scope.
        columns: Maps these names to the source's where they differ.

    Raises:
        DataError: If there are no queries, a row lacks a column, or a query is empty, too long or
            holds control characters.

    Example:
        >>> rows = [{"query": "card?", "answer": "Yes."}, {"query": "Sing!", "answer": None}]
        >>> [query.in_scope for query in read_queries(rows).values()]
        [True, False]
    """
    name, rows = _rows_of(source, "query", columns or {})
    queries = {(name, line): _query(name, line, row) for line, row in rows}
    if not queries:
        raise fault(name, None, "holds no queries", "Add labelled queries")
    _tell_of_repeated_queries(name, queries.values())
    return queries


def _tell_of_repeated_queries(name: str, queries: Collection[Query]) -> None:
    """Warn of queries that count several times, or that some rows have in scope and some out."""
    scopes: dict[str, dict[bool, str]] = defaultdict(dict)
    for query in queries:
        scopes[fold(query.text)][query.in_scope] = query.text
    if repeats := len(queries) - len(scopes):
        logger.warning(
            "%s: queries that repeat another: %s of %s. Each counts, as if it were a new one: drop "
            "them, unless users ask the same so often",
            *(name, f"{repeats:,}", f"{len(queries):,}"),
        )
    if both := [found[True] for found in scopes.values() if len(found) > 1]:
        logger.warning(
            "%s: queries that have a label in one row and none in another: %s, such as %s",
            *(name, f"{len(both):,}", shorten(both[0])),
        )


def check_question(name: str | Path, line: int | None, value: object) -> str:
    """Strip a question or query; raise a DataError if it is invalid.

    Example:
        >>> check_question("faq.csv", 2, " Can I pay by card? ")
        'Can I pay by card?'
    """
    text = text_of(name, line or 0, value)
    if why := why_no_question(text):
        what = f"the question {shorten(text, 40)}" if text else "the text"
        raise fault(name, line, f"{what} {why}", "Correct it, or leave it out")
    return text


def why_no_question(text: str) -> str:
    r"""Say why a text is not a valid question or query; an empty string if it is.

    Example:
        >>> why_no_question("\t"), why_no_question("Where is it?")
        ('is empty', '')
    """
    if isinstance(text, str) and not is_whole(text):
        return "holds half a character"
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
            f"The rows are {shorten(source)}: a single row, columns or splits. Pass a list of "
            "rows, [row], or one split."
        )
    if not isinstance(source, Iterable | Path):
        raise TypeError(f"The rows are {shorten(source)}: pass a list of rows, or a file.")
    if isinstance(source, str | Path):
        name, rows = str(source), read_headed_rows(source)
    else:
        name, rows = f"the {text} rows", enumerate((_as_row(i, text) for i in source), start=1)
    filled = ((line, row) for line, row in rows if row)
    first = next(filled, None)
    if first is None:
        return name, iter(())
    known = (text, *KEYS, *(["metadata"] if text == "question" else []))
    if wrong := [ours for ours in columns if ours not in known]:
        problem = f"columns={dict(columns)!r} has the unknown name {wrong[0]!r}"
        raise fault(name, None, problem, f"Map any of {', '.join(known)} to your columns")
    columns = _named_alike(first[1], text) | dict(columns)
    _check_columns(name, first, text, columns)
    named = {*columns, *columns.values()}
    renamed = (  # one column may serve as two of ours
        (
            line,
            {name: value for name, value in row.items() if name and name not in named}
            | {ours: row[theirs] for ours, theirs in columns.items() if theirs in row},
        )
        for line, row in chain([first], filled)
    )
    return name, renamed


def _named_alike(row: Row, text: str) -> dict[str, str]:
    """Find our columns regardless of case, as spreadsheets capitalize them, or by Chinese names."""
    lower = {str(name).lower(): name for name in row}
    return {
        ours: lower[name]
        for ours in sorted({text, *KEYS} - set(row))
        for name in [*CHINESE.get(ours, ()), ours]  # the last one counts
        if name in lower
    }


def _as_row(item: object, text: str) -> Row:
    if isinstance(item, Query):
        return {"query": item.text} | {key: getattr(item, key) for key in KEYS}
    if isinstance(item, Faq):
        return asdict(item)
    if isinstance(item, Mapping):
        return dict(item)
    raise TypeError(
        f"A row is {shorten(item)}; pass dictionaries such as {{{text!r}: ...}}; for a pandas "
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
            remedy = f"Rename yours, or name it (--{ours}_column; columns={{{ours!r}: ...}})"
            raise fault(name, line, problem, separator_of(list(row), remedy))


def _faq(name: str, line: int, row: Row) -> Faq:
    question = _text(name, line, row, "question")
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
        raise fault(name, line, f"metadata is {shorten(own)}", 'Write a JSON object: {"page": 3}')
    metadata = {key: _plain(name, line, key, value) for key, value in {**extra, **own}.items()}
    group, number = (_key(name, line, row, key) for key in ("group", "id"))
    return Faq(question, answer, group, number, metadata)


def _plain(name: str, line: int, column: str, value: object) -> Any:
    """Convert a value into what JSON can hold: dates into text, missing values into None."""
    if is_missing(value):
        return None
    try:
        text = json.dumps(value, default=_as_json, ensure_ascii=False)
        f"{text}{column}".encode()  # a lone surrogate cannot be encoded
        return json.loads(text, parse_constant=_constant)
    except (TypeError, ValueError, RecursionError):
        problem = f"the column {shorten(column)} holds {shorten(value, 40)}, which is not JSON"
        raise fault(name, line, problem, "Convert it to text, or leave the column out") from None


def _constant(name: str) -> None:
    """Read NaN as missing; raise a ValueError for infinity."""
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


def _text(name: str, line: int, row: Row, column: str) -> str:
    """Return a row's question or query."""
    if column not in row:
        problem = f"the row has no {column!r}, only {shorten(list(row))}"
        raise fault(name, line, problem, "Add it, or drop the row")
    return check_question(name, line, row[column])


def _given(row: Row, name: str) -> Any:
    value = row.get(name)
    return None if is_missing(value) else value


def _query(name: str, line: int, row: Row) -> Query:
    text = _text(name, line, row, "query")
    if not any(key in row for key in KEYS):
        problem = f"the query has no label, only the columns {shorten(list(row))}"
        remedy = f"Add {', '.join(KEYS[:-1])} or {KEYS[-1]}, left empty where there is none"
        raise fault(name, line, problem, remedy)
    return Query(text, **{key: _key(name, line, row, key) for key in KEYS})


def _key(name: str, line: int, row: Row, column: str) -> str | None:
    """Return an id, group or label as text; None where it is empty."""
    value = _given(row, column)
    if value is None:
        return None
    key = as_key(value)
    if not is_whole(key):
        problem = f"the {column} {shorten(key)} holds half a character"
        raise fault(name, line, problem, "Save it again as UTF-8")
    return key or None


def completed(row: Faq, former: Faq) -> Faq:
    """Fill in what only the former row holds, except the question that it paraphrased."""
    kept = {name: value for name, value in former.metadata.items() if name != ORIGIN}
    return replace(row, group=row.group or former.group, metadata=kept | dict(row.metadata))


def as_key(value: object) -> str:
    """Return an id, a group or a label as text.

    Example:
        >>> as_key(7.0), as_key(" a ")
        ('7', 'a')
    """
    if isinstance(value, float) and value.is_integer():  # beside blanks, pandas reads 1 as 1.0
        value = int(value)
    return compose(str(value).strip().replace("\r\n", "\n"))
