"""Files and folders that stand in their place whole or not at all, even after a power cut."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any


def put_in_place(made: Path, place: Path) -> None:
    """Move a finished file or folder to its name in one step, once all of it is on the disk.

    Args:
        made: What was written, on the same file system as ``place``.
        place: Its name. A file there is replaced; a folder, by a folder alone, goes to ``made``'s
            side.

    Raises:
        OSError: If the disk does not take it, or a folder stands where a file is to go; then what
            stands in ``place`` stays there.
    """
    if made.is_file() and place.is_dir():
        raise IsADirectoryError(f"{place} is a folder, and a file is to go there: name another.")
    sync(made)
    if place.is_dir():  # the system replaces a file, but no folder that holds something
        place.rename(made.with_name(f"{made.name}.replaced"))
    made.replace(place)
    _flush(place.parent)


@contextmanager
def whole(place: Path) -> Iterator[Path]:
    """Name a file beside a place to write in the block, and put it there if the block ends well.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder, whole(Path(folder, "faq.txt")) as part:
        ...     part.name, part.write_text("Q")
        ('faq.txt.part', 1)
    """
    part = place.with_name(f"{place.name}.part")
    try:
        yield part
        put_in_place(part, place)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def check_writable(place: Path) -> None:
    """Raise an OSError if a file or folder cannot be made or written there, before work is.

    Example:
        >>> check_writable(Path("outputs/faq"))
    """
    if blocked := next((path for path in place.absolute().parents if path.is_file()), None):
        raise NotADirectoryError(f"{blocked} is a file, so {place} cannot be in it: name another.")
    there = next(path for path in (place, *place.absolute().parents) if path.is_dir())
    try:
        TemporaryFile(dir=there).close()  # os.access allows root what /proc refuses
    except OSError as error:
        problem = f"{there} may not be written to, so {place} cannot be: name another."
        raise PermissionError(problem) from error


def make_room(file: Path, inputs: Sequence[str | Path] = ()) -> None:
    """Make the folder of a file that will be written, or raise as :func:`check_writable` does.

    Raises:
        ValueError: If it is one of the inputs, which would be lost.
    """
    check_writable(file)
    if file.exists() and any(Path(one).exists() and file.samefile(one) for one in inputs):
        raise ValueError(f"{file} is what is read: name another file to write.")
    file.parent.mkdir(parents=True, exist_ok=True)


def write_text(place: Path, text: str) -> None:
    """Write a file of UTF-8 text that stands in its place whole or not at all."""
    with whole(place) as part:
        part.write_text(text, encoding="utf-8")


def write_json(place: Path, content: object, **options: Any) -> None:
    """Write a file of JSON that stands in its place whole or not at all."""
    text = json.dumps(content, indent=2, ensure_ascii=False, **options)
    write_text(place, text + "\n")


def sync(path: Path) -> None:
    """Wait until a file, or a folder with all that is in it, is on the disk."""
    if path.is_dir():
        for child in path.iterdir():
            sync(child)
    _flush(path)


def _flush(path: Path) -> None:
    if path.is_dir() and os.name == "nt":  # Windows opens no folder
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    except OSError as error:
        if not path.is_dir() or error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise  # some file systems of a network sync no folders
    finally:
        os.close(handle)
