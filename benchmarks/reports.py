"""A benchmark's figures, on the disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from simbert_hf.atomic import write_text


def save_report(place: Path, report: Any) -> None:
    """Write figures as JSON, whole or not at all; make the folder where there is none."""
    place.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(report, indent=2, ensure_ascii=False, default=str)
    write_text(place, f"{text}\n")
