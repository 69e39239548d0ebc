"""How a script ends."""

from __future__ import annotations

import sys
from collections.abc import Callable


def run_script(main: Callable[[], object]) -> None:
    """Run a script; end it with one sentence and exit code 1 where it cannot do what is asked.

    Example:
        >>> run_script(lambda: int("many"))
        Traceback (most recent call last):
        SystemExit: ValueError: invalid literal for int() with base 10: 'many'
    """
    try:
        main()
    except (ImportError, ValueError, OSError) as error:
        kind, sentence = type(error).__name__, str(error)
        if sentence.startswith("Caught "):  # by torch, of a DataLoader's process: a whole traceback
            sentence = sentence.strip().rpartition(f"{kind}: ")[2]
        sys.exit(f"{kind}: {sentence}")
