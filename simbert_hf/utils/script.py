"""How scripts start and end."""

from __future__ import annotations

import argparse
import io
import os
import re
import select
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from simbert_hf.utils.atomic import SCRATCH, check_writable

# Files that show that a folder holds a model or a training run.
SIGNS = ("config.json", "modules.json", "*.safetensors", "pytorch_model*", "checkpoint-*")


def script_parser(doc: str | None) -> argparse.ArgumentParser:
    """Make a parser that shows a script's docstring unchanged, and allows no abbreviated flags.

    Example:
        >>> script_parser("a.py IN    --output OUT").description  # a backslash continues the line
        'a.py IN --output OUT'
    """
    shown = re.sub(r"(?<=\S) {3,}", " ", doc or "")  # left by continued lines
    return argparse.ArgumentParser(description=shown, formatter_class=Help, allow_abbrev=False)


class Help(argparse.RawDescriptionHelpFormatter):
    """Show a description unchanged, and after each flag's text its default, if any.

    Example:
        >>> parser = script_parser("")
        >>> _ = parser.add_argument("--size", default=3, help="Sentences per group.")
        >>> print(parser.format_help().splitlines()[-1].strip())
        --size SIZE  Sentences per group (3).
    """

    def _get_help_string(self, action: argparse.Action) -> str:
        text, default = action.help or "", action.default
        told = default is None or isinstance(default, bool | list) or default == argparse.SUPPRESS
        if told or "default" in text:
            return text
        stem = text.removesuffix(".")
        return f"{stem} (%(default)s){text[len(stem) :]}"


def run_script(main: Callable[[], object]) -> None:
    """Run a script; end it with a one-line message if it fails (exit code 1) or is stopped (130).

    It ends silently if the reader of its output is gone (``script | head``).

    Example:
        >>> run_script(lambda: int("many"))
        Traceback (most recent call last):
        SystemExit: ValueError: invalid literal for int() with base 10: 'many'
    """
    warnings.formatwarning = sentence
    print_utf8()
    try:
        main()
        if sys.stdout:
            sys.stdout.flush()
    except (ImportError, ValueError, OSError, SafetensorError) as error:  # the last: a full disk
        if isinstance(error, BrokenPipeError) and reader_left():
            drop_output()
            sys.exit(1)
        kind, words = type(error).__name__, str(error)
        if words.startswith("Caught "):  # torch adds the traceback of a DataLoader's process
            words = words.strip().rpartition(f"{kind}: ")[2]
        sys.exit(f"{kind}: {words}")
    except SystemExit:  # after --help
        flush_output()
        raise
    except KeyboardInterrupt as stop:  # training says how to resume
        sys.stderr.write(f"\nStopped. {stop}".rstrip() + "\n")
        sys.exit(130)


def print_utf8() -> None:
    """Let stdout be UTF-8, as all files are: pipes on Windows take the letters of one alphabet.

    Example:
        >>> print_utf8()
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors=sys.stdout.errors)


def reader_left() -> bool:
    """Return whether the reader of stdout is gone; pipes of other processes break, too."""
    if not hasattr(select, "poll"):  # as on Windows
        return False
    stdout = select.poll()
    stdout.register(1, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in stdout.poll(0))


def flush_output() -> None:
    """Write what stdout holds, or drop it if its reader is gone (``--help | head``).

    Example:
        >>> flush_output()
    """
    try:
        if sys.stdout:
            sys.stdout.flush()
    except BrokenPipeError:
        drop_output()
    except OSError:  # a full disk, of which Python tells when it flushes once more at its end
        pass


def drop_output() -> None:
    """Send the rest of stdout and stderr nowhere: Python flushes them once more when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def check_output(directory: str, inputs: Sequence[str]) -> None:
    """Check, before any work is done, that a folder can take a model made from ``inputs``.

    Raises:
        OSError: If the folder is a file, or is not writable.
        ValueError: If it is empty text, or one of the inputs, which would be lost.
    """
    if not directory:
        raise ValueError("There is nowhere to save the model; give --output_dir a folder.")
    place = Path(directory)
    if place.is_file():
        raise NotADirectoryError(f"--output_dir {directory} is a file: name a folder.")
    check_writable(place)
    if place.is_dir() and any(one and Path(one).is_dir() and place.samefile(one) for one in inputs):
        raise ValueError(f"--output_dir {directory} is also an input: name another folder.")


def check_new_output(directory: str, inputs: Sequence[str]) -> None:
    """Check a folder as :func:`check_output` does, and that it does not hold a model yet.

    Files of an earlier model that the new one lacks would otherwise remain and describe it. What a
    save that was killed has left of a model, without its weights, makes room.

    Raises:
        OSError: As :func:`check_output` does.
        ValueError: Likewise, and if the folder holds a model or a training run.
    """
    check_output(directory, inputs)
    found = sorted(path.name for sign in SIGNS for path in Path(directory).glob(sign))
    begun = any(Path(directory, SCRATCH).glob("*.safetensors"))  # which are moved last
    if found and not (begun and {*found} <= {*SIGNS[:2]}):
        raise ValueError(
            f"--output_dir {directory} already holds a model or a run ({', '.join(found)[:80]}): "
            "name a new folder, or remove this one."
        )


def sentence(message: Warning | str, *_: Any, **__: Any) -> str:
    """Format a warning as its message only."""
    return f"{message}\n"
