"""Files -> numbered rows: decoding, unpacking and parsing; every error names its line."""

from __future__ import annotations

import csv
import gzip
import json
import lzma
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from simbert_hf.utils.text import HAN_CHAR

PACKED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
TABLES = (".csv", ".tsv", ".txt")
OBJECTS = (".jsonl", ".json", ".parquet")
STRUCTURED = (".csv", ".tsv", *OBJECTS)  # no plain sentences
ROW = re.compile(r'.+\t|\{"')  # of a table, or of JSON
BYTE_MARKS = {
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
    b"PK\x03\x04": "an Excel workbook or a zip archive",
    b"\xd0\xcf\x11\xe0": "an old Excel or Word file",
    b"%PDF-": "a PDF",
    b"PAR1\x15": "Parquet without .parquet in its name",
    b"\x1f\x8b": "gzip without .gz in its name",
    b"\xfd7zXZ\0": "xz without .xz in its name",
    b"\x28\xb5\x2f\xfd": "Zstandard",
    b"BZh91AY&SY": "bzip2",
}

Row = dict[str, object]  # column -> value; a blank line is an empty row


class DataError(ValueError):
    """Text that cannot be used; the message names the file and line, the value and the remedy."""


def fault(file: str | Path, line: int | None, problem: str, remedy: str) -> DataError:
    """Make an error that says where, what is wrong, and what to do.

    Example:
        >>> print(fault("pairs.tsv", 3, "a sentence is missing", "Give two cells a line"))
        pairs.tsv:3: a sentence is missing. Give two cells a line.
    """
    place = f"{file}:{line}" if line else f"{file}"
    mark = "" if problem.endswith("?") else "."
    return DataError(f"{place}: {problem}{mark} {remedy}.")


def shorten(value: object, width: int = 60) -> str:
    """Format a value for a message: its repr, truncated if it is long.

    Example:
        >>> shorten("a" * 99, 10)
        "'aaaaaa..."
    """
    text = repr(value)
    return text if len(text) <= width else f"{text[: width - 3]}..."


def separator_of(cells: Sequence[str], otherwise: str) -> str:
    """Blame the separator if a table's row came as one cell that contains another separator.

    Example:
        >>> separator_of(["Question;Answer"], "Rename it")
        "Its cells are parted by ';': save it with commas, or by tabs as .tsv"
    """
    found = next((mark for mark in ";\t，；" if len(cells) == 1 and mark in cells[0]), None)
    if found is None:
        return otherwise
    return f"Its cells are parted by {found!r}: save it with commas, or by tabs as .tsv"


def suffix_of(path: str | Path) -> str:
    """Return the extension of a file, ignoring ``.gz`` and ``.xz``.

    Example:
        >>> suffix_of("pairs.TSV.gz")
        '.tsv'
    """
    path = Path(path)
    if path.suffix.lower() in PACKED:
        path = path.with_suffix("")
    return path.suffix.lower()


def read_lines(path: str | Path) -> Iterator[str]:
    r"""Yield the lines of a UTF-8 text file, without their ends and without byte order marks.

    Such a mark stands at the start, or inside where files were joined or a program quoted it.

    Args:
        path: A plain, ``.gz`` or ``.xz`` file.

    Raises:
        DataError: If a line is not UTF-8, or the compressed file is damaged.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "a.txt")
        ...     _ = path.write_text("one\n\ntwo\n")
        ...     list(read_lines(path))
        ['one', '', 'two']
    """
    opener = PACKED.get(Path(path).suffix.lower(), open)
    with opener(path, "rb") as file:
        yield from decode_lines(path, file)


def decode_lines(name: str | Path, raw: Iterable[bytes]) -> Iterator[str]:
    r"""Do what :func:`read_lines` does for lines of an open file, such as stdin.

    Example:
        >>> list(decode_lines("stdin", [b"\xef\xbb\xbfone\r\n", b"two"]))
        ['one', 'two']
    """
    try:
        for number, line in enumerate(raw, start=1):
            yield _decode(name, number, line)
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
        problem = f"is damaged and cannot be decompressed ({error})"
        raise fault(name, None, problem, "Copy or compress it again") from None


def _decode(path: str | Path, number: int, line: bytes) -> str:
    if number == 1:
        _check_start(path, line)
    if b"\0" in line:  # UTF-16 without a byte order mark decodes as UTF-8, to nonsense
        raise fault(path, number, "holds zero bytes, as UTF-16 does", "Save it as UTF-8 text")
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        bad = shorten(line[max(0, error.start - 8) : error.start + 8])
        problem = f"is not UTF-8 at byte {error.start}: {bad}"
        raise fault(path, number, problem, f"Save it as UTF-8{_hint(line)}") from None
    return text.rstrip("\r\n").replace("\ufeff", "")


