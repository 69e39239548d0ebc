"""How a script ends."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any


def run_script(main: Callable[[], object]) -> None:
    """Run a script; end it with one sentence and exit code 1 where it cannot do what is asked.

    Example:
        >>> run_script(lambda: int("many"))
        Traceback (most recent call last):
        SystemExit: ValueError: invalid literal for int() with base 10: 'many'
    """
    warnings.formatwarning = sentence
    try:
        main()
    except (ImportError, ValueError, OSError) as error:
        kind, words = type(error).__name__, str(error)
        if words.startswith("Caught "):  # by torch, of a DataLoader's process: a whole traceback
            words = words.strip().rpartition(f"{kind}: ")[2]
        sys.exit(f"{kind}: {words}")


def sentence(message: Warning | str, *_: Any, **__: Any) -> str:
    """Show a warning by its words alone."""
    return f"{message}\n"
