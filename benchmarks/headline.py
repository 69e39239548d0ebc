"""SimBERT training at BERT-base's shape on rows as long as real Chinese question pairs.

python -m benchmarks.headline [--lengths groups.json] [--rows 128] [--bf16] [--compile] \
    [--packing padded|flex|varlen] [--attention_dropout 0] [--output headline.json]

Rows a second with all that a step needs, and how the time parts into the passes and the optimiser.
Token ids are random: only their number matters. Without --lengths, lengths of sentences are drawn
from a lognormal distribution with the moments of 19,555 real pairs (29 tokens a row).
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor

from benchmarks.reports import report_file, save_report
from simbert_hf import SimBert, SimBertConfig
from simbert_hf.collators import target_labels
from simbert_hf.compiling import compile_layers
from simbert_hf.data import PairDataset, load_groups
from simbert_hf.objectives import SimBertObjective
from simbert_hf.packing import ATTENTIONS, use_packing

# Mean and standard deviation of the log of a sentence's characters, and a pair's correlation.
LOG_MEAN, LOG_STD, CORRELATION = 2.484, 0.399, 0.658
ORIGINAL_ROWS = 1.17e6 * 128  # what the released base model was trained on
WINDOW = 50  # batches among which like lengths are grouped, as in training
# Dense bfloat16 FLOP/s by the maker's data sheets, by a part of the device's name.
PEAKS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12}
TOY = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 128,
}


def pair_lengths(path: str | None, n: int) -> np.ndarray:
    """Tokens of both sentences of n pairs, without special ones: (n, 2)."""
    rng = np.random.default_rng(0)
    if path is None:
        covariance = LOG_STD**2 * np.array([[1, CORRELATION], [CORRELATION, 1]])
        found = np.exp(rng.multivariate_normal([LOG_MEAN, LOG_MEAN], covariance, size=n))
    else:  # a Chinese character is a token
        pairs = PairDataset(load_groups([path])[0])
        chosen = rng.integers(len(pairs), size=n).tolist()
        found = np.array([(len(p["source"]), len(p["target"])) for p in pairs.__getitems__(chosen)])
    return np.clip(found.round().astype(int), 2, 62)


def make_batch(lengths: np.ndarray, vocabulary: int, device: str) -> dict[str, Tensor]:
    """Build the rows (A, B) and (B, A) of P pairs of such lengths: 2P rows."""
    both = torch.from_numpy(np.stack([lengths, lengths[:, ::-1]], axis=1).reshape(-1, 2))
    ends = (both + torch.tensor([2, 1])).cumsum(dim=1)  # [CLS] A [SEP] | B [SEP]
    columns = torch.arange(int(ends.max()))[None]
    real = columns < ends[:, 1:]
    segments = real & (columns >= ends[:, :1])
    ids = torch.randint(5, vocabulary, real.shape) * real
    batch = {"input_ids": ids, "attention_mask": real.long(), "token_type_ids": segments.long()}
    batch |= target_labels(batch) | {"groups": torch.arange(len(both)) // 2}
    return {name: values.to(device) for name, values in batch.items()}


def make_batches(args: argparse.Namespace, vocabulary: int) -> list[dict[str, Tensor]]:
    """Build batches as the sampler draws them: a random order, in windows sorted by length."""
    pairs = args.rows // 2
    lengths = pair_lengths(args.lengths, pairs * WINDOW)
    lengths = lengths[np.argsort(lengths.sum(axis=1), kind="stable")]
    chosen = np.random.default_rng(1).permutation(WINDOW)[: args.steps]
    return [
        make_batch(lengths[i * pairs : (i + 1) * pairs], vocabulary, args.device) for i in chosen
    ]


def flops(model: SimBert, batch: dict[str, Tensor]) -> float:
    """Floating-point operations of both passes over the real tokens of a batch."""
    config = model.config
    d, tokens = config.hidden_size, batch["attention_mask"].sum(dim=1).double()
    layer = 4 * d * d + 2 * d * config.intermediate_size  # weights, each 2 operations a token
    attention = 2 * d * tokens.square().sum().item()  # of queries with keys, and with values
    body = config.num_hidden_layers * (layer * tokens.sum().item() + attention)
    head = len(batch["target_labels"]) * (d * d + d * config.vocab_size)
    return 3 * 2 * (body + head)


def clock(device: str) -> float:
    """The time in seconds, when the device has done what it was told."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Train over the batches twice, the first time to warm up; return rates and shares."""
    torch.manual_seed(0)
    shape = TOY if args.toy else {}
    config = SimBertConfig(
        vocab_size=13685, attention_probs_dropout_prob=args.attention_dropout, **shape
    )
    model = SimBert(config).to(args.device).train()
    if args.compile:
        compile_layers(model)
    if args.packing:
        use_packing(model, args.packing)
    objective = SimBertObjective()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-6, fused=True)
    batches = make_batches(args, model.config.vocab_size)
    for _ in range(2):
        passes, updates = [], []
        began = clock(args.device)
        for batch in batches:
            with torch.autocast(args.device, torch.bfloat16, enabled=args.bf16):
                loss = objective(model, batch).total
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        seconds = clock(args.device) - began
    for batch in batches:  # once more with a stop between, which costs time
        started = clock(args.device)
        with torch.autocast(args.device, torch.bfloat16, enabled=args.bf16):
            loss = objective(model, batch).total
        loss.backward()
        halfway = clock(args.device)
        optimizer.step()
        optimizer.zero_grad()
        passes.append(halfway - started)
        updates.append(clock(args.device) - halfway)
    tokens = sum(int(batch["attention_mask"].sum()) for batch in batches)
    places = sum(batch["attention_mask"].numel() for batch in batches)
    rate = args.rows * len(batches) / seconds
    speed = sum(flops(model, batch) for batch in batches) / seconds
    return {
        "rows_per_second": rate,
        "hours_for_the_original": ORIGINAL_ROWS / rate / 3600,
        "tokens_per_second": tokens / seconds,
        "tokens_per_row": tokens / (args.rows * len(batches)),
        "padding": 1 - tokens / places,
        "tflop_per_second": speed / 1e12,
        "mfu": utilisation(speed, args.device),
        "passes_ms": 1e3 * statistics.median(passes),
        "optimizer_ms": 1e3 * statistics.median(updates),
        "peak_MB": torch.cuda.max_memory_allocated() / 1e6 if args.device == "cuda" else None,
    }


def utilisation(speed: float, device: str) -> float | None:
    """Share of the device's peak in bfloat16; None where that is not known."""
    name = torch.cuda.get_device_name() if device == "cuda" else platform.machine()
    peak = next((peak for part, peak in PEAKS.items() if part in name), math.nan)
    return None if math.isnan(peak) else speed / peak


def environment(device: str) -> dict[str, Any]:
    """Say where figures come from."""
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", help="Groups of Chinese sentences, for their lengths alone.")
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--packing", choices=tuple(ATTENTIONS), help="Leave the padding out.")
    parser.add_argument("--attention_dropout", type=float, default=0.1)
    parser.add_argument("--toy", action="store_true", help="A tiny model, to try the program.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--output", type=report_file, default="outputs/benchmarks/headline.json")
    args = parser.parse_args()
    names = "rows steps bf16 compile packing attention_dropout toy".split()
    asked = {name: getattr(args, name) for name in names}
    report = asked | {"lengths": args.lengths and Path(args.lengths).name} | measure(args)
    report |= environment(args.device)
    print(json.dumps(report, indent=2))
    save_report(args.output, report)


if __name__ == "__main__":
    main()
