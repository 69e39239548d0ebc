"""Text -> a data set of groups: sentences that mean the same, with counts of what was wrong.

A data set of groups has two columns: ``texts``, two or more different sentences, and ``group``.
Rows that share a sentence, directly or through others, have the same ``group``: sentences of one
``group`` are never negatives of each other, and a split never separates them.
"""

from __future__ import annotations

import errno
import logging
import re
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np

from simbert_hf.data.grouping import RECORD_FEATURES, DataReport, group_records, no_groups
from simbert_hf.data.readers import (
    DataFormat,
    ReadOptions,
    describe_columns,
    describe_file,
    read_rows,
)
from simbert_hf.data.records import USABLE, Record, read_records
from simbert_hf.data.sampling import FixedPairs
from simbert_hf.utils.text import fold
from simbert_hf.utils.textfiles import (
    OBJECTS,
    TABLES,
    DataError,
    Row,
    check_exists,
    fault,
    load_sentences,
    suffix_of,
)

logger = logging.getLogger(__name__)

READER_VERSION = 6  # raise it when files are read differently: it renews the caches
SHOWN = 10  # sources that the log describes
FEW_GROUPS = 10  # of fewer, none is held out by default
HUB_ID = re.compile(r"\w[\w.-]*/[\w.-]+")
REFUSED = {  # a write
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT,
    errno.ENOTDIR,
}  # fmt: skip


def load_groups(
    source: str | Path | datasets.Dataset | Sequence[str | Path | datasets.Dataset],
    *,
    data_format: DataFormat = "auto",
    text_columns: Sequence[str] | None = None,
    max_chars: int | None = None,
    streaming: bool = False,
    cache_dir: str | Path | None = None,
    split: str = "train",
    **hub_options: Any,
) -> tuple[datasets.Dataset | datasets.IterableDataset, DataReport]:
    r"""Read groups of sentences that mean the same.

    Args:
        source: A file (``.jsonl``, ``.json``, ``.csv``, ``.tsv``, ``.txt``, each also ``.gz`` or
            ``.xz``, or ``.parquet``), a Hub id ``org/name``, a ``datasets.Dataset`` of such rows,
            or several of them.
        data_format: What the rows hold, if their columns do not tell: see
            :mod:`simbert_hf.data.readers`.
        text_columns: The two columns to read.
        max_chars: Count sentences with more characters as over-long; None counts none.
        streaming: Read while training, and keep nothing: ``group`` then numbers the rows without
            looking for shared sentences or duplicates, and rows of one group must be neighbours.
        cache_dir: Where to keep the data set; the cache of ``datasets`` if None.
        split: Split of a Hub data set.
        hub_options: ``name``, ``revision``, ``token`` and more for ``datasets.load_dataset``.

    Returns:
        The data set, memory-mapped unless streamed, and a report of counts.

    Raises:
        DataError: If a source is missing, does not parse or contains no group.
        OSError: If the cache cannot be written.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "groups.jsonl")
        ...     _ = path.write_text(
        ...         '{"text": "Hi", "synonyms": ["Hello", "Hey"]}\n'
        ...         '{"text": "Hello", "synonyms": ["Good day"]}\n'
        ...         '{"text": "Bye", "synonyms": ["So long"]}\n'
        ...     )
        ...     groups, report = load_groups(path, cache_dir=folder)
        ...     groups["group"][:], groups[0]
        ([0, 0, 1], {'texts': ['Hi', 'Hello', 'Hey'], 'group': 0})
    """
    columns = None if text_columns is None else tuple(text_columns)
    options = ReadOptions(data_format, columns, max_chars, consecutive=streaming)
    sources = _find_sources(source, {"split": split, "streaming": streaming, **hub_options})
    name = ", ".join(dict.fromkeys(source.name for source in sources))
    by_name = {source.name: source for source in sources}  # shards share a name
    for source in [*by_name.values()][:SHOWN]:
        logger.info("%s: %s", source.name, source.describe(options) or "empty")
    if streaming:
        return _stream(name, sources, options), DataReport(max_chars=max_chars, counted=False)
    with _caching(Path(cache_dir or datasets.config.HF_DATASETS_CACHE), by_name):
        return group_records(name, _read_all(sources, options, cache_dir), max_chars)


def load_texts(path: str | Path) -> list[str]:
    """Read sentences, one per line, or those of groups (``.jsonl``, ``.json``).

    Raises:
        DataError: As :func:`load_sentences` and :func:`load_groups` do.
    """
    if ".json" not in Path(path).name:
        return load_sentences(path)
    groups: Any = load_groups(path)[0]
    return [text for texts in groups["texts"] for text in texts]


