"""Training speed and memory of this package and the naive port, on the same pairs in one run.

python -m benchmarks.train --model DIR_OR_ID [--pairs 64] [--steps 8] [--compile]

In the shape of --model and, with half the pairs and steps, in BERT-base's; weights are random. The
port takes random batches, padded to 64 tokens or to the longest row; the package takes the same
pairs in its own order, similar lengths together. Tokens and operations are those that the pairs
need, so padding and logits of other positions do not count. Peak memory is that of two steps on the
longest batch: of a separate process on a CPU, of allocated memory on a GPU.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from benchmarks.group_data import TATOEBA
from benchmarks.headline import flops, utilisation
from benchmarks.naive_port import build_optimizer, build_port, collate, train_step
from benchmarks.reports import (
    DEVICE,
    FREED,
    ReportParser,
    clock,
    environment,
    markdown,
    measure_apart,
    peak_memory,
    save_report,
)
from simbert_hf import SimBert, SimBertConfig
from simbert_hf.collators import PairCollator
from simbert_hf.data import LengthGroupedBatchSampler, Pair, PairDataset, load_groups
from simbert_hf.objectives import SimBertObjective
from simbert_hf.rows import RowBuilder
from simbert_hf.training.compiling import compile_layers
from simbert_hf.training.fused_attention import use_fused_attention
from simbert_hf.utils.plots import new_figure, save_figure

Step = Callable[[list[Pair]], None]
PADDING = {
    "naive port, padded to 64": "max_length",
    "naive port, padded to the longest row": "longest",
}
OURS = "simbert_hf"
PROGRAMS = (*PADDING, OURS)
SHAPES = {"start": 1, "BERT-base": 2}  # what --pairs and --steps are divided by
PRECISIONS = ("float32", "bfloat16")


def ours(
    config: SimBertConfig, collator: PairCollator, device: str, bf16: bool, compiled: bool = False
) -> Step:
    """Return this package's training step, as its trainer takes it."""
    model, objective = SimBert(config).to(device).train(), SimBertObjective()
    if compiled:
        compile_layers(model)
    if bf16 and device == "cuda":
        use_fused_attention(model)
    options = {"lr": 2e-6, "weight_decay": 0.01, "fused": True}
    optimizer = torch.optim.AdamW(model.parameters(), **options)

    def step(pairs: list[Pair]) -> None:
        batch = {k: v.to(device) for k, v in collator(pairs).items()}
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
            loss = objective(model, batch).total
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def naive(
    config: SimBertConfig,
    tokenizer: PreTrainedTokenizerBase,
    device: str,
    bf16: bool,
    padding: str,
) -> Step:
    """Return the port's training step: logits of every position of padded rows."""
    model = build_port(config).to(device).train()
    optimizer = build_optimizer(model)

    def step(pairs: list[Pair]) -> None:
        texts = [(pair["source"], pair["target"]) for pair in pairs]
        batch = {k: v.to(device) for k, v in collate(tokenizer, texts, padding=padding).items()}
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
            train_step(model, optimizer, batch)

    return step


