"""Peak memory of a training step by the rows of its batch: plain, and with GradCache.

python -m benchmarks.memory --model DIR_OR_ID [--output outputs/benchmarks/memory.json]

Real pairs, SimBERT's joint loss and AdamW, a step after a small one. Each figure is the peak of a
process of its own: resident memory on a CPU (Python and its libraries with it), allocated memory on
a GPU. On a CPU glibc is told to give freed blocks back at once, so that the peak is what was held
at a time, not the holes in its heap; set MALLOC_MMAP_THRESHOLD_=262144 for the same in training.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.reports import report_file, save_report
from benchmarks.train import DATA
from simbert_hf import SimBert
from simbert_hf.collators import PairCollator
from simbert_hf.data import LengthGroupedBatchSampler, PairDataset, load_groups
from simbert_hf.objectives import SimBertObjective
from simbert_hf.training.gradcache import use_gradcache

SMALL, LARGE, MICRO = 128, 8192, 64  # rows; the last of a GradCache forward pass


def measure(model_name: str, rows: int, micro: int) -> dict[str, float]:
    """Take two training steps in this process; ``micro`` 0 for all rows at once."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = SimBert.from_pretrained(model_name).to(device).train()
    collator, objective = PairCollator(model.rows), SimBertObjective()
    if micro:
        use_gradcache(model, micro)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-6)
    data = PairDataset(load_groups(DATA)[0])
    sampler = iter(LengthGroupedBatchSampler(data, rows // 2, collator.lengths, window=1))
    drawn = data.__getitems__(next(sampler))
    for pairs in (drawn[: SMALL // 2], drawn):  # the first step makes AdamW's moments
        started = time.perf_counter()
        batch = {name: values.to(device) for name, values in collator(pairs).items()}
        objective(model, batch).total.backward()
        optimizer.step()
        optimizer.zero_grad()
    if device == "cuda":
        peak = torch.cuda.max_memory_allocated()
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"rows": rows, "micro": micro, "MB": peak / 1e6, "s": time.perf_counter() - started}


def measure_apart(model_name: str, rows: int, micro: int) -> dict[str, Any]:
    """Run one variant in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.memory", f"--model={model_name}"]
    command += [f"--rows={rows}", f"--micro={micro}"]
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "262144"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    """Measure, print a Markdown table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rows", type=int, help="Measure this variant only, with --micro.")
    parser.add_argument("--micro", type=int, default=0)
    parser.add_argument("--large", type=int, default=LARGE)
    parser.add_argument("--output", type=report_file, default="outputs/benchmarks/memory.json")
    args = parser.parse_args()
    if args.rows:
        sys.stdout.write(json.dumps(measure(args.model, args.rows, args.micro)))
        return
    variants = [(SMALL, 0), (4 * SMALL, 0), (SMALL, MICRO), (args.large, MICRO)]
    found = [measure_apart(args.model, *variant) for variant in variants]
    print("| rows | rows of a forward pass | peak, MB | s a step |\n|---|---|---|---|")
    for point in found:
        print(
            f"| {point['rows']:,} | {point['micro'] or 'all'} | {point['MB']:,.0f} "
            f"| {point['s']:.1f} |"
        )
    ratio = found[-1]["MB"] / found[0]["MB"]
    print(f"\n{args.large:,} rows by {MICRO} / {SMALL} rows at once: {ratio:.2f}")
    report = {
        "points": found, "ratio": ratio, "model": Path(args.model).name,
        "machine": platform.machine(), "threads": torch.get_num_threads(),
        "torch": torch.__version__, "transformers": transformers.__version__,
    }  # fmt: skip
    save_report(args.output, report)


if __name__ == "__main__":
    main()