def _hint(line: bytes) -> str:
    """Guess a line's Windows encoding: Chinese if most of it would be, or Western."""
    with suppress(UnicodeDecodeError):
        text = line.decode("gb18030")
        if 2 * len(HAN_CHAR.findall(text)) > len(re.findall(r"\w", text)):
            return ", perhaps by iconv -f gb18030 -t utf-8"
    with suppress(UnicodeDecodeError):
        line.decode("cp1252")
        return ", perhaps by iconv -f cp1252 -t utf-8"
    return ""


def _check_start(path: str | Path, line: bytes) -> None:
    for mark, kind in BYTE_MARKS.items():
        if line.startswith(mark):
            remedy = "Save it as UTF-8 text, plain or packed as .gz or .xz"
            raise fault(path, 1, f"looks like {kind}, not UTF-8 text", remedy)
    if b"\r" in line and b"\n" not in line:
        raise fault(path, 1, "ends its lines with CR only", "Save it with line feeds")


def load_sentences(path: str | Path) -> list[str]:
    r"""Read plain sentences, one per line, from a ``.txt`` file, also in ``.gz`` or ``.xz``.

    Blank lines are skipped.

    Raises:
        DataError: If the file is missing, is a table or JSON, is not UTF-8 or has no sentences.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "a.txt")
        ...     _ = path.write_text("Is it late?\n\nIt is.\n")
        ...     load_sentences(path)
        ['Is it late?', 'It is.']
    """
    check_plain(path, "; pairs and triplets go to train_simcse.py with --examples")
    sentences = [text for line in read_lines(path) if (text := line.strip())]
    if not sentences:
        raise fault(path, None, "holds no sentence", "Write one sentence per line")
    some = sentences[:1000]
    if 2 * sum(map(bool, map(ROW.match, some))) > len(some):
        problem = f"holds rows, not one sentence per line: {shorten(sentences[0])}"
        raise fault(path, None, problem, "Keep only the sentences")
    return sentences


def check_plain(path: str | Path, hint: str = "") -> None:
    """Raise a :class:`DataError` unless the path is a file that is not a table or JSON.

    Example:
        >>> check_plain(__file__)
    """
    check_exists(path)
    if (suffix := suffix_of(path)) in STRUCTURED:
        remedy = f"Write one sentence per line to a .txt file{hint}"
        raise fault(path, None, f"holds rows ({suffix}), not one sentence per line", remedy)


def check_exists(path: str | Path) -> None:
    """Raise a :class:`DataError` unless the path is a file.

    Raises:
        TypeError: If it is not a path.

    Example:
        >>> check_exists(__file__)
    """
    if not isinstance(path, str | PathLike):
        raise TypeError(f"Give the path of a file, not a {type(path).__name__}; rows need no file.")
    if path == "":
        raise DataError("The name of a file is empty: was a variable of the shell not set?")
    for file, split in (("dataset_info.json", ""), ("dataset_dict.json", "['train']")):
        if Path(path, file).exists():
            remedy = f"Convert it: datasets.load_from_disk(...){split}.to_parquet('rows.parquet')"
            raise fault(path, None, "is a data set saved by save_to_disk", remedy)
    if Path(path).is_dir():
        raise fault(path, None, "is a folder", "Pass the files inside it, as a list")
    if not Path(path).is_file():
        problem, remedy = "is not a file", f"Check the path; this process runs in {Path.cwd()}"
        if Path(path).exists():  # /dev/stdin, or <(zcat pairs.tsv.gz)
            problem = "is a pipe or a device, not a file"
            remedy = "Write what it holds to a file, which is read more than once"
        raise fault(path, None, problem, remedy)