class Contest:
    """The programs in one shape, with their batches of the same pairs."""

    def __init__(self, shape: str, args: argparse.Namespace) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(args.model)
        self.collator = PairCollator(RowBuilder(self.tokenizer))
        self.config = SimBertConfig.from_pretrained(args.model)
        if shape != "start":
            self.config = SimBertConfig(vocab_size=len(self.tokenizer))
        self.compiled = args.compile
        pairs, steps = (max(1, n // SHAPES[shape]) for n in (args.pairs, args.steps))
        data = PairDataset(load_groups(TATOEBA)[0].shuffle(seed=0).select(range(steps * pairs)))
        random, grouped = (
            [
                data.__getitems__(rows)
                for rows in LengthGroupedBatchSampler(
                    data, pairs, self.collator.lengths, window=window
                )
            ]
            for window in (1, 50)
        )
        self.batches = dict.fromkeys(PADDING, random) | {OURS: grouped}

    def step(self, program: str, bf16: bool) -> Step:
        """Return a program's training step."""
        if program == OURS:
            return ours(self.config, self.collator, DEVICE, bf16, self.compiled)
        return naive(self.config, self.tokenizer, DEVICE, bf16, PADDING[program])

    def peak(self, program: str, bf16: bool) -> float:
        """Take two steps, the first of which makes AdamW's moments, on the longest batch."""
        step = self.step(program, bf16)
        longest = max(self.batches[program], key=lambda pairs: self.collator.lengths(pairs).max())
        for _ in range(2):
            step(longest)
        return peak_memory(DEVICE)

    def seconds(self, bf16: bool, rounds: int) -> dict[str, float]:
        """Run the programs in turn over all their batches; sum each batch's lowest seconds."""
        steps = {program: self.step(program, bf16) for program in PROGRAMS}
        least: dict[tuple[str, int], float] = {}
        for _ in range(rounds):
            for i in range(len(self.batches[OURS])):
                for program, step in steps.items():
                    started = clock(DEVICE)
                    step(self.batches[program][i])
                    took = clock(DEVICE) - started
                    least[program, i] = min(took, least.get((program, i), took))
        return {name: sum(v for (n, _), v in least.items() if n == name) for name in PROGRAMS}

    def rates(self, seconds: float) -> dict[str, float | None]:
        """Return the rates, given the time of all batches."""
        batches = [self.collator(pairs) for pairs in self.batches[OURS]]
        speed = sum(flops(self.config, batch) for batch in batches) / seconds
        return {
            "rows/s": sum(len(batch["attention_mask"]) for batch in batches) / seconds,
            "tokens/s": sum(int(batch["attention_mask"].sum()) for batch in batches) / seconds,
            "GFLOP/s": speed / 1e9,
            "MFU": utilisation(speed, DEVICE),
        }


def peak_of(variant: tuple[str, str, str], args: argparse.Namespace) -> float:
    """Measure the peak memory of one program in one shape and precision."""
    shape, precision, program = variant
    if DEVICE == "cuda":
        gc.collect()
        torch.cuda.reset_peak_memory_stats()
    return Contest(shape, args).peak(program, precision == "bfloat16")


def compare(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure all programs: one row per shape, precision and program."""
    variants = product(args.shapes, PRECISIONS, PROGRAMS)
    # first, while this process, with whose peak the others begin, is small
    peaks = {
        variant: peak_of(variant, args)
        if DEVICE == "cuda"
        else measure_apart(peak_of, variant, args, **FREED)
        for variant in variants
    }
    rows = []
    for shape, precision in product(args.shapes, PRECISIONS):
        contest = Contest(shape, args)
        spent = contest.seconds(precision == "bfloat16", args.rounds)
        for program, seconds in spent.items():
            variant = shape, precision, program
            row = dict(zip(("shape", "precision", "program"), variant, strict=True))
            times = {"x as long as ours": seconds / spent[OURS]}
            rows.append(row | times | contest.rates(seconds) | {"peak, MB": peaks[variant] / 1e6})
    return rows


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Plot speed and memory: a group of bars per shape and precision, a bar per program."""
    figure = new_figure(9, 3.4)
    groups = list(dict.fromkeys(f"{row['shape']}\n{row['precision']}" for row in rows))
    keys = {"rows/s": "log", "peak, MB": "linear"}
    for axis, (key, scale) in zip(figure.subplots(1, 2), keys.items(), strict=True):
        for i, program in enumerate(PROGRAMS):
            values = [row[key] for row in rows if row["program"] == program]
            axis.bar(np.arange(len(groups)) + 0.27 * (i - 1), values, 0.25, label=program)
        axis.set_xticks(range(len(groups)), groups, fontsize=8)
        axis.set(yscale=scale, ylabel=key)
    figure.legend(*axis.get_legend_handles_labels(), loc="outside upper center", ncols=3)
    save_figure(figure, path)


def main() -> None:
    """Measure, print a Markdown table, write JSON and a plot."""
    parser = ReportParser(__doc__, "train")
    parser.add_argument("--model", required=True)
    parser.add_argument("--pairs", type=int, default=64, help="Pairs per batch; two rows each.")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2, help="The first warms up.")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=[*SHAPES])
    parser.add_argument("--compile", action="store_true", help="torch.compile, for ours.")
    args = parser.parse_args()
    rows = compare(args)
    print(markdown(rows))
    report = {"figures": rows, "divided_by": SHAPES}
    report |= {name: getattr(args, name) for name in ("pairs", "steps", "compile")}
    save_report(args.output, report | environment(DEVICE))
    plot(rows, args.output.with_suffix(".png"))


if __name__ == "__main__":
    main()
