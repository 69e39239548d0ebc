"""A lock shared by readers and exclusive to a writer; objects that hold it can be copied."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class ReadWriteLock:
    """Lets readers in together; a writer waits for those inside, and later readers for it.

    A copy or pickle of it is a new, free lock.

    Example:
        >>> lock = ReadWriteLock()
        >>> with lock.reading(), lock.reading():
        ...     pass
        >>> with lock.writing():
        ...     pass
    """

    def __init__(self) -> None:
        self._readers = 0
        self._door = threading.Lock()  # a writer stands in it
        self._counting = threading.Lock()
        self._room = threading.Lock()  # held by the readers, or by a writer

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Enter beside other readers."""
        with self._door:
            self._come(1)
        try:
            yield
        finally:
            self._come(-1)

    def _come(self, step: int) -> None:
        with self._counting:
            if self._readers == 0:
                self._room.acquire()
            self._readers += step
            if self._readers == 0:
                self._room.release()

    def __reduce__(self) -> tuple[type[ReadWriteLock], tuple[()]]:
        return ReadWriteLock, ()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Enter alone."""
        with self._door, self._room:
            yield
