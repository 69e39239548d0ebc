"""A lock that may be part of an object that is copied."""

from __future__ import annotations

import threading


class Turn:
    """Lets one thread at a time into a ``with`` block; a copy or pickle of it is another one.

    Example:
        >>> import pickle
        >>> turn = Turn()
        >>> with turn, pickle.loads(pickle.dumps(turn)):
        ...     pass
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[Turn], tuple[()]]:
        return Turn, ()
