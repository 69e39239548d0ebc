"""The benchmark of the GPU machine, tried on a tiny scale: it resumes, and fails aloud."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import gpu, headline
from tests.tiny import tiny_simbert


def test_lengths_are_those_of_the_real_pairs() -> None:
    lengths = headline.pair_lengths(20_000)
    assert lengths.sum(axis=1).max() + 3 == 64
    assert lengths.sum(axis=1).mean() + 3 == pytest.approx(29.23, abs=0.5)  # as measured
    batch = headline.make_batch(lengths[:50], 1000, "cpu")
    ones = batch["attention_mask"].sum(dim=1)
    assert ones.tolist() == [a + b + 3 for a, b in lengths[:50].tolist() for _ in (0, 1)]
    sources = ((batch["token_type_ids"] == 0) & (batch["attention_mask"] == 1)).sum(dim=1)
    assert sources.tolist() == [n + 2 for pair in lengths[:50].tolist() for n in pair]


def test_batches_for_graphs_have_few_shapes_and_hold_the_same_rows() -> None:
    lengths = headline.pair_lengths(400)
    plain, filled = (headline.make_batch(lengths[:50], 1000, "cpu", n) for n in (1, 8))
    width = plain["input_ids"].shape[1]
    assert filled["input_ids"].shape[1] == -(-width // 8) * 8
    assert torch.equal(filled["attention_mask"][:, :width], plain["attention_mask"])
    assert not filled["attention_mask"][:, width:].any()
    shapes = set()
    for start in range(0, 400, 50):
        batch = headline.make_batch(lengths[start : start + 50], 1000, "cpu", 8)
        shapes.add(tuple(values.shape for values in batch.values()))
        places, labels = batch["target_positions"], batch["target_labels"]
        segments = batch["token_type_ids"].flatten()
        assert torch.equal(labels, batch["input_ids"].flatten()[places + 1])
        assert torch.equal(places.unique(), segments.nonzero()[:, 0] - 1)
    assert len(shapes) == len({shape[0] for shape in shapes})  # by the width alone


@torch.no_grad()
def test_operations_are_those_that_torch_counts() -> None:
    model = tiny_simbert(vocab_size=1000, num_hidden_layers=3, attn_implementation="eager")
    lengths = headline.pair_lengths(1)
    batch = headline.make_batch(lengths[[0, 0]], 1000, "cpu")  # rows of one length: no padding
    with FlopCounterMode(display=False) as counter:
        headline.SimBertObjective()(model, batch)
    rows, size = len(batch["groups"]), 32
    left_out = 2 * rows**2 * size + 2 * rows * size**2  # cosines; the pooler, which goes unused
    assert headline.flops(model.config, batch) == 3 * (counter.get_total_flops() - left_out)


def test_a_device_is_measured_against_its_own_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, peak in (
        ("NVIDIA H200", 989e12), ("NVIDIA H100 80GB HBM3", 989e12), ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA L40S", 362e12), ("NVIDIA L40", 181e12), ("NVIDIA L4", 121e12), ("Tesla T4", None),
    ):  # fmt: skip
        monkeypatch.setattr(headline, "environment", lambda device, name=name: {"device": name})
        assert headline.utilisation(1e12, "cuda") == (peak and 1e12 / peak)


def test_stages_are_run_once_and_failures_again(tmp_path: Path, monkeypatch, capsys) -> None:
    calls: list[str] = []

    def run(command: list[str], device: str, limit: float) -> dict[str, object]:
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
    with pytest.raises(SystemExit, match="Failed: script-1024; run again"):
        gpu.main()
    everything = len(calls)
    gpu.main()
    assert len(calls) == everything + 1
    assert len(json.loads(out.read_text())) == everything
    monkeypatch.setattr(sys, "argv", [*argv, "--seconds=10", "--stages", "headline-128-bf16"])
    out.unlink()
    gpu.main()  # too little time is left to begin
    assert "The time is up" in capsys.readouterr().out
    assert len(calls) == everything + 1
    monkeypatch.setattr(sys, "argv", [*argv, "--stages", "nothing"])
    with pytest.raises(SystemExit, match="Unknown stages nothing"):
        gpu.main()


@pytest.mark.parametrize("limit", [0.5, None])
def test_a_stage_does_not_outlive_its_time_or_its_program(
    tmp_path: Path, monkeypatch, limit: float | None
) -> None:
    (tmp_path / "slow_stage.py").write_text(
        "import os, pathlib, time\n"
        f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))\n"
        "time.sleep(60)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    if limit:
        assert "more than" in gpu.run(["slow_stage"], "cpu", limit=2.0)["error"]
    else:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.alarm(2)
        with pytest.raises(KeyboardInterrupt):
            gpu.run(["slow_stage"], "cpu")
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_packing_is_compared_at_one_attention_dropout() -> None:
    for device in ("cpu", "cuda"):
        args = argparse.Namespace(device=device, toy=False)
        stages = gpu.headline_stages(args)
        equal = [
            command
            for name, command in stages.items()
            if "--attention_dropout=0" in command and "graph" not in name
        ]
        assert len(equal) == 2 * 3 * 2  # rows; plain, compiled, and so with random batches
        assert sum("--packing" in command for command in equal) == 6
        assert len({tuple(command) for command in stages.values()}) == len(stages)
    args = argparse.Namespace(device="cuda", toy=False, model="m", trained="t")
    assert set(gpu.FIRST) <= {*gpu.headline_stages(args), *gpu.peer_stages(args)}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("default")
def test_a_replayed_step_trains_as_one_that_is_not() -> None:
    lengths = headline.pair_lengths(24)
    batches = [headline.make_batch(lengths[i : i + 8], 40, "cuda", 2) for i in (0, 8, 16, 0)]
    weights = []
    for recorded in (False, True):
        model = tiny_simbert(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True, capturable=True)

        def step(batch, model=model, optimizer=optimizer) -> None:
            headline.SimBertObjective()(model, batch).total.backward()
            optimizer.step()
            optimizer.zero_grad()

        run = headline.Graphs(step) if recorded else step
        shapes = set()
        for batch in batches:
            shape = batch["input_ids"].shape
            if not recorded and shape not in shapes:  # recording takes three steps to warm up
                for _ in range(3):
                    step(batch)
            shapes.add(shape)
            run(batch)
        weights.append(torch.cat([weight.flatten() for weight in model.parameters()]))
    torch.testing.assert_close(*weights)


@pytest.mark.slow
def test_stages_of_every_kind_run_on_a_tiny_scale(tmp_path: Path, monkeypatch) -> None:
    tiny_simbert().save_pretrained(tmp_path / "start")
    stages = """headline-128-bf16-compiled headline-128-port-bf16 headline-1024-bf16
        headline-128-bf16-packed-compiled train-against-the-port memory-of-gradcache
        simcse-against-sentence-transformers cached-simcse-against-sentence-transformers""".split()
    argv = ["gpu", f"--model={tmp_path / 'start'}", "--device=cpu", "--toy"]
    argv += [f"--output={tmp_path / 'gpu.json'}", "--stages", *stages]
    monkeypatch.setattr(sys, "argv", argv)
    gpu.main()
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert found["headline-1024-bf16"]["result"]["rows_per_second"] > 0
    assert found["headline-128-bf16-packed-compiled"]["result"]["packing"] is True
    cached = found["cached-simcse-against-sentence-transformers"]["result"]
    assert cached["settings"]["cached"] == 2
    assert found["memory-of-gradcache"]["result"]["points"][0]["rows"] == 128
