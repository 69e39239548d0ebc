"""An index on disk: a manifest, and the folder of data that it names.

A new save writes a new folder of data beside the old one, and then replaces the manifest in one
step. Whatever fails, and whenever the process is killed, the manifest names complete data.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar

from filelock import FileLock

from simbert_hf.utils.atomic import check_writable, name_place, put_in_place, sync
from simbert_hf.utils.textfiles import DataError, fault

MANIFEST = "index.json"
FORMAT = 1
LOCK = "faqindex.lock"  # held by the current save or change; the file is empty
PREFIX = "faqindex-"  # of folders of data, and of manifests that are not in place yet
KEPT = "vectors.parts"  # the folder of what a build has encoded
DATA = re.compile(rf"{PREFIX}[a-f0-9]{{8}}(\.json)?")
NUMBER = int | float
NEEDED = {  # of a manifest
    "rows": int,
    "store": dict,
    "model": dict,
    "votes": int,
    "recall": NUMBER,
    "calibration": dict | None,
}
STORES: dict[str, dict[str, type]] = {
    "faiss": {"kind": str},
    "milvus": {"uri": str, "collection": str, "index_type": str, "count": int},
}
MODEL = dict.fromkeys(("name", "fingerprint", "dtype", "prompt"), str)
CALIBRATION = {
    "target": str,
    "wanted": NUMBER,
    "threshold": NUMBER,
    "interval": list | None,
    "scores": list,
    "kinds": list,
}
NAME = re.compile(r"\w[\w.-]*")
ANEW = "Rebuild the index, or copy it again"

T = TypeVar("T")


def turn(place: Path) -> FileLock:
    """Return the lock of a directory's index, which a thread may hold several times."""
    return FileLock(place.resolve() / LOCK, is_singleton=True)


def write_index(
    place: Path, write: Callable[[Path], dict[str, Any]], saved: dict[Path, str]
) -> None:
    """Save an index to a directory, replacing the one there; saves run one at a time.

    Args:
        place: The directory.
        write: Writes all data into a folder and returns what the manifest says about them.
        saved: By directory, the name of the only folder of data that may be replaced there; any
            may be if it names none. It gets the new name as soon as the new index is in place.

    Raises:
        DataError: If the index there has other data than the known ones.
        ValueError: If the directory holds something else.
        OSError: If the index cannot be written; then the old index stays.
    """
    check_place(place)
    place.mkdir(parents=True, exist_ok=True)
    with turn(place):
        if place in saved:
            check_known(place, saved[place])
        _replace(place, write, saved)


def check_known(place: Path, known: str) -> None:
    """Raise a DataError if a directory has an index with other data than the known ones."""
    if is_index(place) and read_manifest(place)[1].name != known:
        problem = "was saved by another process, or a copy, since this index was loaded"
        raise fault(place, None, problem, "Load it again, and repeat the changes")


def _replace(place: Path, write: Callable[[Path], dict[str, Any]], saved: dict[Path, str]) -> None:
    folder = place / f"{PREFIX}{token_hex(4)}"
    folder.mkdir()
    made = place / f"{folder.name}.json"
    try:
        facts = write(folder)
        sizes = {file.name: file.stat().st_size for file in folder.iterdir()}
        manifest = {"format": FORMAT, "data": folder.name, "files": sizes, **facts}
        made.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
        sync(folder)
        put_in_place(made, place / MANIFEST)
    except BaseException as error:
        name_place(error, place)
        if data_of(place) != folder.name:  # a Ctrl-C may come after that
            made.unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        if data_of(place) == folder.name:
            saved[place] = folder.name
    for old in filter(is_data, place.iterdir()):  # the last save's, and what a kill has left
        if old.is_file():
            with suppress(OSError):
                old.unlink()
        elif old != folder:
            shutil.rmtree(old, ignore_errors=True)


def is_data(path: Path) -> bool:
    """Whether a save made this; an index that a user put there may have such a name too."""
    return bool(DATA.fullmatch(path.name)) and not (path / MANIFEST).exists()