def read_cells(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    r"""Yield line numbers and cells of a table; a blank line has no cells.

    Commas separate the cells of ``.csv``, whose quotes may hold commas, quotes and line ends; tabs
    separate those of ``.tsv`` and ``.txt``, where a quote is an ordinary character.

    Raises:
        DataError: If a quote is not closed, or is misplaced.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "a.csv")
        ...     _ = path.write_text('s1,s2\n"Yes, now",Now\n')
        ...     list(read_cells(path))
        [(1, ['s1', 's2']), (2, ['Yes, now', 'Now'])]
    """
    if suffix_of(path) == ".csv":
        yield from _comma_cells(path)
        return
    for number, line in enumerate(read_lines(path), start=1):
        yield number, line.split("\t") if line.strip() else []


def _comma_cells(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader((f"{line}\n" for line in read_lines(path)), strict=True)
    start = 1
    try:
        for cells in reader:
            yield start, cells if any(map(str.strip, cells)) else []
            start = reader.line_num + 1
    except csv.Error as error:
        remedy = 'Put quotes around the whole cell, double those inside it ("") and close them'
        if "limit" in str(error):
            problem = (
                f"holds a cell of more than {csv.field_size_limit():,} characters from here on"
            )
            raise fault(path, start, problem, "Close its quotes, or shorten it") from None
        if "new-line" in str(error):
            problem = "holds a carriage return (CR) outside quotes, here or in the next lines"
            raise fault(path, start, problem, "End every line with a line feed") from None
        first = next(iter(read_lines(path)))
        remedy = remedy if "," in first else separator_of([first], remedy)
        raise fault(path, start, f"is not valid CSV from here on ({error})", remedy) from None


def read_objects(path: str | Path) -> Iterator[tuple[int, Row]]:
    r"""Yield line numbers and records of JSON lines, or row numbers and rows of Parquet.

    Raises:
        DataError: If a line is not one complete JSON object, or the Parquet file is damaged.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "a.jsonl")
        ...     _ = path.write_text('{"text": "Hi", "synonyms": ["Hello"]}\n')
        ...     list(read_objects(path))
        [(1, {'text': 'Hi', 'synonyms': ['Hello']})]
    """
    if suffix_of(path) == ".parquet":
        yield from _parquet_rows(path)
        return
    for number, line in enumerate(read_lines(path), start=1):
        yield number, _json_object(path, number, line) if line.strip() else {}


def _unique(pairs: list[tuple[str, object]]) -> Row:
    """Make an object of its names and values; raise a ValueError if a name is given twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"it has two values of {shorten(twice)}")
    return found


_JSON = json.JSONDecoder(object_pairs_hook=_unique)  # json.loads would make one per line


def _json_object(path: str | Path, number: int, line: str) -> Row:
    try:
        value = _JSON.decode(line)
    except json.JSONDecodeError as error:
        raise _json_fault(path, number, line, error) from None
    except (ValueError, RecursionError) as error:  # a number too long or nested too deeply
        problem = f"is not a record ({error})"
        raise fault(path, number, problem, "Mend the line, or remove it") from None
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        raise _array_fault(path, number)
    problem = f"holds {shorten(value)}, not a JSON object"
    raise fault(path, number, problem, "Write one JSON object per line")


def _json_fault(path: str | Path, number: int, line: str, error: json.JSONDecodeError) -> DataError:
    if line.lstrip().startswith("["):
        return _array_fault(path, number)
    at_end = error.pos >= len(line.rstrip()) or error.msg.startswith("Unterminated string")
    if at_end and line.lstrip().startswith("{"):
        remedy = r"Write each record on one line, with line ends inside a sentence as \n"
        return fault(path, number, f"the record {shorten(line)} does not end on its line", remedy)
    problem = f"is not JSON at column {error.colno} ({error.msg}): {shorten(line)}"
    return fault(path, number, problem, "Write one JSON object per line")


def _array_fault(path: str | Path, number: int) -> DataError:
    remedy = "Write one object per line, e.g. with: jq -c '.[]' in.json > out.jsonl"
    return fault(path, number, "begins a JSON array, not JSON lines", remedy)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file; raise a DataError if it holds none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} does not hold a JSON object.")
    return content


def _parquet_rows(path: str | Path) -> Iterator[tuple[int, Row]]:
    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if twice := next((name for name in names if names.count(name) > 1), None):
                problem = f"has two columns {twice!r}"
                raise fault(path, None, problem, "Rename or drop one of them")
            for batch in file.iter_batches(batch_size=1000):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except UnicodeDecodeError as error:
        problem = f"holds text that is not UTF-8, in row {number + 1} or later ({error.reason})"
        raise fault(path, None, problem, "Write it again from text") from None
    except (pyarrow.ArrowInvalid, OSError) as error:
        remedy = "Write it again, or check its extension"
        raise fault(path, None, f"is not a complete Parquet file ({error})", remedy) from None
    except (OverflowError, KeyError) as error:  # years above 9999, unknown time zones
        problem = f"holds a value that Python has none for, in row {number + 1} or later ({error})"
        raise fault(path, None, problem, "Drop its column, or write it as text") from None
