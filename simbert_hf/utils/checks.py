"""Checks of arguments."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from numbers import Integral, Real
from typing import TypeGuard


def check_count(name: str, value: object, otherwise: str = "") -> None:
    """Refuse what is not a whole number of at least 1.

    Raises:
        ValueError: If it is not.
    """
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < 1:
        raise ValueError(
            f"{name}={value!r} is out of range: it must be a whole number of at least 1{otherwise}."
        )


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a real number, and can be compared with one.

    Example:
        >>> is_number(1), is_number("1"), is_number(None)
        (True, False, False)
    """
    return isinstance(value, Real)


def check_scale(scale: float, flag: str = "scale") -> None:
    """Raise a ValueError unless the inverse temperature is a number above 0."""
    if not 0 < scale < inf:
        raise ValueError(f"--{flag} {scale}: it divides by a temperature; give it above 0.")


def check_weights(weights: Sequence[float]) -> None:
    """Raise a ValueError unless loss weights are numbers from 0 on, one of them above."""
    if not (all(0 <= weight < inf for weight in weights) and any(weights)):
        raise ValueError(f"Loss weights {weights} must be at least 0, and not all of them 0.")
