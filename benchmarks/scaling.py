"""How the cost of a training step grows with batch, length, vocabulary, classes and processes.

python -m benchmarks.scaling [--toy]

One quantity changes at a time; the others stay at 32 rows of 32 tokens and a vocabulary of 13,685,
in MiniLM's shape (6 layers of 384). The values of all axes are measured in turn, for several
rounds, and the lowest time is kept, so that a busy machine affects all of them equally. Classes are
those of the margin softmax on the article's GRU; each process has 32 rows of its own, and sees the
vectors of all. An exponent of 1 means that the cost doubles with the quantity; that of the last two
values shows the growth when fixed costs no longer count.
"""

from __future__ import annotations

import argparse
import os
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed, nn
from torch.multiprocessing.spawn import spawn

from benchmarks import headline, margin
from benchmarks.reports import DEVICE, ReportParser, clock, environment, markdown, save_report
from simbert_hf import SimBert, SimBertConfig
from simbert_hf.objectives import SimBertObjective
from simbert_hf.utils.plots import new_figure, save_figure

FULL = {
    "rows": [16, 32, 64, 128, 256],
    "tokens": [16, 32, 64, 128, 256],  # of a row
    "vocabulary": [1_000, 10_000, 30_000, 100_000],
    "classes": [1_000, 10_000, 100_000],
    "processes": [1, 2],
}
SMALL = {
    "rows": [4, 8, 16],
    "tokens": [16, 32, 64],
    "vocabulary": [1_000, 10_000],
    "classes": [1_000, 10_000],
    "processes": [1, 2],
}
USUAL = {"rows": 32, "tokens": 32, "vocabulary": 13_685, "classes": 0}
MINILM = {
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
}


def simbert_step(setting: dict[str, int], args: argparse.Namespace) -> Callable[[], None]:
    """Return a step of SimBERT's joint loss, in a group of processes if there is one."""
    shape = headline.TOY if args.toy else MINILM
    torch.manual_seed(0)
    model: nn.Module = SimBert(SimBertConfig(vocab_size=setting["vocabulary"], **shape))
    model.to(args.device).train()
    if distributed.is_initialized():
        model = nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-6)
    sides = (setting["tokens"] - 2) // 2, (setting["tokens"] - 3) // 2  # [CLS] A [SEP] B [SEP]
    lengths = np.tile(sides, (setting["rows"] // 2, 1))
    batch = headline.make_batch(lengths, setting["vocabulary"], args.device)

    def step() -> None:
        SimBertObjective()(model, batch).total.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def margin_step(setting: dict[str, int], args: argparse.Namespace) -> Callable[[], None]:
    """Return a step of the margin softmax over all classes."""
    step = margin.make_step(setting["classes"], 0, args.device)
    batch = margin.make_batch(setting["rows"], setting["classes"], 0, args.device)
    return lambda: step(batch)


def seconds_of(setting: dict[str, int], args: argparse.Namespace) -> float:
    """Return the lowest time of some steps, after a warm-up step."""
    step = (margin_step if setting["classes"] else simbert_step)(setting, args)
    step()
    found = []
    for _ in range(args.steps):
        began = clock(args.device)
        step()
        found.append(clock(args.device) - began)
    return min(found)


def work(rank: int, world: int, folder: str, args: argparse.Namespace) -> None:
    """Measure in one of several gloo processes with one thread each."""
    torch.set_num_threads(1)
    loopback = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
    os.environ["GLOO_SOCKET_IFNAME"] = loopback
    store = f"file://{folder}/store"
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
    seconds = seconds_of(USUAL, args)
    if rank == 0:
        Path(folder, "seconds").write_text(str(seconds))
    distributed.destroy_process_group()


def measure(axis: str, value: int, args: argparse.Namespace) -> float:
    """Return the seconds of a step with this one quantity changed."""
    if axis != "processes":
        return seconds_of(USUAL | {axis: value}, args)
    with tempfile.TemporaryDirectory() as folder:
        spawn(work, (value, folder, args), nprocs=value)
        return float(Path(folder, "seconds").read_text())


def growth(points: dict[int, float]) -> dict[str, float]:
    """Fit cost = c x**k over all values, and over the last two: k of both."""
    x, y = np.log(list(points)), np.log(list(points.values()))
    return {
        "exponent": round(float(np.polyfit(x, y, 1)[0]), 2),
        "exponent_at_the_end": round(float((y[-1] - y[-2]) / (x[-1] - x[-2])), 2),
    }


def plot(found: dict[str, dict[str, Any]], path: Path) -> None:
    """Plot the time by each quantity, with a proportional line."""
    figure = new_figure(3.1 * len(found), 3.2)
    for axis, (name, curve) in zip(figure.subplots(1, len(found)), found.items(), strict=True):
        values, ms = list(curve["ms"]), list(curve["ms"].values())
        axis.plot(values, ms, "o-", label=f"exponent {curve['exponent']}")
        axis.plot(values, [ms[-1] * v / values[-1] for v in values], ":", label="proportional")
        axis.set(xscale="log", yscale="log", xlabel=name, ylabel="ms a step")
        axis.set_xticks(values, [f"{value:,}" for value in values], fontsize=7)
        axis.xaxis.minorticks_off()
        axis.legend(frameon=False)
    save_figure(figure, path)


def main() -> None:
    """Measure, print a Markdown table, write JSON and a plot."""
    parser = ReportParser(__doc__, "scaling", "toy")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--toy", action="store_true", help="A tiny model, to try the program.")
    parser.add_argument("--device", default=DEVICE)
    args = parser.parse_args()
    sizes = {**(SMALL if args.toy else FULL)}
    if args.device != "cpu":
        del sizes["processes"]  # gloo, by a thread each: a CPU's
    variants = [(axis, value) for axis, values in sizes.items() for value in values]
    rounds = [{v: measure(*v, args) for v in variants} for _ in range(args.rounds)]
    found: dict[str, dict[str, Any]] = {}
    for axis, values in sizes.items():
        points = {value: 1e3 * min(once[axis, value] for once in rounds) for value in values}
        found[axis] = {"ms": {v: round(ms, 2) for v, ms in points.items()}, **growth(points)}
    shown = {
        axis: ", ".join(f"{value:,}: {ms:,.1f}" for value, ms in curve["ms"].items())
        for axis, curve in found.items()
    }
    print(markdown([{"what grows": axis, **found[axis], "ms": shown[axis]} for axis in found]))
    report = {"axes": found, "usual": USUAL, "toy": args.toy, "steps": args.steps}
    report |= {"rounds": args.rounds} | environment(args.device)
    save_report(args.output, report)
    plot(found, args.output.with_suffix(".png"))


if __name__ == "__main__":
    main()
