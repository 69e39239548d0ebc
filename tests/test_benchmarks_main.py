"""`python -m benchmarks`: what it runs, and where the results go."""

import argparse
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as benchmarks
from simbert_hf import DEFAULT_MODEL


def parsed(parser: argparse.ArgumentParser, args: None = None) -> None:
    """Stop a program when it has read its flags; a flag that it does not know ends it before."""
    parser.error = pytest.fail  # type: ignore[method-assign]
    found, unknown = parser.parse_known_args()
    assert not unknown
    raise StopIteration(found.output)


def test_every_benchmark_runs_with_what_is_shipped_and_leaves_the_published_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: dict[str, list[str]] = {}

    def run(command: list[str], check: bool) -> None:
        assert command[:2] == [sys.executable, "-m"]
        assert check
        ran[command[2]] = command[3:]

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(sys, "argv", ["benchmarks", f"--output={tmp_path / 'new'}"])
    benchmarks.main()
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parsed)
    for name, flags in ran.items():
        monkeypatch.setattr(sys, "argv", [name, *flags])
        with pytest.raises(StopIteration) as stopped:
            importlib.import_module(name).main()
        assert stopped.value.value == tmp_path / "new" / f"{name.removeprefix('benchmarks.')}.json"
        for flag in flags:
            if flag.startswith("--model="):
                assert Path(flag.removeprefix("--model="), "config.json").exists()
    assert f"--model={DEFAULT_MODEL}" in ran["benchmarks.generate"]
    assert "benchmarks.padding" in ran


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("associations --models m --language zh", "associations-zh.json"),
        ("bias", "bias.json"),
        ("bias --language zh --model some/mine", "bias-zh-mine.json"),
        ("contamination --models m --data . --language zh", "contamination-zh.json"),
        ("gpu --model m --toy", "gpu-toy.json"),
        ("ranking --ratings held_out.jsonl.gz", "ranking-held_out.json"),
        ("retrieval --models m --language zh", "retrieval-zh.json"),
        ("retrieval --sizes 9 --language zh", "are for --language en"),
        ("simcse --model m --cached 64", "simcse-cached.json"),
        ("bias --output .", "--output . is a folder"),
    ],
)
def test_what_holds_something_else_has_another_name_or_is_refused(
    command: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    if command.startswith("retrieval"):
        pytest.importorskip("faiss")
    monkeypatch.setattr(sys, "argv", command.split())
    monkeypatch.chdir(tmp_path)
    program = importlib.import_module(f"benchmarks.{sys.argv[0]}")
    if found.endswith(".json"):
        monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parsed)
        with pytest.raises(StopIteration) as stopped:
            program.main()
        assert stopped.value.value == Path("outputs/benchmarks", found)
    else:
        with pytest.raises(SystemExit):
            program.main()
        assert found in capsys.readouterr().err
