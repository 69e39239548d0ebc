"""Fixtures of several test files."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import simbert_hf


@pytest.fixture(scope="session")
def english() -> simbert_hf.SimBert:
    """The package's English model. Tests share it: they must not change it."""
    return simbert_hf.SimBert.from_pretrained(simbert_hf.DEFAULT_MODEL)


@pytest.fixture
def intents(tmp_path: Path) -> Path:
    """Six classes of twelve sentences, told by one of their words."""
    from tests.tiny import ROWS  # here, as it takes seconds that most files' tests can save

    path = tmp_path / "intents.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("text", "category"), *ROWS])
    return path