def check_place(place: Path) -> None:
    """Raise an error unless an index can be saved in a directory.

    Raises:
        PermissionError: If it is not writable.
        ValueError: If it holds anything but an index, complete or begun.
    """
    check_writable(place)
    begun = place.is_dir() and all(
        path.name in (LOCK, KEPT) or is_data(path) for path in place.iterdir()
    )
    if place.exists() and not begun and not is_index(place):
        raise ValueError(f"{place} holds something other than an index; name an empty directory.")


def is_index(place: Path) -> bool:
    """Whether a directory holds an index; other tools have an ``index.json`` too."""
    return bool(data_of(place))


def data_of(place: Path) -> str:
    """Name the folder of data of the index in a directory; empty if there is no index."""
    try:
        manifest = json.loads((place / MANIFEST).read_text(encoding="utf-8"))
        named = "format" in manifest and manifest["data"].startswith(PREFIX)
        return str(manifest["data"]) if named else ""
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""


def read_index(place: Path, read: Callable[[dict[str, Any], Path], T]) -> T:
    """Read an index, and read it again if a save has replaced its data meanwhile.

    Args:
        place: Its directory.
        read: Takes what the manifest says and the folder of data.

    Raises:
        DataError: If there is no index, its format is newer, or its data are incomplete.
    """
    while True:
        manifest, folder, sizes = read_manifest(place)
        try:
            check_sizes(sizes)
            return read(manifest, folder)
        except (DataError, OSError):
            if read_manifest(place)[1] == folder:
                raise


def read_manifest(place: Path) -> tuple[dict[str, Any], Path, dict[Path, int]]:
    """Return what the manifest says, the folder of data, and the sizes of the files there.

    Raises:
        DataError: If there is no index, or its format is newer.
    """
    if not (place / MANIFEST).is_file():
        problem = "is not an index" if place.exists() else "does not exist"
        raise fault(
            place,
            None,
            problem,
            "Build one: FaqIndex.build(model, faqs).save(path), or simbert index build",
        )
    try:
        manifest = json.loads((place / MANIFEST).read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT:
            problem = f"has the format {manifest['format']!r}, not {FORMAT}"
            raise fault(place, None, problem, "Install a newer simbert-hf, or rebuild it")
        check_form(manifest)
        folder, sizes = place / _plain(manifest["data"]), manifest["files"]
        return manifest, folder, {folder / _plain(name): size for name, size in sizes.items()}
    except DataError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise fault(place / MANIFEST, None, "is incomplete, or not an index's", ANEW) from None


def check_form(manifest: Mapping[str, Any]) -> None:
    """Raise a TypeError or ValueError unless the values of a manifest are what they must be.

    Example:
        >>> check_form({"rows": "6"})
        Traceback (most recent call last):
        TypeError: rows
    """
    check_types(manifest, NEEDED)
    check_types(manifest["model"], MODEL)
    check_types(manifest["store"], {"type": str})
    check_types(manifest["store"], STORES.get(manifest["store"]["type"], {}))
    check_types(manifest["files"], dict.fromkeys(manifest["files"], int))
    if manifest["votes"] < 1:
        raise ValueError("votes")
    if (known := manifest["calibration"]) is None:
        return
    check_types(known, CALIBRATION)
    ends = [None, None] if known["interval"] is None else known["interval"]
    numbers = [known["threshold"], *known["scores"], *(end for end in ends if end is not None)]
    if len(ends) != 2 or not all(abs(number) <= 10 for number in numbers):  # nor NaN
        raise ValueError("scores")
    if len(known["kinds"]) != len(known["scores"]) or not {*known["kinds"]} <= {0, 1, 2}:
        raise ValueError("kinds")


def check_types(values: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """Raise a TypeError unless a mapping has values of these types, by name."""
    for name, kind in kinds.items():
        value = values.get(name, ...)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise TypeError(name)


def check_sizes(sizes: Mapping[Path, int]) -> None:
    """Raise a DataError unless all files are there in full length."""
    for file, size in sizes.items():
        found = file.stat().st_size if file.is_file() else 0
        if found != size:
            problem = f"is incomplete: {found:,} of {size:,} bytes are there"
            raise fault(file, None, problem, ANEW)


def _plain(name: str) -> str:
    """Refuse a name that leads out of its folder: an index may come from anyone."""
    if not NAME.fullmatch(name):
        raise ValueError(name)
    return name
