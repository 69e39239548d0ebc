"""Peak memory of a training step by number of rows in its batch: plain, and with GradCache.

python -m benchmarks.memory --model DIR_OR_ID

Real pairs, SimBERT's joint loss and AdamW, one step after a small one. Each figure is the peak of a
separate process: resident memory on a CPU (with Python and its libraries), allocated memory on a
GPU. On a CPU, glibc is set to return freed blocks at once, so that the peak is what was held at a
time, without holes in its heap; set MALLOC_MMAP_THRESHOLD_=262144 for the same in training.
"""

from __future__ import annotations

from pathlib import Path

import torch

from benchmarks.group_data import TATOEBA
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
from simbert_hf import SimBert
from simbert_hf.collators import PairCollator
from simbert_hf.data import LengthGroupedBatchSampler, PairDataset, load_groups
from simbert_hf.objectives import SimBertObjective
from simbert_hf.training.gradcache import use_gradcache

SMALL, LARGE, MICRO = 128, 8192, 64  # rows; the last of a GradCache forward pass


def measure(model_name: str, rows: int, micro: int, device: str) -> dict[str, float]:
    """Take two training steps in this process; ``micro`` 0 for all rows at once."""
    model = SimBert.from_pretrained(model_name).to(device).train()
    collator, objective = PairCollator(model.rows), SimBertObjective()
    if micro:
        use_gradcache(model, micro)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-6)
    data = PairDataset(load_groups(TATOEBA)[0])
    sampler = iter(LengthGroupedBatchSampler(data, rows // 2, collator.lengths, window=1))
    drawn = data.__getitems__(next(sampler))
    for pairs in (drawn[: SMALL // 2], drawn):  # the first step makes AdamW's moments
        started = clock(device)
        batch = {name: values.to(device) for name, values in collator(pairs).items()}
        objective(model, batch).total.backward()
        optimizer.step()
        optimizer.zero_grad()
    spent = clock(device) - started
    return {"rows": rows, "micro": micro, "MB": peak_memory(device) / 1e6, "s": spent}


def main() -> None:
    """Measure, print a Markdown table, write JSON."""
    parser = ReportParser(__doc__, "memory")
    parser.add_argument("--model", required=True)
    parser.add_argument("--large", type=int, default=LARGE)
    args = parser.parse_args()
    variants = [(SMALL, 0), (4 * SMALL, 0), (SMALL, MICRO), (args.large, MICRO)]
    found = [
        measure_apart(measure, args.model, rows, micro, DEVICE, **FREED) for rows, micro in variants
    ]
    print(markdown(found))
    ratio = found[-1]["MB"] / found[0]["MB"]
    print(f"\n{args.large:,} rows by {MICRO} / {SMALL} rows at once: {ratio:.2f}")
    report = {"points": found, "ratio": ratio, "model": Path(args.model).name}
    save_report(args.output, report | environment(DEVICE))


if __name__ == "__main__":
    main()
