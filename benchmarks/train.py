"""Training rows a second: this package beside the naive faithful port, same pairs, one run.

python -m benchmarks.train --model DIR_OR_ID [--steps 8] [--output benchmarks/results/train.json]
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoTokenizer

from benchmarks.naive_port import build_optimizer, build_port, collate_fixed, train_step
from benchmarks.reports import save_report
from simbert_hf import SimBert
from simbert_hf.collators import PairCollator
from simbert_hf.data import LengthGroupedBatchSampler, PairDataset, load_groups
from simbert_hf.objectives import SimBertObjective
from simbert_hf.rows import RowBuilder

DATA = Path(__file__).parent.parent / "scripts" / "data" / "tatoeba_en" / "pairs.jsonl.gz"


def ours(model_name: str, device: str, bf16: bool) -> Callable[[list[dict[str, Any]]], None]:
    """Return this package's training step."""
    model = SimBert.from_pretrained(model_name).to(device).train()
    collator, objective = PairCollator(model.rows), SimBertObjective()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-6, weight_decay=0.01)

    def step(pairs: list[dict[str, Any]]) -> None:
        batch = {k: v.to(device) for k, v in collator(pairs).items()}
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
            loss = objective(model, batch).total
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def naive(model_name: str, device: str, bf16: bool) -> Callable[[list[dict[str, Any]]], None]:
    """Return the port's training step: rows padded to 64 tokens, logits of every position."""
    tokenizer = AutoTokenizer.from_pretrained(model_name)
    model = build_port(AutoConfig.from_pretrained(model_name)).to(device).train()
    optimizer = build_optimizer(model)

    def step(pairs: list[dict[str, Any]]) -> None:
        batch = collate_fixed(tokenizer, [(p["source"], p["target"]) for p in pairs])
        batch = {k: v.to(device) for k, v in batch.items()}
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
            train_step(model, optimizer, batch)

    return step


def measure(steps: dict[str, Callable[..., None]], batches: list[list[dict[str, Any]]]) -> dict:
    """Run the variants in turn on each batch; return each one's median seconds a step."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for batch in batches:
        for name, step in steps.items():
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            started = time.perf_counter()
            step(batch)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(values[2:]) for name, values in seconds.items()}


def main() -> None:
    """Measure, print a Markdown table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--pairs", type=int, default=64, help="Pairs a batch; two rows each.")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/train.json"))
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = PairDataset(load_groups(DATA)[0])
    collator = PairCollator(RowBuilder(AutoTokenizer.from_pretrained(args.model)))
    sampler = iter(LengthGroupedBatchSampler(data, args.pairs, collator.lengths, seed=0))
    batches = [[data[i] for i in next(sampler)] for _ in range(args.steps + 2)]  # two warm up
    variants = {
        "naive port, float32": naive(args.model, device, bf16=False),
        "naive port, bfloat16": naive(args.model, device, bf16=True),
        "simbert_hf, float32": ours(args.model, device, bf16=False),
        "simbert_hf, bfloat16": ours(args.model, device, bf16=True),
    }
    found = measure(variants, batches)
    rows = {name: 2 * args.pairs / seconds for name, seconds in found.items()}
    ratios = {
        dtype: found[f"naive port, {dtype}"] / found[f"simbert_hf, {dtype}"]
        for dtype in ("float32", "bfloat16")
    }
    print("| precision | naive port, rows/s | simbert_hf, rows/s | ratio |\n|---|---|---|---|")
    for dtype, ratio in ratios.items():
        port, package = (rows[f"{name}, {dtype}"] for name in ("naive port", "simbert_hf"))
        print(f"| {dtype} | {port:.0f} | {package:.0f} | {ratio:.2f} |")
    report = {
        "rows_per_second": rows, "ratio": ratios,
        "rows_per_step": 2 * args.pairs, "steps": args.steps, "device": device,
        "machine": platform.machine(), "threads": torch.get_num_threads(),
        "torch": torch.__version__, "transformers": transformers.__version__,
    }  # fmt: skip
    save_report(args.output, report)


if __name__ == "__main__":
    main()
