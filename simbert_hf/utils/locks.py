"""Work that one process does at a time."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

try:
    import fcntl
except ImportError:  # on Windows, where no file is replaced while another process has it open
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)


@contextmanager
def alone(file: Path, place: Path) -> Iterator[bool]:
    """Lock a file for the block, and yield whether no other process has locked it.

    Where files cannot be locked, as on some network file systems, the block goes on with a warning.

    Args:
        file: Is made for the lock, and removed at the end.
        place: What the lock is for, named in the warning.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     file = Path(folder, "training.lock")
        ...     with alone(file, Path(folder)) as first, alone(file, Path(folder)) as second:
        ...         first, second
        (True, False)
    """
    lock, free = FileLock(file, timeout=0), True
    try:
        lock.acquire()
    except Timeout:
        free = False
    except (OSError, NotImplementedError) as error:
        logger.warning("%s cannot be locked (%s): do not start another run there", place, error)
    try:
        yield free
    finally:
        if lock.is_locked:
            with suppress(OSError):  # on Windows, releasing removes it
                file.unlink()
            lock.release()


@contextmanager
def in_turn(path: Path, place: Path | None = None) -> Iterator[None]:
    """Lock a folder, or a file made for it, for the block, once no other process has it locked.

    Where files cannot be locked, as on some network file systems, the block goes on without.

    Args:
        path: A folder; or a file, which is made, and removed at the end. The block must not write
            to it: on SMB shares, nobody can write to a locked file but by the handle that locks.
        place: What is written, which a process that waits names; ``path`` by default.

    Example:
        >>> with in_turn(Path(".")):
        ...     pass
    """
    is_folder = path.is_dir()
    handle = _locked(path, is_folder, place or path) if fcntl else None
    try:
        yield
    finally:
        if handle is not None:
            with suppress(OSError):
                if not is_folder:
                    path.unlink()
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_UN)  # which processes forked in the block hold, too
            os.close(handle)


def _locked(path: Path, is_folder: bool, place: Path) -> int | None:
    while True:
        try:
            handle = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR | os.O_CREAT, 0o666)
        except OSError:  # writing there fails likewise, and says where
            return None
        try:
            _wait(handle, place)
        except OSError:  # this file system cannot
            return handle
        except BaseException:
            os.close(handle)
            raise
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), path.stat()):
                return handle
        os.close(handle)  # another process has removed it meanwhile


def _wait(handle: int, place: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        logger.warning("Another process writes %s: waiting for it to end", place)
        fcntl.flock(handle, fcntl.LOCK_EX)
