"""How much padding and training time the order of the batches saves.

python -m benchmarks.padding --model DIR_OR_ID [--steps 6]

Pairs of one epoch in random batches; in batches of similar length within 50 batches, counted in
characters and in tokens; and the last split into batches of equally many tokens. The steps
(SimBERT's loss, bfloat16, AdamW) take turns; their time is divided by the number of real tokens. On
a CPU it is CPU time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from transformers import AutoTokenizer

from benchmarks.group_data import TATOEBA
from benchmarks.reports import DEVICE, ReportParser, clock, environment, markdown, save_report
from benchmarks.train import ours
from simbert_hf import SimBertConfig
from simbert_hf.collators import PairCollator
from simbert_hf.data import Pair, PairDataset, load_groups
from simbert_hf.data.batching import LengthGroupedBatchSampler
from simbert_hf.rows import RowBuilder
from simbert_hf.utils.arrays import Ints


def characters(pairs: Sequence[Pair]) -> Ints:
    """Count the characters of both sentences."""
    return np.array([len(pair["source"]) + len(pair["target"]) for pair in pairs])


def tokens(batches: Sequence[Sequence[Pair]], collator: PairCollator) -> dict[str, float]:
    """Compare real and padded tokens over whole batches."""
    lengths = [collator.lengths(batch) for batch in batches]
    padded = np.array([len(batch) * batch.max() for batch in lengths])
    return {
        "padded_by_real": float(padded.sum() / sum(batch.sum() for batch in lengths)),
        "largest_by_mean": float(padded.max() / padded.mean()),
    }


def main() -> None:
    """Measure, print a Markdown table, write JSON."""
    parser = ReportParser(__doc__, "padding")
    parser.add_argument("--model", required=True)
    parser.add_argument("--pairs", type=int, default=64)
    parser.add_argument("--steps", type=int, default=6)
    args = parser.parse_args()
    collator = PairCollator(RowBuilder(AutoTokenizer.from_pretrained(args.model)))
    data = PairDataset(load_groups(TATOEBA)[0])
    orders: dict[str, dict[str, Any]] = {
        "at random": {"lengths": characters, "window": 1},
        "by characters": {"lengths": characters},
        "by tokens": {"lengths": collator.lengths},
        "by tokens, even": {"lengths": collator.lengths, "even_tokens": True},
    }
    found: dict[str, dict[str, float]] = {}
    timed = {}
    for name, options in orders.items():
        batches = [
            data.__getitems__(rows)
            for rows in LengthGroupedBatchSampler(data, args.pairs, **options)
        ]
        found[name] = tokens(batches, collator)
        timed[name] = batches[: args.steps]
    step = ours(SimBertConfig.from_pretrained(args.model), collator, DEVICE, bf16=True)
    now = time.process_time if DEVICE == "cpu" else lambda: clock(DEVICE)
    spent = dict.fromkeys(orders, 0.0)
    step(timed["at random"][0])  # warm up
    for i in range(args.steps):
        for name, batches in timed.items():
            began = now()
            step(batches[i])
            spent[name] += now() - began
    for name, batches in timed.items():
        real = 2 * sum(int(collator.lengths(batch).sum()) for batch in batches)
        found[name]["ms_per_1000_tokens"] = 1e6 * spent[name] / real
    print(markdown([{"batches": name, **row} for name, row in found.items()]))
    report = {"orders": found, "pairs": args.pairs, "steps": args.steps} | environment(DEVICE)
    save_report(args.output, report)


if __name__ == "__main__":
    main()
