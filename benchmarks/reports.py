"""A benchmark's figures, on the disk."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from simbert_hf.utils.atomic import write_text


def same_settings(folder: Path, **settings: Any) -> None:
    """Keep settings that the names of a folder's files do not tell, for the runs to come.

    Raises:
        SystemExit: If what lies there was made with others.
    """
    place = folder / "settings.json"
    known = load_report(place, {})
    for name, value in settings.items():
        if known.get(name, value) != value:
            raise SystemExit(
                f"{folder} holds what was made with {name} {known[name]}, not {value}: give "
                "another --output."
            )
    save_report(place, known | settings)


def load_report(place: Path, otherwise: Any) -> Any:
    """Read figures that were kept; return something else where there are none."""
    return json.loads(place.read_text(encoding="utf-8")) if place.exists() else otherwise


def report_file(given: str) -> Path:
    """Name the file that figures go to; a folder is refused before anything is measured."""
    if Path(given).is_dir():
        raise argparse.ArgumentTypeError(f"{given} is a folder: name a file in it")
    return Path(given)


def save_report(place: Path, report: Any) -> None:
    """Write figures as JSON, whole or not at all; make the folder where there is none."""
    place.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(report, indent=2, ensure_ascii=False, default=str)
    write_text(place, f"{text}\n")
