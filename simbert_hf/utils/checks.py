"""Checks of arguments."""

from __future__ import annotations

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
