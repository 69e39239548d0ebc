"""Records -> groups: drop duplicates, number connected components, count everything.

Sentences are compared by 64-bit hashes in numpy arrays, so that tens of millions of groups fit in
memory; among 50 million sentences, two share a hash by chance in one of 15,000 data sets.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path

import datasets
import numpy as np
import pyarrow
from datasets.arrow_writer import ArrowWriter
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from simbert_hf.data.records import BLANK, NEGATIVE, ONE_MEMBER, USABLE
from simbert_hf.data.sampling import mix
from simbert_hf.utils.arrays import Hashes, Ints
from simbert_hf.utils.atomic import whole, write_text
from simbert_hf.utils.text import counted, fold
from simbert_hf.utils.textfiles import DataError, fault, shorten

CHUNK = 10_000  # rows processed at once

RECORD_FEATURES = datasets.Features(
    {
        "texts": datasets.List(datasets.Value("string")),
        "fate": datasets.Value("int8"),
        "empty": datasets.Value("int32"),
        "repeats": datasets.Value("int32"),
        "over_long": datasets.Value("int32"),
    }
)
GROUP_FEATURES = datasets.Features(
    {"texts": datasets.List(datasets.Value("string")), "group": datasets.Value("int64")}
)


@dataclass(frozen=True)
class DataReport:
    """What was read, and what was left out.

    Attributes:
        records: Records read (except blank lines).
        groups: Groups kept, one per row of the data set.
        components: Distinct values of ``group``: sets of rows that share no sentence.
        sentences: Different sentences in the kept groups.
        duplicates: Records left out because an earlier one has the same sentences, in any order.
        one_member: Records left out because fewer than two different sentences remain.
        negatives: Records left out because their label is 0.
        repeats: Sentences left out because their record repeats them.
        empty: Empty sentences and blank lines left out.
        over_long: Sentences with more than ``max_chars`` characters; kept, to be cut later.
        max_chars: That limit.
        commonest: The sentence that occurs in most groups, which it connects.
        in_groups: The number of these groups.
        counted: False for a stream, whose rows are first read in training: all counts are 0.

    Example:
        >>> print(DataReport(records=3, groups=2, components=2, sentences=4, duplicates=1))
        3 records -> 2 groups (2 unconnected) of 4 sentences; left out: 1 duplicate record
    """

    records: int = 0
    groups: int = 0
    components: int = 0
    sentences: int = 0
    duplicates: int = 0
    one_member: int = 0
    negatives: int = 0
    repeats: int = 0
    empty: int = 0
    over_long: int = 0
    max_chars: int | None = None
    commonest: str = ""
    in_groups: int = 0
    counted: bool = True

    def __str__(self) -> str:
        if not self.counted:
            return "streamed: rows are checked as they are read, and not counted"
        left_out = (
            (self.duplicates, "duplicate record", ""),
            (self.one_member, "one-member record", ""),
            (self.negatives, "record", " labelled 0"),
            (self.repeats, "sentence", " repeated in a record"),
            (self.empty, "empty sentence", ""),
        )
        found = [f"{counted(count, noun)}{more}" for count, noun, more in left_out if count]
        text = (
            f"{counted(self.records, 'record')} -> {counted(self.groups, 'group')} "
            f"({self.components:,} unconnected) of {counted(self.sentences, 'sentence')}; "
            f"left out: {', '.join(found) or 'nothing'}"
        )
        if self.over_long:
            text += (
                f"; {counted(self.over_long, 'sentence')} of more than {self.max_chars} characters"
            )
            text += ", which training may cut"
        if self.in_groups > max(3, self.groups // 100):
            text += f"; {self.in_groups:,} groups are connected by {shorten(self.commonest)}"
        return text


def group_records(
    name: str, records: datasets.Dataset, max_chars: int | None
) -> tuple[datasets.Dataset, DataReport]:
    """Turn a cached data set of records into one of groups, cached in the same folder.

    Raises:
        DataError: If no group remains.
    """
    folder = Path(records.cache_files[0]["filename"]).parent
    groups_file, report_file = folder / "groups.arrow", folder / "groups.json"
    if not report_file.exists():  # it is written last
        report, numbers = _analyse(records, max_chars)
        if report.groups == 0:
            raise no_groups(name, str(report))
        with whole(groups_file) as part:  # other processes may read it
            _write_groups(part, records, numbers)
        write_text(report_file, json.dumps(asdict(report)))
    report = DataReport(**json.loads(report_file.read_text(encoding="utf-8")))
    return datasets.Dataset.from_file(str(groups_file)), report


def no_groups(name: str, what: str) -> DataError:
    """Make the error for a source without any pair of sentences.

    Example:
        >>> print(no_groups("a.jsonl", "2 one-member records"))
        a.jsonl: no two different sentences stand together (2 one-member records). Give ...
    """
    problem = f"no two different sentences stand together ({what})"
    remedy = "Give each record two sentences that mean the same, or two sentences the same label"
    return fault(name, None, problem, remedy)


def hash_sentences(texts: list[str]) -> Hashes:
    """Hash sentences; those that differ only in case or white space are equal: (S,).

    Example:
        >>> a, b, c = hash_sentences(["Hi there", "hi  there", "Hi"])
        >>> bool(a == b), bool(a == c)
        (True, False)
    """
    digests = (blake2b(fold(text).encode(), digest_size=8).digest() for text in texts)
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


def find_components(hashes: Hashes, sizes: Ints) -> tuple[Ints, int]:
    """Number the connected components of rows that share sentences.

    Args:
        hashes: Sentences of all rows, one row after the other, different within a row: (S,).
        sizes: Number of sentences in each row: (G,).

    Returns:
        The number of each row's component, from 0: (G,); and the number of different sentences.

    Example:
        >>> sentences = hash_sentences(["a", "b", "c", "d", "b", "e"])
        >>> find_components(sentences, np.array([2, 2, 2]))
        (array([0, 1, 0]), 5)
    """
    order = np.argsort(hashes)
    hashes = hashes[order]
    rows = np.repeat(np.arange(len(sizes)), sizes)[order]
    shared = np.flatnonzero(hashes[1:] == hashes[:-1])  # one edge per repetition
    edges = (np.ones(len(shared), dtype=np.int8), (rows[shared], rows[shared + 1]))
    graph = coo_array(edges, shape=(len(sizes), len(sizes)))
    _, labels = connected_components(graph, directed=False)
    return labels.astype(np.int64), len(hashes) - len(shared)


def find_first(hashes: Hashes, sizes: Ints) -> NDArray[np.bool_]:
    """Return for each row whether no earlier row has the same sentences, in any order: (G,).

    Example:
        >>> sentences = hash_sentences(["a", "b", "b", "a", "a", "c"])
        >>> find_first(sentences, np.array([2, 2, 2]))
        array([ True, False,  True])
    """
    sets = np.add.reduceat(mix(hashes), np.cumsum(sizes) - sizes)
    first = np.zeros(len(sizes), dtype=bool)
    first[np.unique(sets, return_index=True)[1]] = True
    return first


def find_commonest(hashes: Hashes) -> tuple[int, int]:
    """Return the first position of the most frequent of (S,) sentences, and how often it occurs.

    Example:
        >>> find_commonest(hash_sentences(["a", "b", "c", "d", "B", "e"]))
        (1, 2)
    """
    _, places, counts = np.unique(hashes, return_index=True, return_counts=True)
    most = counts.argmax()
    return int(places[most]), int(counts[most])


def _chunks(records: datasets.Dataset) -> Iterator[pyarrow.Table]:
    yield from records.with_format("arrow").iter(CHUNK)


def _analyse(records: datasets.Dataset, max_chars: int | None) -> tuple[DataReport, Ints]:
    """Count everything, and return each record's group, or -1 if it is left out: (N,)."""
    fates = np.concatenate([table["fate"].to_numpy() for table in _chunks(records)])
    numbers = np.full(len(fates), -1, dtype=np.int64)
    duplicates = components = sentences = in_groups = 0
    commonest = ""
    if (fates == USABLE).any():
        hashes, sizes = _usable(records)
        first = find_first(hashes, sizes)
        hashes, sizes = hashes[np.repeat(first, sizes)], sizes[first]
        groups, sentences = find_components(hashes, sizes)
        kept = np.flatnonzero(fates == USABLE)[first]
        numbers[kept] = groups
        duplicates, components = int((~first).sum()), int(groups.max()) + 1
        at, in_groups = find_commonest(hashes)
        row = np.searchsorted(np.cumsum(sizes), at, side="right")
        texts = records[int(kept[row])]["texts"]
        commonest = texts[list(hash_sentences(texts)).index(hashes[at])]
    report = DataReport(
        records=int((fates != BLANK).sum()),
        groups=int((numbers >= 0).sum()),
        components=components,
        sentences=sentences,
        duplicates=duplicates,
        one_member=int((fates == ONE_MEMBER).sum()),
        negatives=int((fates == NEGATIVE).sum()),
        repeats=_total(records, "repeats"),
        empty=_total(records, "empty"),
        over_long=_total(records, "over_long"),
        max_chars=max_chars,
        commonest=commonest,
        in_groups=in_groups,
    )
    return report, numbers


def _usable(records: datasets.Dataset) -> tuple[Hashes, Ints]:
    """Hash the sentences of all usable records: (S,), with their number in each: (G,)."""
    hashes, sizes = [], []
    for table in _chunks(records):
        texts = table.filter(pyarrow.array(table["fate"].to_numpy() == USABLE))["texts"]
        texts = texts.combine_chunks()
        hashes.append(hash_sentences(texts.flatten().to_pylist()))
        sizes.append(texts.value_lengths().to_numpy().astype(np.int64))
    return np.concatenate(hashes), np.concatenate(sizes)


def _total(records: datasets.Dataset, column: str) -> int:
    return sum(int(table[column].to_numpy().sum()) for table in _chunks(records))


def _write_groups(path: Path, records: datasets.Dataset, numbers: Ints) -> None:
    with ArrowWriter(path=str(path), features=GROUP_FEATURES) as writer:
        for i, table in enumerate(_chunks(records)):
            group = numbers[i * CHUNK : (i + 1) * CHUNK]
            kept = table.select(["texts"]).filter(pyarrow.array(group >= 0))
            writer.write_table(kept.append_column("group", pyarrow.array(group[group >= 0])))
        writer.finalize()
