"""The documents name what is there."""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


def listed() -> list[tuple[str, str]]:
    """Return the modules and names that the list of public names has."""
    lines = [line for line in (DOCS / "api.md").read_text().splitlines() if line.startswith("| `")]
    named = []
    for line in lines:
        names, module = line.split(" | ")[:2]
        named += [(module.strip("`"), name) for name in re.findall(r"`(\w+)`", names)]
    assert len(named) > len(lines) > 0
    return named


def test_every_documented_name_can_be_imported() -> None:
    pytest.importorskip("faiss")
    pytest.importorskip("pymilvus")
    named = listed()
    assert [one for one in named if not hasattr(import_module(one[0]), one[1])] == []


def test_every_name_that_documents_import_is_listed() -> None:
    texts = [path.read_text() for path in (*DOCS.glob("*.md"), *DOCS.parent.glob("README*.md"))]
    code = [block for text in texts for block in re.findall(r"```python\n(.*?)```", text, re.S)]
    imported = {
        (node.module, name.name)
        for block in code
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("simbert_hf")
        for name in node.names
    }
    assert len(imported) > 9
    assert imported - set(listed()) == set()
