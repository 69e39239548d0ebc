"""The benchmark of the GPU machine, tried on a tiny scale: it resumes, and fails aloud."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import gpu, headline
from tests.tiny import tiny_simbert


def test_lengths_are_those_of_the_real_pairs() -> None:
    lengths = headline.pair_lengths(None, 20_000)
    assert lengths.sum(axis=1).mean() + 3 == pytest.approx(29.23, abs=0.5)  # as measured
    batch = headline.make_batch(lengths[:50], 1000, "cpu")
    ones = batch["attention_mask"].sum(dim=1)
    assert ones.tolist() == [a + b + 3 for a, b in lengths[:50].tolist() for _ in (0, 1)]
    sources = ((batch["token_type_ids"] == 0) & (batch["attention_mask"] == 1)).sum(dim=1)
    assert sources.tolist() == [n + 2 for pair in lengths[:50].tolist() for n in pair]


@torch.no_grad()
def test_operations_are_those_that_torch_counts() -> None:
    model = tiny_simbert(vocab_size=1000, num_hidden_layers=3, attn_implementation="eager")
    lengths = headline.pair_lengths(None, 1)
    batch = headline.make_batch(lengths[[0, 0]], 1000, "cpu")  # rows of one length: no padding
    with FlopCounterMode(display=False) as counter:
        headline.SimBertObjective()(model, batch)
    rows, size = len(batch["groups"]), 32
    left_out = 2 * rows**2 * size + 2 * rows * size**2  # cosines; the pooler, which goes unused
    assert headline.flops(model, batch) == 3 * (counter.get_total_flops() - left_out)


def test_stages_are_run_once_and_failures_again(tmp_path: Path, monkeypatch, capsys) -> None:
    calls: list[str] = []

    def run(command: list[str], device: str) -> dict[str, object]:
        calls.append(command[0])
        failed = len(calls) == 2
        return {
            "command": command,
            "seconds": 1.0,
            **({"error": "no"} if failed else {"result": {}}),
        }

    monkeypatch.setattr(gpu, "run", run)
    out = tmp_path / "gpu.json"
    argv = ["gpu", "--model=m", "--device=cpu", "--toy", f"--output={out}"]
    monkeypatch.setattr(sys, "argv", argv)
    with pytest.raises(SystemExit, match="Failed: headline-128-bf16; run again"):
        gpu.main()
    everything = len(calls)
    gpu.main()
    assert len(calls) == everything + 1
    assert len(json.loads(out.read_text())) == everything
    monkeypatch.setattr(sys, "argv", [*argv, "--stages", "nothing"])
    with pytest.raises(SystemExit, match="Unknown stages nothing"):
        gpu.main()


def test_packing_is_compared_at_one_attention_dropout() -> None:
    for device, kinds in (("cpu", 2), ("cuda", 4)):
        args = argparse.Namespace(device=device, lengths=None, toy=False)
        stages = gpu.headline_stages(args)
        equal = [command for command in stages.values() if "--attention_dropout=0" in command]
        assert len(equal) == 2 * 2 * kinds  # rows, compiled or not
        assert sum(any("--packing" in part for part in command) for command in equal) == (
            len(equal) - 4
        )
        assert len({tuple(command) for command in stages.values()}) == len(stages)


@pytest.mark.slow
def test_stages_of_every_kind_run_on_a_tiny_scale(tmp_path: Path, monkeypatch) -> None:
    tiny_simbert().save_pretrained(tmp_path / "start")
    stages = """headline-128-bf16-compiled headline-1024-bf16 headline-128-bf16-padded-compiled
        train-against-the-port simcse-against-sentence-transformers
        cached-simcse-against-sentence-transformers memory-of-gradcache""".split()
    argv = ["gpu", f"--model={tmp_path / 'start'}", "--device=cpu", "--toy"]
    argv += [f"--output={tmp_path / 'gpu.json'}", "--stages", *stages]
    monkeypatch.setattr(sys, "argv", argv)
    gpu.main()
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert found["headline-1024-bf16"]["result"]["rows_per_second"] > 0
    assert found["headline-128-bf16-padded-compiled"]["result"]["packing"] == "padded"
    cached = found["cached-simcse-against-sentence-transformers"]["result"]
    assert cached["settings"]["cached"] == 2
    assert found["memory-of-gradcache"]["result"]["points"][0]["rows"] == 128
