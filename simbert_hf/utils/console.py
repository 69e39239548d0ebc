"""How commands read texts and show results."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from simbert_hf.utils.text import CONTROL

BLOCK = 32  # texts handled together


def say(text: str) -> None:
    """Write a line to stderr."""
    sys.stderr.write(f"{text}\n")


def show(lines: Iterable[str]) -> None:
    """Write lines to stdout, each as soon as it is available."""
    for line in lines:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def hanging(line: str) -> str:
    """Indent all lines of a text but the first, which stands behind its score."""
    return line.replace("\n", "\n" + 9 * " ")


def as_json(value: Any) -> str:
    """Return one line of JSON, null for NaN."""
    plain = json.loads(json.dumps(value), parse_constant=lambda _: None)
    return json.dumps(plain, ensure_ascii=False)


def lines_of(path: str, *, blanks: bool = False) -> list[str]:
    """Return the lines of a text file, or of stdin for ``-``; line i is text i.

    Raises:
        ValueError: If there are no lines, one is not UTF-8 or (without ``blanks``) is blank, or
            the file is a table or JSON.
    """
    from simbert_hf.utils.textfiles import check_plain, decode_lines, fault, read_lines

    name = "stdin" if path == "-" else path
    if path == "-" and sys.stdin is None:  # as under some schedulers
        raise ValueError("stdin is closed: redirect it, or give texts or a file.")
    if path == "-":
        lines = list(decode_lines(name, sys.stdin.buffer))
    else:
        check_plain(path)
        lines = list(read_lines(path))
    texts = (CONTROL.sub("", line).strip() for line in lines)
    blank = next((i for i, text in enumerate(texts, start=1) if not text), None)
    if blank is not None and not blanks:
        raise fault(name, blank, "is blank", "Write a text in every line")
    if not lines:
        raise fault(name, None, "holds no text", "Write one text per line")
    return lines


def texts_of(given: list[str], *, blanks: bool = False) -> list[str]:
    """Return the texts of a command line; without any, or for ``-``, the lines of stdin.

    Raises:
        ValueError: As :func:`lines_of` does, or if one is the name of a file.
    """
    if given in ([], ["-"]):
        return lines_of("-", blanks=blanks)
    named = (text for text in given if Path(text).suffix)
    if file := next(filter(os.path.isfile, named), None):  # Path.is_file fails on long texts
        raise ValueError(f"{file} is a file, not a text: for the texts in it, give < {file}.")
    return given


def blocks_of(texts: list[str]) -> Iterator[list[str]]:
    """Yield blocks of texts that are processed and shown together."""
    for start in range(0, len(texts), BLOCK):
        yield texts[start : start + BLOCK]
