"""The benchmark of groups: its FAQ's figures, its splits, and what is not measured again."""

import json
import sys
from argparse import Namespace
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from benchmarks import groups as benchmark
from benchmarks.group_data import OUT, answer, banking77, make_faq, qqp, shop_zh, write_split
from simbert_hf.data import load_groups

ANGLES = {  # of unit vectors in the plane, in degrees
    "train": [("near", "a"), ("far", "b")],
    "test": [(f"q{i}", "a" if i < 15 else "b") for i in range(20)],
    "oos_test": [("odd", "oos"), ("other", "oos")],
}
PLACES = {"near": 0, "far": 90, "odd": 200, "other": 8} | {f"q{i}": 2 * i for i in range(20)}


class Plane:
    """Stands for a model."""

    def encode(self, texts: list[str]) -> np.ndarray:
        angles = np.radians([PLACES[text] for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def test_an_faq_answers_by_the_nearest_and_refuses_by_its_cosine(tmp_path: Path) -> None:
    (tmp_path / "faq.json").write_text(json.dumps(ANGLES))
    found = answer(Plane(), tmp_path)
    assert found["top1"] == 0.75  # the last five lie nearer to the wrong sentence
    # "other", at 8 degrees, beats all but the queries at 0 to 6 and ties with the one at 8.
    assert found["auroc"] == pytest.approx(1 - (15 + 0.5) / 40)
    assert found["fpr95"] == 0.5


def test_the_shipped_clinc150_is_an_faq_asked_in_and_out_of_scope(tmp_path: Path) -> None:
    make_faq(tmp_path, tmp_path, seed=0)
    rows = json.loads((tmp_path / "faq.json").read_text())
    assert {name: len(split) for name, split in rows.items()} == {
        "train": 15_000,
        "test": 4_500,
        "oos_test": 1_000,
    }
    known = {intent for _, intent in rows["train"]}
    assert len(known) == 150
    assert {intent for _, intent in rows["test"]} == known
    assert {intent for _, intent in rows["oos_test"]} == {"oos"}
    with pytest.raises(SystemExit, match=r"no banking77/train\.csv below"):
        banking77(tmp_path)


def test_the_shipped_chinese_faq_is_as_its_readme_says() -> None:
    splits = shop_zh()
    counts = {name: Counter(intent for _, intent in rows) for name, rows in splits.items()}
    assert set(counts["train"].values()) == {5}
    assert len(counts["train"]) == 60
    for name in ("dev", "test"):
        assert counts[name].pop(OUT) == 200
        assert counts[name].keys() == counts["train"].keys()
        assert set(counts[name].values()) == {4}
    texts = {name: {text for text, _ in rows} for name, rows in splits.items()}
    assert not texts["dev"] & texts["test"]
    assert len((texts["dev"] | texts["test"]) & texts["train"]) == 11


def test_no_sentence_is_on_both_sides(tmp_path: Path) -> None:
    pairs = tmp_path / "qqp_pos50k"
    pairs.mkdir()
    for name, lines in {
        "train": "a c e g",
        "train_2": "b d f h",
        "test": "b d g",
        "test_2": "B x y",
    }.items():
        (pairs / f"{name}.txt").write_text("\n".join(lines.split()))
    found = qqp(tmp_path, tmp_path)
    assert sorted(map(sorted, found)) == [["c", "d", "x"], ["g", "h", "y"]]
    write_split(tmp_path, [[f"{i} {j}" for j in range(4)] for i in range(10)], seed=0)
    sides = [
        {text for row in load_groups(tmp_path / f"{name}.tsv")[0] for text in row["texts"]}
        for name in ("train", "held_out")
    ]
    assert [len(side) for side in sides] == [32, 8]
    assert sides[0].isdisjoint(sides[1])


def test_what_was_measured_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = []

    def once(cell: benchmark.Cell, args: Namespace) -> dict[str, float]:
        done.append(cell)
        return {"top1": 0.5 + 0.1 * cell.seed + 0.2 * (cell.loss == "am")}

    monkeypatch.setattr(benchmark, "train_and_measure", once)
    (tmp_path / "cells").mkdir()
    args = Namespace(output=tmp_path)
    wanted = [
        benchmark.Cell("faq", "gru", loss, 9, i) for loss in ("softmax", "am") for i in (0, 1)
    ]
    found = {cell: benchmark.measure(cell, args) for cell in wanted}
    assert {cell: benchmark.measure(cell, args) for cell in wanted} == found
    assert done == wanted
    for values in found.values():
        values |= {"auroc": 1.0, "fpr95": 0.0}
    row = benchmark.table(found, "faq", "gru").splitlines()[-1]
    assert [cell.strip() for cell in row.strip("|").split("|")] == [
        "am", "2", "75.0 ± 7.1", "100.0 ± 0.0", "0.0 ± 0.0", "20.0 ± 0.0"
    ]  # fmt: skip


def test_a_folder_keeps_what_several_commands_measured_with_the_same_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = {"top1": 0.0, "top5": 0.5, "top10": 0.5, "mean_cosine": 0.1, "effective_rank": 3.0}
    monkeypatch.setattr(
        benchmark, "train_and_measure", lambda cell, args: steps | {"top1": cell.steps / 1000}
    )
    given = ["groups", f"--data={tmp_path}", f"--output={tmp_path / 'out'}", "--datasets", "qqp",
             "--encoders", "gru", "--losses", "am", "--seeds", "0"]  # fmt: skip
    for more in ("--gru_steps=300", "--gru_steps=400"):
        monkeypatch.setattr(sys, "argv", [*given, more])
        benchmark.main()
    rows = json.loads((tmp_path / "out" / "groups.json").read_text())
    assert [(row["loss"], row["top1"]) for row in rows] == [
        (benchmark.START, 0.0),
        ("am", 0.3),
        ("am", 0.4),
    ]
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", [*given, "--bf16"])
    with pytest.raises(SystemExit, match="holds results with bf16 False, not True"):
        benchmark.main()
