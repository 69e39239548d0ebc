"""How a script begins and ends."""

from __future__ import annotations

import argparse
import re
import select
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from simbert_hf.utils.atomic import check_writable

# What shows that a folder holds a model, or a run.
SIGNS = ("config.json", "modules.json", "*.safetensors", "pytorch_model*", "checkpoint-*")


def script_parser(doc: str | None) -> argparse.ArgumentParser:
    """Make a parser that shows a script's docstring as it is, and takes whole flags alone."""
    shown = re.sub(r"(?<=\S) {3,}", " ", doc or "")  # where it goes on in the next line
    raw = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(description=shown, formatter_class=raw, allow_abbrev=False)


def run_script(main: Callable[[], object]) -> None:
    """Run a script; end it with one sentence where it cannot do what is asked, or is stopped.

    The exit code is then 1, or 130. It ends quietly where nobody reads on (``script | head``).

    Example:
        >>> run_script(lambda: int("many"))
        Traceback (most recent call last):
        SystemExit: ValueError: invalid literal for int() with base 10: 'many'
    """
    warnings.formatwarning = sentence
    try:
        main()
        if sys.stdout:
            sys.stdout.flush()
    except (ImportError, ValueError, OSError, SafetensorError) as error:  # the last: a full disk
        if isinstance(error, BrokenPipeError) and reader_left():
            sys.stderr.close()
            sys.exit(1)
        kind, words = type(error).__name__, str(error)
        if words.startswith("Caught "):  # by torch, of a DataLoader's process: a whole traceback
            words = words.strip().rpartition(f"{kind}: ")[2]
        sys.exit(f"{kind}: {words}")
    except KeyboardInterrupt as stop:  # training says how to go on
        sys.stderr.write(f"\nStopped. {stop}".rstrip() + "\n")
        sys.exit(130)


def reader_left() -> bool:
    """Whether nobody reads stdout any more; pipes of other processes break too."""
    if not hasattr(select, "poll"):  # as on Windows
        return False
    stdout = select.poll()
    stdout.register(1, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in stdout.poll(0))


def check_output(directory: str, inputs: Sequence[str]) -> None:
    """Refuse a folder for a model before it is made, and any of the ``inputs`` it is made of.

    Raises:
        OSError: If it is a file, or may not be written to.
        ValueError: If there is none, or it is one of the inputs, which would be lost.
    """
    if not directory:
        raise ValueError("Nowhere to save; give --output_dir a folder.")
    place = Path(directory)
    if place.is_file():
        raise NotADirectoryError(f"--output_dir {directory} is a file: name a folder.")
    check_writable(place)
    if place.is_dir() and any(one and Path(one).is_dir() and place.samefile(one) for one in inputs):
        raise ValueError(f"--output_dir {directory} is what the model is made of: name another.")


def check_new_output(directory: str, inputs: Sequence[str]) -> None:
    """Refuse a folder for a model, as :func:`check_output` does, or if it holds one already.

    The files of a former model that the new one lacks would stay beside it, and tell of another.

    Raises:
        OSError: As of :func:`check_output`.
        ValueError: Also if a model or a run is there.
    """
    check_output(directory, inputs)
    found = sorted(path.name for sign in SIGNS for path in Path(directory).glob(sign))
    if found:
        raise ValueError(
            f"--output_dir {directory} holds a model or a run already ({', '.join(found)[:80]}): "
            "name a new folder, or remove this one."
        )


def sentence(message: Warning | str, *_: Any, **__: Any) -> str:
    """Show a warning by its words alone."""
    return f"{message}\n"
