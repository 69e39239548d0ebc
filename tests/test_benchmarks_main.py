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
    _, unknown = parser.parse_known_args()
    assert not unknown
    raise StopIteration


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
    assert (tmp_path / "new").is_dir()
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parsed)
    for name, flags in ran.items():
        monkeypatch.setattr(sys, "argv", [name, *flags])
        with pytest.raises(StopIteration):
            importlib.import_module(name).main()
        (output,) = (flag for flag in flags if flag.startswith("--output="))
        assert Path(output.removeprefix("--output=")).is_relative_to(tmp_path / "new")
        for flag in flags:
            if flag.startswith("--model="):
                assert Path(flag.removeprefix("--model="), "config.json").exists()
    assert f"--model={DEFAULT_MODEL}" in ran["benchmarks.generate"]
    assert "benchmarks.padding" in ran
