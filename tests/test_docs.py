"""The documents name what is there."""

import argparse
import ast
import re
import shlex
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from simbert_hf import FaqIndex, gen_synonyms
from tests.tiny import tiny_simbert

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [
    *ROOT.glob("*.md"),
    *(
        page
        for folder in ("docs", "benchmarks", "model_cards", "scripts")
        for page in (ROOT / folder).rglob("*.md")
    ),
]


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


def prose(page: Path) -> str:
    """Return a page without its code."""
    return re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub names them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", prose(page), re.M):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        double = sum(re.fullmatch(rf"{re.escape(slug)}(-\d+)?", one) is not None for one in found)
        found.add(f"{slug}-{double}" if double else slug)
    return found


def test_links_between_pages_lead_somewhere() -> None:
    assert {ROOT / "README.md", DOCS / "training.md", ROOT / "benchmarks" / "speed.md"} <= {*PAGES}
    broken, links = [], 0
    for page in PAGES:
        for link in re.findall(r"\]\(([^()\s]+)\)", prose(page)):
            if re.match(r"[a-z]+:", link):
                continue
            links += 1
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert links > 99
    assert broken == []


@pytest.mark.parametrize("calibrated", [True, False])
def test_the_documented_bot_answers(tmp_path: Path, calibrated: bool) -> None:
    pytest.importorskip("faiss")
    pytest.importorskip("fastapi")
    tiny_simbert().save_pretrained(tmp_path / "model")
    faqs = [{"question": "the cat sat", "answer": "a cat"}]
    index = FaqIndex.build(str(tmp_path / "model"), faqs)
    if calibrated:
        queries = [{"query": "the cat", "answer": "a cat"}, {"query": "fast", "answer": ""}]
        index.calibrate(queries, precision=0.5)
    index.save(tmp_path / "faq")
    code = re.search(r"# bot\.py\n.*?(?=```)", (DOCS / "serving.md").read_text(), re.S)
    assert code is not None
    bot: dict[str, Any] = {}
    exec(code[0].replace("outputs/faq", str(tmp_path / "faq")), bot)
    assert bot["answer"]("the cat sat").answer == "a cat"


@pytest.mark.parametrize(
    ("page", "count"), [("README.md", 2), ("README_zh.md", 1), ("docs/paraphrasing.md", 2)]
)
def test_paraphrases_are_as_shown(page: str, count: int) -> None:
    shown = re.findall(r"^(gen_synonyms\(.+\))\n((?:#.+\n)+)", (ROOT / page).read_text(), re.M)
    assert len(shown) == count
    for call, result in shown:
        expected = ast.literal_eval(re.sub(r"^# *", "", result, flags=re.M))
        assert eval(call, {"gen_synonyms": gen_synonyms}) == expected


def test_results_that_benchmarks_name_exist() -> None:
    folder = ROOT / "benchmarks"
    texts = [page.read_text() for page in folder.glob("*.md")]
    named = {name for text in texts for name in re.findall(r"`([a-z][\w-]*\.json)`", text)}
    kept = {
        path.name for path in (*folder.glob("results/*.json"), *ROOT.rglob("model_cards/*/*.json"))
    }
    assert len(named) > 19
    assert named - kept == {"data_similarity.json", "recipes-en.json"}  # data, and a file to rename


def commands(page: Path) -> list[list[str]]:
    """Return the Python programs of a page's shell code, each with its flags."""
    found, known = [], dict[str, str]()
    for block in re.findall(r"^```bash\n(.*?)^```", page.read_text(), re.M | re.S):
        for line in block.replace("\\\n", " ").splitlines():
            given = re.sub(r"\$(\w+)", lambda name: known.get(name[1], name[0]), line)
            words = shlex.split(given, comments=True)
            while words and re.match(r"[A-Z_]+=", words[0]):
                name, _, value = words.pop(0).partition("=")
                known[name] = value
            if words[:2] == ["accelerate", "launch"]:
                words[:2] = ["python"]
            if words[:1] == ["python"]:
                found.append(words[2:] if words[1] == "-m" else words[1:])
    return found


class ParsedError(Exception):
    """A program has read its flags."""


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # in older DeBERTas
@pytest.mark.parametrize("page", ["README", "paraphrases", "vectors", "speed"])
def test_commands_of_benchmarks_have_flags_that_exist(
    page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse = argparse.ArgumentParser.parse_known_args

    def parse_alone(parser: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
        if not parser.add_help:  # one that looks for --preset alone
            return parse(parser, *args, **kwargs)
        monkeypatch.setattr(parser, "error", pytest.fail)
        _, unknown = parse(parser, *args, **kwargs)
        assert not unknown
        raise ParsedError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_known_args", parse_alone)
    monkeypatch.chdir(ROOT)
    found = commands(ROOT / "benchmarks" / f"{page}.md")
    assert found
    for program, *flags in found:
        name = program.removesuffix(".py").replace("/", ".")
        try:
            module = import_module(name)
        except ModuleNotFoundError as error:
            if error.name in ("faiss", "harper", "llama_cpp", "onnx", "onnxruntime"):
                continue
            raise
        monkeypatch.setattr(sys, "argv", [program, *flags])
        with pytest.raises(ParsedError):
            module.main()