def usual_share(groups: datasets.Dataset) -> int:
    """Return how many groups training holds out by default.

    Example:
        >>> def apart(groups):
        ...     return datasets.Dataset.from_dict({"group": range(groups)})
        >>> [usual_share(apart(groups)) for groups in (9, 10, 90, 9000)]
        [0, 2, 9, 500]
    """
    sizes = _components(groups)[1]
    least = int(np.sort(sizes)[:2].sum())  # as in split_groups
    if len(groups) < FEW_GROUPS or len(sizes) < 3 or 5 * least > len(groups):
        return 0
    return max(min(500, len(groups) // 10), least)


def split_groups(
    groups: datasets.Dataset, n_validation_groups: int, seed: int
) -> tuple[datasets.Dataset, datasets.Dataset]:
    """Hold out groups at random, so that no sentence is on both sides.

    Rows of one ``group`` stay together, and at least two such sets are held out, as retrieval
    among the sentences of a single one always succeeds.

    Args:
        groups: A data set of groups.
        n_validation_groups: Number of rows to hold out; fewer if no set of rows fits exactly.
        seed: Random seed for the choice of rows.

    Returns:
        The data sets for training and for validation.

    Raises:
        DataError: If either would be empty, or the second had a single ``group``.

    Example:
        >>> texts = [["a", "b"], ["b", "c"], ["d", "e"], ["f", "g"]]
        >>> groups = datasets.Dataset.from_dict({"texts": texts, "group": [0, 0, 1, 2]})
        >>> train, validation = split_groups(groups, 2, seed=0)
        >>> train["group"][:], validation["group"][:]
        ([0, 0], [1, 2])
    """
    components, sizes, rows = _components(groups)
    _check_split(n_validation_groups, sizes)
    smallest, second = np.sort(sizes)[:2]
    chosen: list[int] = []
    room = n_validation_groups
    for i in np.random.default_rng(seed).permutation(len(components)):
        other = second if sizes[i] == smallest else smallest  # must fit besides the first
        if sizes[i] + (0 if chosen else other) <= room:
            chosen.append(int(components[i]))
            room -= int(sizes[i])
        if room == 0:
            break
    held_out = np.isin(rows, chosen)
    return groups.select(np.flatnonzero(~held_out)), groups.select(np.flatnonzero(held_out))


def _components(groups: datasets.Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the distinct values of ``group``, the number of rows of each, and each row's value."""
    rows = np.asarray(groups.with_format("numpy")["group"][:])
    return *np.unique(rows, return_counts=True), rows


def _check_split(n_validation: int, sizes: np.ndarray) -> None:
    least, most = int(np.sort(sizes)[:2].sum()), int(sizes.sum()) - 1
    if len(sizes) > 2 and least <= n_validation <= most:
        return
    remedy = f"choose a number from {least} to {most}"
    if len(sizes) < 3:
        remedy = "hold out none (--validation_groups 0), or name a --validation_file"
    raise DataError(
        f"{n_validation} of {sizes.sum()} groups cannot be held out, as two that share no sentence "
        f"must be, and one must be left: {remedy}."
    )


# Sources ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Source:
    """A file or Hub data set to read; its size and time renew the cache when it changes."""

    number: int
    name: str
    size: int = 0
    mtime_ns: int = 0
    place: str = ""
    rows: Any = None  # a data set, of the Hub or given

    def records(
        self, options: ReadOptions, named: dict[str, str] | None = None
    ) -> Iterator[Record]:
        rows: Iterator[tuple[int, Row]] = (
            read_rows(self.name, options)
            if self.rows is None
            else enumerate(_single(self.rows), start=1)
        )
        return read_records(self.name, rows, options, named)

    def describe(self, options: ReadOptions) -> str:
        if self.rows is None:
            return describe_file(self.name, options)
        columns = self.rows.column_names  # unknown so far for some streamed data sets
        return describe_columns(self.name, columns, options) if columns else "streamed"


def _single(rows: Any) -> Iterator[Row]:
    """Yield all rows of a data set, in workers too, to which shards are assigned elsewhere."""
    for columns in rows.iter(100):
        for values in zip(*columns.values(), strict=True):
            yield dict(zip(columns, values, strict=True))


def _find_sources(source: Any, hub_options: dict[str, Any]) -> list[_Source]:
    given = list(source) if isinstance(source, list | tuple) else [source]
    if not given:
        raise DataError("No source was given. Pass a file or a Hub id.")
    found: list[_Source] = []
    for item in given:
        if isinstance(item, datasets.Dataset):
            name = f"data set {len(found) + 1}" if given[1:] else "the data set"
            found.append(_Source(len(found), name, rows=item.with_format(None)))
        elif not isinstance(item, str | Path):
            raise DataError(f"Give a file, a Hub id or one split of a Dataset, not {type(item)}.")
        elif is_local(item):
            found.append(_local(len(found), item))
        else:
            found += _remote(len(found), str(item), hub_options)
    return found


def is_local(item: str | Path) -> bool:
    """Return whether a source is a file, not a Hub id; one that is neither counts as a file."""
    if isinstance(item, Path) or not HUB_ID.fullmatch(item):
        return True
    return Path(item).exists() or suffix_of(item) in (*TABLES, *OBJECTS)


def _local(number: int, item: str | Path) -> _Source:
    if not Path(item).exists():
        problem = "is neither a file nor a Hub id of the form org/name"
        raise fault(item, None, problem, f"Check the path; this process runs in {Path.cwd()}")
    check_exists(item)
    stat = Path(item).stat()
    place = str(Path(item).resolve())  # so that equal relative names do not share a cache
    return _Source(number, str(item), stat.st_size, stat.st_mtime_ns, place)


def _remote(number: int, item: str, hub_options: dict[str, Any]) -> list[_Source]:
    """Open a Hub data set; a streamed one has one source per shard."""
    try:
        rows = datasets.load_dataset(item, **hub_options)
    except Exception as error:  # errors of the Hub and its parsers have no common class
        problem = f"is not a file, nor available on the Hub ({type(error).__name__}: {error})"
        remedy = "Check the path or id, the split, the token and the network"
        raise fault(item, None, problem, remedy) from error
    if not hub_options["streaming"]:
        return [_Source(number, item, rows=rows)]
    shards = rows.num_shards
    return [_Source(number + i, item, rows=rows.shard(shards, i)) for i in range(shards)]


# Reading ----------------------------------------------------------------------------------------


def _generate(sources: tuple[_Source, ...], options: ReadOptions, version: int) -> Iterator[Record]:
    """Yield every record; ``version`` only serves to be hashed with the rest."""
    named: dict[str, str] = {}
    for source in sources:
        yield from source.records(options, named)


def _read_all(
    sources: list[_Source], options: ReadOptions, cache_dir: str | Path | None
) -> datasets.Dataset:
    """Write all records to the cache, or find them there."""
    try:
        return datasets.Dataset.from_generator(
            _generate,
            features=RECORD_FEATURES,
            cache_dir=None if cache_dir is None else str(cache_dir),
            gen_kwargs={  # a list would be split into shards
                "sources": tuple(sources),
                "options": options,
                "version": READER_VERSION,
            },
        )
    except Exception as error:
        ours = next((each for each in _chain(error) if isinstance(each, DataError)), None)
        if ours is None:
            raise
        raise ours from None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and those that ``datasets`` has wrapped it around."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


@contextmanager
def _caching(place: Path, sources: Container[str]) -> Iterator[None]:
    """Say which cache could not be written, and how to choose another."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # datasets' own is neither an OSError nor says why
        refused = (
            each
            for each in _chain(error)
            if isinstance(each, OSError)
            and (each.errno in REFUSED or "disk space" in str(each))
            and str(each.filename) not in sources
        )
        if (cause := next(refused, None)) is None:
            raise
        why = cause.strerror or "not enough disk space"
        raise OSError(
            f"{place}, the cache of data sets, cannot be written ({why}): set HF_HOME to a folder "
            "with room that you may write to."
        ) from error


def _stream(name: str, sources: list[_Source], options: ReadOptions) -> datasets.IterableDataset:
    stream = datasets.IterableDataset.from_generator(  # features would cast each row: slow
        _stream_groups, gen_kwargs={"sources": sources, "options": options}
    )
    if next(iter(stream), None) is None:  # also finds unknown columns before training starts
        raise no_groups(name, "none in the whole stream")
    return stream


def _stream_groups(sources: list[_Source], options: ReadOptions) -> Iterator[dict[str, Any]]:
    """Yield usable groups, with the same number whichever worker reads them."""
    for source in sources:
        usable = (record for record in source.records(options) if record["fate"] == USABLE)
        for i, record in enumerate(usable):
            yield {"texts": record["texts"], "group": (source.number << 40) + i}


def labelled_sentences(groups: datasets.Dataset, seed: int = 0) -> FixedPairs:
    """Make every sentence an example of its group, with the classes numbered 0, 1, 2, ...

    Rows that share a sentence have one ``group`` and so are one class; each sentence occurs once.

    Args:
        groups: A data set of groups.
        seed: Random seed of the examples.

    Returns:
        Sentences with their ``label``.

    Example:
        >>> texts = [["Hi", "Hello"], ["Bye", "So long"], ["hello", "Hey"]]
        >>> rows = datasets.Dataset.from_dict({"texts": texts, "group": [7, 9, 7]})
        >>> [(row["source"], row["label"]) for row in labelled_sentences(rows)]
        [('Hi', 0), ('Hello', 0), ('Bye', 1), ('So long', 1), ('Hey', 0)]
    """
    number: dict[int, int] = {}
    found: dict[str, tuple[str, int]] = {}
    for row in groups:
        label = number.setdefault(row["group"], len(number))
        for text in row["texts"]:
            found.setdefault(fold(text), (text, label))
    sentences, labels = zip(*found.values(), strict=True)
    return FixedPairs({"source": sentences, "target": sentences, "label": labels}, seed)
