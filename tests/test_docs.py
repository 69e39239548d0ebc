"""The documents name what is there."""

import re
from importlib import import_module
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


def test_every_documented_name_can_be_imported() -> None:
    pytest.importorskip("faiss")
    pytest.importorskip("pymilvus")
    lines = [line for line in (DOCS / "api.md").read_text().splitlines() if line.startswith("| `")]
    named = []
    for line in lines:
        names, module = line.split(" | ")[:2]
        named += [(module.strip("`"), name) for name in re.findall(r"`(\w+)`", names)]
    assert len(named) > len(lines) > 0
    assert [one for one in named if not hasattr(import_module(one[0]), one[1])] == []
