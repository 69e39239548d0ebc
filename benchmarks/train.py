"""Training rows a second: this package beside the naive faithful port, same pairs, one run.

python -m benchmarks.train --model DIR_OR_ID [--steps 8] [--output outputs/benchmarks/train.json]

The port takes random batches, padded to 64 tokens or to the longest row; the package its own order,
like lengths together, of the same pairs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoTokenizer

from benchmarks.headline import clock, environment
from benchmarks.naive_port import build_optimizer, build_port, collate, train_step
from benchmarks.reports import report_file, save_report
from simbert_hf import SimBert
from simbert_hf.collators import PairCollator
from simbert_hf.data import LengthGroupedBatchSampler, PairDataset, load_groups
from simbert_hf.objectives import SimBertObjective
from simbert_hf.rows import RowBuilder

DATA = Path(__file__).parent.parent / "scripts" / "data" / "tatoeba_en" / "pairs.jsonl.gz"
PORTS = ("naive port, padded to 64", "naive port, padded to the longest row")


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


def naive(
    model_name: str, device: str, bf16: bool, padding: str
) -> Callable[[list[dict[str, Any]]], None]:
    """Return the port's training step: logits of every position of padded rows."""
    tokenizer = AutoTokenizer.from_pretrained(model_name)
    model = build_port(AutoConfig.from_pretrained(model_name)).to(device).train()
    optimizer = build_optimizer(model)

    def step(pairs: list[dict[str, Any]]) -> None:
        texts = [(pair["source"], pair["target"]) for pair in pairs]
        batch = {k: v.to(device) for k, v in collate(tokenizer, texts, padding=padding).items()}
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
            train_step(model, optimizer, batch)

    return step


def variants(model: str, device: str, bf16: bool) -> dict[str, Callable[..., None]]:
    """Return the training steps that are compared, in one precision."""
    return {
        PORTS[0]: naive(model, device, bf16, "max_length"),
        PORTS[1]: naive(model, device, bf16, "longest"),
        "simbert_hf": ours(model, device, bf16),
    }


def seconds(
    steps: dict[str, Callable[..., None]],
    batches: dict[str, list[list[Any]]],
    rounds: int,
    device: str,
) -> dict[str, float]:
    """Run the variants in turn over all their batches; sum each batch's least seconds."""
    least: dict[tuple[str, int], float] = {}
    for _ in range(rounds):
        for i in range(len(batches["random"])):
            for name, step in steps.items():
                started = clock(device)
                step(batches["grouped" if name == "simbert_hf" else "random"][i])
                took = clock(device) - started
                least[name, i] = min(took, least.get((name, i), took))
    return {name: sum(v for (n, _), v in least.items() if n == name) for name in steps}


def main() -> None:
    """Measure, print a Markdown table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--pairs", type=int, default=64, help="Pairs a batch; two rows each.")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2, help="The first warms up.")
    parser.add_argument("--output", type=report_file, default="outputs/benchmarks/train.json")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    groups = load_groups(DATA)[0].shuffle(seed=0).select(range(args.steps * args.pairs))
    data = PairDataset(groups)
    lengths = PairCollator(RowBuilder(AutoTokenizer.from_pretrained(args.model))).lengths
    batches = {
        order: [
            data.__getitems__(rows)
            for rows in LengthGroupedBatchSampler(data, args.pairs, lengths, window=window)
        ]
        for order, window in (("random", 1), ("grouped", 50))
    }
    rows: dict[str, dict[str, float]] = {}
    for dtype in ("float32", "bfloat16"):
        steps = variants(args.model, device, dtype == "bfloat16")
        found = seconds(steps, batches, args.rounds, device)
        rows[dtype] = {name: 2 * len(data) / spent for name, spent in found.items()}
    ratios = {
        dtype: {port: speeds["simbert_hf"] / speeds[port] for port in PORTS}
        for dtype, speeds in rows.items()
    }
    print(f"| precision | simbert_hf, rows/s | {' | '.join(f'x {port}' for port in PORTS)} |")
    print("|---|---|---|---|")
    for dtype, ratio in ratios.items():
        shown = " | ".join(f"{ratio[port]:.2f}" for port in PORTS)
        print(f"| {dtype} | {rows[dtype]['simbert_hf']:.0f} | {shown} |")
    report = {
        "rows_per_second": rows, "ratio": ratios,
        "rows_per_step": 2 * args.pairs, "steps": args.steps,
    }  # fmt: skip
    save_report(args.output, report | environment(device))


if __name__ == "__main__":
    main()
