"""Atomic writes: files and folders that are complete or absent, even after a power failure."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from safetensors import SafetensorError

from simbert_hf.utils.locks import in_turn

SCRATCH = "_saving"  # a folder for what is not complete yet


def put_in_place(made: Path, place: Path) -> None:
    """Move a finished file or folder to its final name in one step, once it is all on the disk.

    Args:
        made: What was written, on the same file system as ``place``.
        place: Its final name. A file there is replaced; a folder, which only a folder replaces, is
            moved beside ``made``.

    Raises:
        OSError: If writing fails, or ``place`` is a folder but ``made`` is a file; then ``place``
            is left unchanged.
    """
    if made.is_file() and place.is_dir():
        raise IsADirectoryError(f"{place} is a folder, not a file: name another.")
    sync(made)
    if place.is_dir():  # the system replaces files, but no folders with content
        place.rename(made.with_name(f"{made.name}.replaced"))
    made.replace(place)
    _flush(place.parent)


@contextmanager
def whole(place: Path) -> Iterator[Path]:
    """Yield a file beside ``place`` to write to, and move it there if the block succeeds.

    Processes that write to one place take turns: the last one's file stays.

    Raises:
        OSError: If writing fails; it names the place, which the system does not on a full disk.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder, whole(Path(folder, "faq.txt")) as part:
        ...     part.name, part.write_text("Q")
        ('faq.txt.part', 1)
    """
    part = place.with_name(f"{place.name}.part")
    with in_turn(place.with_name(f"{place.name}.turn"), place):
        try:
            part.unlink(missing_ok=True)  # of a process that was killed, or another user's link
            yield part
            put_in_place(part, place)
        except BaseException as error:
            name_place(error, place)
            part.unlink(missing_ok=True)
            raise


def name_place(error: BaseException, place: Path) -> None:
    """Let an error of the system say where it failed; on a full disk, it does not.

    Example:
        >>> full = OSError(28, "No space left on device")
        >>> name_place(full, Path("outputs"))
        >>> print(full)
        [Errno 28] No space left on device: 'outputs'
    """
    if isinstance(error, OSError) and error.errno and error.filename is None:
        error.filename = str(place)
    if isinstance(error, SafetensorError):
        error.args = (f"{error}: '{place}'",)


@contextmanager
def scratch(made: Path) -> Iterator[Path]:
    """Make a folder for what is not complete yet, and remove it at the end; processes take turns.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder, scratch(Path(folder, ".faq")) as made:
        ...     made.is_dir()
        True
    """
    with in_turn(made.parent):
        shutil.rmtree(made, ignore_errors=True)  # of a process that was killed
        try:
            made.mkdir()
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)


@contextmanager
def filled(place: Path, last: str = ".safetensors") -> Iterator[Path]:
    """Yield a folder in ``place`` to fill, and move what it holds there if the block succeeds.

    Files whose names end with ``last`` are moved last. Without its weights, no loader takes a part
    of a model for a whole one. Processes that fill one folder take turns.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with filled(Path(folder, "out")) as made:
        ...         _ = (made / "config.json").write_text("{}")
        ...     [path.name for path in Path(folder, "out").iterdir()]
        ['config.json']
    """
    place.mkdir(parents=True, exist_ok=True)
    try:
        with scratch(place / SCRATCH) as made:
            yield made
            for part in sorted(made.iterdir(), key=lambda path: path.name.endswith(last)):
                put_in_place(part, place / part.name)
    except BaseException as error:
        name_place(error, place)
        raise


def check_writable(place: Path) -> None:
    """Raise an OSError, before any work is done, if a file or folder cannot be written there.

    Example:
        >>> check_writable(Path("outputs/faq"))
    """
    if blocked := next((path for path in place.absolute().parents if path.is_file()), None):
        raise NotADirectoryError(f"{blocked} is a file, so {place} cannot be in it: name another.")
    there = next(path for path in (place, *place.absolute().parents) if path.is_dir())
    try:
        TemporaryFile(dir=there).close()  # os.access says yes to root where /proc refuses
    except OSError as error:
        problem = f"{there} is not writable, so {place} cannot be made: name another."
        raise PermissionError(problem) from error


def make_room(file: Path, inputs: Sequence[str | Path] = ()) -> None:
    """Make the folder of a file to be written, or raise as :func:`check_writable` does.

    Raises:
        ValueError: If the file is one of the inputs, which would be lost.
    """
    check_writable(file)
    if file.exists() and any(Path(one).exists() and file.samefile(one) for one in inputs):
        raise ValueError(f"{file} is an input: name another file for the output.")
    file.parent.mkdir(parents=True, exist_ok=True)


def write_text(place: Path, text: str) -> None:
    """Write a file of UTF-8 text atomically."""
    with whole(place) as part:
        part.write_text(text, encoding="utf-8")


def write_json(place: Path, content: object, **options: Any) -> None:
    """Write a JSON file atomically."""
    text = json.dumps(content, indent=2, ensure_ascii=False, **options)
    write_text(place, text + "\n")


def kept(folder: Path, work: object, make: Callable[[], Any]) -> Any:
    """Return what an earlier call has kept of some work; else make it anew, and keep it as JSON.

    Args:
        folder: Where it is kept, until the caller removes it.
        work: All that tells it from other work; of this, the ``repr`` counts.
        make: Makes it.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     [kept(Path(folder), work, lambda: [work]) for work in (1, 2)]
        ...     kept(Path(folder), 1, list)
        [[1], [2]]
        [1]
    """
    file = folder / f"{hashlib.sha256(repr(work).encode()).hexdigest()}.json"
    with suppress(FileNotFoundError, ValueError):  # damaged
        return json.loads(file.read_text(encoding="utf-8"))
    made = make()
    folder.mkdir(parents=True, exist_ok=True)
    write_json(file, made)
    return made


def share_weights(place: Path) -> None:
    """Give a file of weights, or those in a folder, the mode of new files.

    safetensors lets only their owner read them, whatever the umask.
    """
    found = [*place.glob("*.safetensors"), *place.glob("*/*.safetensors")]
    for file in found if place.is_dir() else [place]:
        new = file.with_name(f"{file.name}.new")
        new.touch()
        shutil.copymode(new, file)
        new.unlink()


def sync(path: Path) -> None:
    """Wait until a file, or a folder with all its contents, is on the disk."""
    if path.is_dir():
        for child in path.iterdir():
            sync(child)
    _flush(path)


def _flush(path: Path) -> None:
    if path.is_dir() and os.name == "nt":  # Windows cannot open folders
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    except OSError as error:
        if not path.is_dir() or error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise  # some network file systems cannot sync folders
    finally:
        os.close(handle)
