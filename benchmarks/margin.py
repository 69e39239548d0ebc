"""Step time and memory of margin softmax by number of classes, with full and sampled centres.

python -m benchmarks.margin [--rounds 3] [--steps 10]

Each figure is from a separate process: the lowest of the rounds' medians, and the peak above that
of ten classes. The encoder is the article's GRU; rows are random.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.reports import (
    DEVICE,
    ReportParser,
    clock,
    environment,
    markdown,
    measure_apart,
    peak_memory,
    save_report,
)
from simbert_hf.gru import CharGru, CharGruConfig
from simbert_hf.margin.centres import SampledCentres
from simbert_hf.margin.classes import MarginObjective, add_centres
from simbert_hf.margin.softmax import MarginSoftmax
from simbert_hf.utils.plots import new_figure, save_figure

FULL = [10_000, 100_000, 1_000_000]
SAMPLED = [100_000, 1_000_000]
DRAWN = 10_000


def make_step(classes: int, drawn: int, device: str) -> Callable[[dict[str, Tensor]], None]:
    """Return the training step; ``drawn`` 0 keeps all centres in the model."""
    torch.manual_seed(0)
    model = CharGru(CharGruConfig(vocab_size=5000)).to(device).train()
    shape = (classes, 1, model.config.hidden_size)
    centres = SampledCentres(shape, drawn, device=device) if drawn else None
    if centres is None:
        add_centres(model, shape, seed=0)
    objective = MarginObjective(MarginSoftmax("am"), centres)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(batch: dict[str, Tensor]) -> None:
        objective(model, batch).total.backward()
        optimizer.step()
        optimizer.zero_grad()
        if centres is not None:
            centres.step(1e-3)

    return step


def make_batch(rows: int, classes: int, seed: int, device: str) -> dict[str, Tensor]:
    """Draw rows of 32 random ids, and their classes."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, 1000, (rows, 32), generator=generator)
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    batch["classes"] = torch.randint(classes, (rows,), generator=generator)
    return {name: values.to(device) for name, values in batch.items()}


def measure(classes: int, drawn: int, args: argparse.Namespace, device: str) -> dict[str, float]:
    """Run one variant: its median seconds per step and its peak memory in bytes."""
    step = make_step(classes, drawn, device)
    seconds = []
    for i in range(args.steps + 2):  # two warm up
        batch = make_batch(args.batch, classes, i, device)
        started = clock(device)
        step(batch)
        seconds.append(clock(device) - started)
    return {"seconds": statistics.median(seconds[2:]), "bytes": peak_memory(device)}


def plot(found: dict[str, dict[str, dict[str, float]]], path: Path) -> None:
    """Plot time and memory by number of classes."""
    figure = new_figure(8.5, 3.6)
    for axis, (key, unit) in zip(
        figure.subplots(1, 2),
        (("ms", "ms a step"), ("MB", "MB of centres and scores")),
        strict=True,
    ):
        for name, points in found.items():
            label = "all centres" if name == "full" else f"{DRAWN:,} sampled"
            values = [point[key] for point in points.values()]
            axis.plot([int(c) for c in points], values, "o-", label=label)
        axis.set(xscale="log", yscale="log", xlabel="classes", ylabel=unit)
        axis.legend(frameon=False)
    save_figure(figure, path)


def compare(args: argparse.Namespace) -> dict[str, dict[str, dict[str, float]]]:
    """Measure every variant in turn, for several rounds: ms and MB by kind and classes."""
    variants = [(c, 0) for c in FULL] + [(c, DRAWN) for c in SAMPLED]

    def apart(classes: int, drawn: int) -> dict[str, float]:
        return measure_apart(measure, classes, drawn, args, DEVICE)

    rounds = [{variant: apart(*variant) for variant in variants} for _ in range(args.rounds)]
    base = apart(10, 0)["bytes"]
    found: dict[str, dict[str, dict[str, float]]] = {"full": {}, "sampled": {}}
    for classes, drawn in variants:
        runs = [once[classes, drawn] for once in rounds]
        found["sampled" if drawn else "full"][str(classes)] = {
            "ms": round(1e3 * min(run["seconds"] for run in runs), 2),
            "MB": round((statistics.median(run["bytes"] for run in runs) - base) / 1e6, 1),
        }
    return found


def main() -> None:
    """Measure, print a Markdown table, write JSON and a plot."""
    parser = ReportParser(__doc__, "margin")
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    found = compare(args)
    rows = [
        {"classes": int(classes), "centres": name, **values}
        for name, points in found.items()
        for classes, values in points.items()
    ]
    print(markdown(rows))
    ratio = found["sampled"][str(SAMPLED[-1])]["ms"] / found["full"][str(DRAWN)]["ms"]
    print(f"\n{SAMPLED[-1]:,} classes sampled / {DRAWN:,} classes full: {ratio:.2f}")
    report = found | {"ratio": ratio, "drawn": DRAWN, "batch": args.batch}
    save_report(args.output, report | environment(DEVICE))
    plot(found, args.output.with_suffix(".png"))


if __name__ == "__main__":
    main()
