"""Work that one process does at a time."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

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
