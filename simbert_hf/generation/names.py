"""Names: words that English writes with a capital wherever they stand."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def known_names() -> frozenset[str]:
    """Return names in small letters; ``scripts/data/prepare_names.py`` counted them.

    Example:
        >>> sorted(known_names() & {"tom", "paris", "monday", "will", "table"})
        ['monday', 'paris', 'tom']
    """
    return frozenset(files(__package__).joinpath("names.txt").read_text("utf-8").split())
