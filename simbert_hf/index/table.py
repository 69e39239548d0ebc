"""The rows of an index, in Parquet: row i of the table describes vector i."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import pyarrow
import pyarrow.compute
import pyarrow.parquet

from simbert_hf.index.faqs import ORIGIN, Faq
from simbert_hf.utils.arrays import Ints
from simbert_hf.utils.text import fold
from simbert_hf.utils.textfiles import DataError, fault, shorten

FILE = "rows.parquet"
CHUNKS = 64  # pieces of a column: every addition makes one, and each costs time later
SCHEMA = pyarrow.schema(
    [
        pyarrow.field("id", pyarrow.string(), nullable=False),
        pyarrow.field("question", pyarrow.string(), nullable=False),
        pyarrow.field("answer", pyarrow.string(), nullable=False),
        pyarrow.field("group", pyarrow.string()),
        pyarrow.field("metadata", pyarrow.string(), nullable=False),  # JSON
        pyarrow.field("removed", pyarrow.bool_(), nullable=False),
    ]
)


class FaqTable:
    """Rows that are never renumbered; removed ones are blank. A table never changes in place.

    Args:
        data: A table of :data:`SCHEMA`.
    """

    def __init__(self, data: pyarrow.Table | None = None) -> None:
        self.data = SCHEMA.empty_table() if data is None else data

    @classmethod
    def read(cls, path: Path) -> FaqTable:
        """Read what :meth:`write` wrote; raise a DataError if it is something else."""
        try:
            found = pyarrow.parquet.read_table(path.absolute(), schema=SCHEMA, memory_map=True)
        except (pyarrow.ArrowException, OSError) as error:
            problem = f"is not a table of an index ({str(error)[:80]})"
            raise fault(path, None, problem, "Rebuild the index") from None
        for column in SCHEMA:  # which reading does not check
            if not column.nullable and found[column.name].null_count:
                raise fault(path, None, f"has an empty {column.name}", "Rebuild the index")
        return cls(found)

    def write(self, path: Path) -> None:
        """Write the table as Parquet."""
        place = path.absolute()  # pyarrow would look for "~/..." in the user's home
        pyarrow.parquet.write_table(self.data, place, compression="zstd")

    def __len__(self) -> int:
        return int(self.data.num_rows)

    @cached_property
    def living(self) -> Ints:
        """Numbers of the rows that are not removed."""
        return np.flatnonzero(~self.data["removed"].to_numpy())

    @property
    def removed(self) -> Ints:
        """Numbers of the removed rows."""
        return np.flatnonzero(self.data["removed"].to_numpy())

    @cached_property
    def number_of(self) -> dict[str, int]:
        """Each living row's number by its id."""
        ids = self._keys("id").to_pylist()
        return {ids[number]: number for number in self.living.tolist()}

    def _keys(self, name: str) -> pyarrow.ChunkedArray:
        """Return a column with its letters composed, as ``as_key`` does."""
        column = self.data[name]
        if pyarrow.compute.all(pyarrow.compute.string_is_ascii(column), min_count=0).as_py():
            return column  # ten times as fast as what follows
        # pyarrow's own utf8_normalize fails before 26.
        keys = [value and normalize("NFC", value) for value in column.to_pylist()]
        return pyarrow.chunked_array([keys], pyarrow.string())

    @cached_property
    def questions(self) -> set[str]:
        """The questions, folded; that of a removed row is empty."""
        return {fold(question) for question in self.data["question"].to_pylist()}

    def holds(self, questions: Sequence[str]) -> dict[str, set[str]]:
        """Find the questions that rows already ask, letter by letter, and their answers."""
        wanted = pyarrow.array(questions, pyarrow.string())
        asking = self.data.filter(pyarrow.compute.is_in(self.data["question"], wanted))
        found = defaultdict[str, set[str]](set)
        for row in asking.select(["question", "answer"]).to_pylist():
            found[row["question"]].add(row["answer"])
        return found

    @cached_property
    def groups(self) -> tuple[Ints, Ints]:
        """Code of each row's group (of its answer, where it has none), and living rows per code.

        Shapes: (N,), (G,).
        """
        grouped = pyarrow.compute.is_valid(self.data["group"])
        keys = pyarrow.compute.coalesce(self._keys("group"), self._keys("answer"))
        marks = pyarrow.compute.if_else(grouped, "g", "a")  # names of groups may equal answers
        marked = pyarrow.compute.binary_join_element_wise(marks, keys, "")
        codes = np.asarray(marked.combine_chunks().dictionary_encode().indices, dtype=np.int64)
        sizes = np.bincount(codes[self.living], minlength=int(codes.max(initial=-1)) + 1)
        return codes, sizes

    @cached_property
    def codes_by(self) -> dict[str, dict[str, set[int]]]:
        """Codes of the living rows with each group name, and with each answer."""
        codes = self.groups[0][self.living].tolist()
        found: dict[str, dict[str, set[int]]] = {}
        for key in ("group", "answer"):
            found[key] = defaultdict(set)
            values = self._keys(key).take(self.living).to_pylist()
            for value, code in zip(values, codes, strict=True):
                found[key][value].add(code)
        return found

    def faqs(self, numbers: Sequence[int] | Ints) -> list[Faq]:
        """Return rows by their numbers."""
        rows = self.data.take(np.asarray(numbers, dtype=np.int64)).to_pylist()
        names = ("question", "answer", "group", "id")
        return [
            Faq(**{name: row[name] for name in names}, metadata=read_metadata(row)) for row in rows
        ]

    def with_paraphrases(self, numbers: Sequence[int]) -> list[int]:
        """Add the living rows that ``augment`` generated from these rows' questions alone.

        A row that says the same under another id keeps its paraphrases.
        """
        marked = pyarrow.compute.match_substring(self.data["metadata"], f'"{ORIGIN}"')
        written = np.flatnonzero(marked.to_numpy()).tolist()
        origins = {(row.question, row.answer, row.group) for row in self.faqs(numbers)}
        alike = pyarrow.array([question for question, _, _ in origins], pyarrow.string())
        asking = np.flatnonzero(pyarrow.compute.is_in(self.data["question"], alike).to_numpy())
        others = self.faqs(np.setdiff1d(asking, numbers))
        origins -= {(row.question, row.answer, row.group) for row in others}
        of_these = [
            number
            for number, row in zip(written, self.faqs(written), strict=True)
            if (row.metadata.get(ORIGIN), row.answer, row.group) in origins
        ]
        return list(dict.fromkeys([*numbers, *of_these]))

    def with_rows(self, faqs: Sequence[Faq]) -> FaqTable:
        """Append rows, numbering those without an id; raise a DataError if an id already exists."""
        ids = list(self._new_ids(faqs))
        rows = [
            {
                "id": row_id,
                "question": faq.question,
                "answer": faq.answer,
                "group": faq.group,
                "metadata": json.dumps(dict(faq.metadata), ensure_ascii=False),
                "removed": False,
            }
            for faq, row_id in zip(faqs, ids, strict=True)
        ]
        added = pyarrow.Table.from_pylist(rows, schema=SCHEMA)
        data = pyarrow.concat_tables([self.data, added])
        if data["id"].num_chunks > CHUNKS:
            data = data.combine_chunks()
        table = FaqTable(data)
        table.number_of = self.number_of | {one: len(self) + i for i, one in enumerate(ids)}
        return table

    def _new_ids(self, faqs: Sequence[Faq]) -> Iterator[str]:
        taken = self.number_of
        if twice := next((faq.id for faq in faqs if faq.id in taken), None):
            raise DataError(f"The index already has a row {shorten(twice)}. Update or remove it.")
        given = {faq.id for faq in faqs}
        free = (str(i) for i in count(len(self)) if str(i) not in taken and str(i) not in given)
        for faq in faqs:
            yield next(free) if faq.id is None else faq.id

    def without(self, numbers: Sequence[int]) -> FaqTable:
        """Blank rows, so that nothing of their text remains."""
        gone = np.zeros(len(self), dtype=np.bool_)
        gone[np.asarray(numbers, dtype=np.int64)] = True
        data = self.data
        for name in ("id", "question", "answer", "group", "metadata"):
            blank = pyarrow.scalar(None if name == "group" else "", pyarrow.string())
            blanked = pyarrow.compute.if_else(pyarrow.array(gone), blank, data[name])
            data = data.set_column(SCHEMA.get_field_index(name), SCHEMA.field(name), blanked)
        removed = pyarrow.array(gone | data["removed"].to_numpy())
        place = SCHEMA.get_field_index("removed")
        return FaqTable(data.set_column(place, SCHEMA.field("removed"), removed))

    def with_gaps(self, count: int) -> FaqTable:
        """Append removed rows, for vectors that belong to no row."""
        blank = dict.fromkeys(SCHEMA.names, "") | {"group": None, "removed": True}
        gaps = pyarrow.Table.from_pylist(count * [blank], schema=SCHEMA)
        return FaqTable(pyarrow.concat_tables([self.data, gaps]))

    def codes_of(self, key: str, value: str) -> set[int]:
        """Return the groups that a query's label names by ``id``, ``group`` or ``answer``."""
        if key == "id":
            numbers = [self.number_of[value]] if value in self.number_of else []
            return set(self.groups[0][numbers].tolist())
        return self.codes_by[key].get(value, set())


def read_metadata(row: Mapping[str, str]) -> dict[str, Any]:
    """Read a row's metadata; raise a DataError if it is not the text of a JSON object.

    Example:
        >>> read_metadata({"id": "1", "metadata": '{"page": 3}'})
        {'page': 3}
    """
    try:
        found = json.loads(row["metadata"])
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise DataError(
            f"The metadata of the index's row {shorten(row['id'])} are not a JSON object: "
            f"{shorten(row['metadata'])}. Rebuild the index."
        )
    return found
