"""Checks of arguments."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import inf, isfinite
from numbers import Integral
from typing import Any


def check_count(name: str, value: object, otherwise: str = "") -> None:
    """Raise a ValueError unless a value is a whole number of at least 1."""
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < 1:
        raise ValueError(
            f"{name}={value!r} is out of range: it must be a whole number of at least 1{otherwise}."
        )


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Raise a ValueError unless a value is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name}={value!r}: choose one of {', '.join(choices)}.")


def check_rows(name: str, rows: Iterable[Any], *parts: str) -> None:
    """Raise a TypeError unless rows are tuples of these parts; mappings would yield keys.

    Example:
        >>> check_rows("sts", [("Hi", "Hello", 4.5)], "sentence", "sentence", "score")
    """
    first = next(iter(rows), None)
    if first is not None and not (isinstance(first, tuple | list) and len(first) == len(parts)):
        raise TypeError(f"{name} holds {first!r:.80}; give tuples ({', '.join(parts)}).")


def is_finite(value: Any) -> bool:
    """Return whether a value is a finite number, of any library.

    Example:
        >>> is_finite(1), is_finite(inf), is_finite("1")
        (True, False, False)
    """
    try:
        return isfinite(value)
    except TypeError:
        return False


def check_scale(scale: float, flag: str = "scale") -> None:
    """Raise a ValueError unless the inverse temperature is a number above 0."""
    if not 0 < scale < inf:
        raise ValueError(f"--{flag} {scale}: give a finite inverse temperature above 0.")


def check_weights(weights: Sequence[float]) -> None:
    """Raise a ValueError unless loss weights are finite, 0 or more, and one is above 0."""
    if not (all(0 <= weight < inf for weight in weights) and any(weights)):
        raise ValueError(f"Loss weights {weights} must be at least 0, and not all of them 0.")
