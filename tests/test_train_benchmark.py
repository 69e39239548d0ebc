"""The benchmark of training: one work for all programs, and what is kept of it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import pytest

from benchmarks import train
from benchmarks.reports import markdown, spread
from tests.tiny import save_tiny_simbert


def test_programs_do_the_same_work_and_are_measured_in_every_way(
    tmp_path: Path, monkeypatch, capsys
) -> None:
    save_tiny_simbert(tmp_path / "start")
    argv = ["train", f"--model={tmp_path / 'start'}", "--pairs=4", "--steps=2", "--shapes=start"]
    argv += [f"--output={tmp_path / 'train.json'}"]

    def apart(work, variant: tuple[str, str, str], args, **environment: str) -> float:
        assert environment == train.FREED
        return work(variant, args) if train.OURS in variant else 2e8

    monkeypatch.setattr(train, "measure_apart", apart)
    monkeypatch.setattr(sys, "argv", argv)
    train.main()
    assert capsys.readouterr().out.startswith("| shape | precision |")
    rows = json.loads((tmp_path / "train.json").read_text())["figures"]
    assert len(rows) == len(train.PRECISIONS) * len(train.PROGRAMS)
    for row in rows:
        assert row["peak, MB"] > 100
        for name in ("tokens/s", "GFLOP/s"):
            assert row[name] / row["rows/s"] == pytest.approx(rows[0][name] / rows[0]["rows/s"])
    assert [row["x as long as ours"] for row in rows if row["program"] == train.OURS] == [1, 1]
    assert (tmp_path / "train.png").exists()


def test_the_orders_hold_the_same_pairs_and_the_larger_shape_half_as_many(tmp_path: Path) -> None:
    save_tiny_simbert(tmp_path)
    args = argparse.Namespace(model=str(tmp_path), pairs=4, steps=6, compile=False)
    for shape, steps, pairs in (("start", 6, 4), ("BERT-base", 3, 2)):
        contest = train.Contest(shape, args)
        assert len({id(batches) for batches in contest.batches.values()}) == 2
        seen = []
        for batches in contest.batches.values():
            assert [len(batch) for batch in batches] == [pairs] * steps
            seen.append(sorted(pair["source"] for batch in batches for pair in batch))
        assert seen[0] == seen[1] == seen[2]
    assert contest.config.hidden_size == 768


def test_tables_show_figures_shortly_and_leave_out_what_is_missing() -> None:
    rows = [{"rows": 8192, "MB": 1253.7, "MFU": None}, {"rows": 1, "MB": 999.7, "s": 0.1234}]
    lines = [line.replace(" ", "") for line in markdown(rows).splitlines()]
    assert lines[2:] == ["|8,192|1,254|||", "|1|1,000||0.123|"]
    assert spread([0.5, 0.75], 1, scale=100) == "62.5 ± 17.7"
    assert spread([0.5]) == "0.50"
