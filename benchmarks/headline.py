"""SimBERT training at BERT-base's shape on rows as long as real Chinese question pairs.

python -m benchmarks.headline [--rows 128] [--bf16] [--compile] [--graph] [--packing] [--fused] \
    [--window 50] [--attention_dropout 0] [--port]

Rows per second of a complete step without the collating of batches (median round of at least
--seconds), the shares of the passes and the optimiser, and on a GPU a profile. Token ids are
random, as only their number matters; sentence lengths are drawn from a lognormal distribution with
the moments of 19,555 real pairs (29 tokens per row).
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.naive_port import build_optimizer, build_port, compute_losses
from benchmarks.reports import DEVICE, ReportParser, clock, environment, peak_memory, save_report
from simbert_hf import SimBert, SimBertConfig
from simbert_hf.objectives import SimBertObjective
from simbert_hf.rows import target_labels
from simbert_hf.training.compiling import compile_layers
from simbert_hf.training.packing import use_packing

Step = Callable[[dict[str, Tensor]], None]
WINDOW = 50  # batches that are drawn, and among which training groups like lengths
# Mean and standard deviation of the log of a sentence's characters, and a pair's correlation.
LOG_MEAN, LOG_STD, CORRELATION = 2.484, 0.399, 0.658
ORIGINAL_ROWS = 1.17e6 * 128  # what the released base model was trained on
# Dense bfloat16 FLOP/s by the maker's data sheets, by a part of the device's name: the first that
# is in it, so longer parts come first.
PEAKS = {
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L40": 181e12,
    "L4": 121e12,
}
TOY = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 128,
}


def pair_lengths(n: int) -> np.ndarray:
    """Draw the token counts of both sentences of n pairs, without special tokens: (n, 2)."""
    rng = np.random.default_rng(0)
    covariance = LOG_STD**2 * np.array([[1, CORRELATION], [CORRELATION, 1]])
    found = np.exp(rng.multivariate_normal([LOG_MEAN, LOG_MEAN], covariance, size=n))
    found = np.clip(found.round().astype(int), 2, 62)
    return np.minimum(found, np.maximum(61 - found[:, ::-1], 30))  # 64 a pair, the longer side cut


def make_batch(
    lengths: np.ndarray, vocabulary: int, device: str, multiple: int = 1
) -> dict[str, Tensor]:
    """Build the rows (A, B) and (B, A) of P pairs of given lengths: 2P rows.

    With a ``multiple`` above 1, columns are padded to one, and targets repeated up to as many as
    such rows hold: batches then have few shapes, each of which is a CUDA graph.
    """
    both = torch.from_numpy(np.stack([lengths, lengths[:, ::-1]], axis=1).reshape(-1, 2))
    ends = (both + torch.tensor([2, 1])).cumsum(dim=1)  # [CLS] A [SEP] | B [SEP]
    columns = torch.arange(-(-int(ends.max()) // multiple) * multiple)[None]
    real = columns < ends[:, 1:]
    segments = real & (columns >= ends[:, :1])
    ids = torch.randint(5, vocabulary, real.shape) * real
    batch = {"input_ids": ids, "attention_mask": real.long(), "token_type_ids": segments.long()}
    batch |= target_labels(batch) | {"groups": torch.arange(len(both)) // 2}
    if multiple > 1:
        most = torch.arange(len(lengths) * (real.shape[1] - 1))
        for name in ("target_positions", "target_labels"):
            batch[name] = batch[name][most % len(batch[name])]
    return {name: values.to(device) for name, values in batch.items()}


def make_batches(args: argparse.Namespace, vocabulary: int) -> list[dict[str, Tensor]]:
    """Build batches as the sampler draws them: a random order, in windows sorted by length."""
    pairs = args.rows // 2
    lengths = pair_lengths(pairs * WINDOW)
    if not args.port:
        windows = lengths.reshape(-1, args.window * pairs, 2)
        order = windows.sum(axis=2).argsort(axis=1, kind="stable")
        lengths = np.take_along_axis(windows, order[..., None], axis=1).reshape(-1, 2)
    chosen = np.random.default_rng(1).permutation(WINDOW)[: args.steps]
    multiple = 2 if args.graph else 64 if args.port else 1
    return [
        make_batch(lengths[i * pairs : (i + 1) * pairs], vocabulary, args.device, multiple)
        for i in chosen
    ]


def flops(config: SimBertConfig, batch: dict[str, Tensor]) -> float:
    """Count the floating-point operations of both passes over the real tokens of a batch."""
    d, tokens = config.hidden_size, batch["attention_mask"].sum(dim=1).double()
    layer = 4 * d * d + 2 * d * config.intermediate_size  # weights, each 2 operations a token
    attention = 2 * d * tokens.square().sum().item()  # of queries with keys, and with values
    body = config.num_hidden_layers * (layer * tokens.sum().item() + attention)
    head = int(batch["token_type_ids"].sum()) * (d * d + d * config.vocab_size)
    return 3 * 2 * (body + head)


class Graphs:
    """A step recorded as a CUDA graph for each shape of batch, and replayed."""

    def __init__(self, step: Step) -> None:
        self.step, self.pool = step, torch.cuda.graph_pool_handle()
        self.known: dict[tuple[Any, ...], tuple[torch.cuda.CUDAGraph, dict[str, Tensor]]] = {}

    def __call__(self, batch: dict[str, Tensor]) -> None:
        """Copy a batch to where its graph reads it, and replay; record it the first time."""
        shape = tuple(values.shape for values in batch.values())
        if shape not in self.known:
            self.known[shape] = self.record({name: v.clone() for name, v in batch.items()})
        graph, inputs = self.known[shape]
        for name, values in batch.items():
            inputs[name].copy_(values)
        graph.replay()

    def record(self, inputs: dict[str, Tensor]) -> tuple[torch.cuda.CUDAGraph, dict[str, Tensor]]:
        """Warm up on a side stream, as torch requires, and record."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step(inputs)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            self.step(inputs)
        return graph, inputs


def build_model(args: argparse.Namespace) -> Any:
    """Build the requested model in its compute precision."""
    shape = TOY if args.toy else {}
    config = SimBertConfig(
        vocab_size=13685, attention_probs_dropout_prob=args.attention_dropout, **shape
    )
    model = build_port(config) if args.port else SimBert(config)
    model.to(args.device).train()
    if args.compile:
        compile_layers(model)
    if args.packing:
        use_packing(model)
    if args.fused:
        from simbert_hf.training.fused_attention import use_fused_attention

        use_fused_attention(model)
    return model


def passes_of(args: argparse.Namespace, model: Any) -> Step:
    """Make the forward and backward pass over a batch."""
    objective = SimBertObjective()

    def passes(batch: dict[str, Tensor]) -> None:
        # A cached cast of the weights would stay as it was when a graph was recorded.
        cached = {"enabled": args.bf16, "cache_enabled": not args.graph}
        with torch.autocast(args.device, torch.bfloat16, **cached):
            if args.port:
                loss = compute_losses(model, batch)["total"]
            else:
                loss = objective(model, batch).total
        loss.backward()

    return passes


def time_rounds(run: Step, batches: list[dict[str, Tensor]], args: argparse.Namespace) -> Any:
    """Run the batches for some seconds, after a warm-up round; return the time of each round."""
    rounds: list[float] = []
    began = 0.0
    while len(rounds) < 2 or clock(args.device) - began < args.seconds:
        started = clock(args.device)
        for batch in batches:
            run(batch)
        rounds.append(clock(args.device) - started)
        began = began or clock(args.device)
    return rounds[1:]


def profile(step: Step, batches: list[dict[str, Tensor]]) -> str:
    """Profile which kernels take the device's time in five steps."""
    with torch.profiler.profile() as profiler:
        for batch in batches[:5]:
            step(batch)
    return profiler.key_averages().table(
        sort_by="self_device_time_total", row_limit=80, max_name_column_width=100
    )


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Train over the batches; return rates and shares."""
    torch.manual_seed(0)
    model = build_model(args)
    if args.port:
        optimizer: torch.optim.Optimizer = build_optimizer(model)
    else:
        options = {"lr": 2e-6, "fused": True, "capturable": args.graph}
        optimizer = torch.optim.AdamW(model.parameters(), **options)
    passes, batches = passes_of(args, model), make_batches(args, model.config.vocab_size)

    def step(batch: dict[str, Tensor]) -> None:
        passes(batch)
        optimizer.step()
        optimizer.zero_grad()

    run = Graphs(step) if args.graph else step
    rounds = time_rounds(run, batches, args)
    seconds = statistics.median(rounds)
    apart = []
    for batch in batches:  # once more with stops between, which cost time; graphs have no parts
        started = clock(args.device)
        passes(batch)
        halfway = clock(args.device)
        optimizer.step()
        optimizer.zero_grad()
        apart.append((halfway - started, clock(args.device) - halfway))
    passes_s, optimizer_s = map(statistics.median, zip(*apart, strict=True))
    tokens = sum(int(batch["attention_mask"].sum()) for batch in batches)
    places = sum(batch["attention_mask"].numel() for batch in batches)
    rate = args.rows * len(batches) / seconds
    speed = sum(flops(model.config, batch) for batch in batches) / seconds
    return {
        "rows_per_second": rate,
        "hours_for_the_original": ORIGINAL_ROWS / rate / 3600,
        "rounds_s": rounds,
        "graphs": len(run.known) if isinstance(run, Graphs) else None,
        "tokens_per_second": tokens / seconds,
        "tokens_per_row": tokens / (args.rows * len(batches)),
        "padding": 1 - tokens / places,
        "tflop_per_second": speed / 1e12,
        "mfu": utilisation(speed, args.device),
        "passes_ms": None if args.graph else 1e3 * passes_s,
        "optimizer_ms": None if args.graph else 1e3 * optimizer_s,
        "peak_MB": peak_memory(args.device) / 1e6,
        "profile_of_5_steps": profile(step, batches) if args.device == "cuda" else None,
    }


def utilisation(speed: float, device: str) -> float | None:
    """Return the share of the device's peak in bfloat16; None if that is unknown."""
    name = environment(device)["device"]
    peak = next((peak for part, peak in PEAKS.items() if part in name), None)
    return None if peak is None else speed / peak


def main() -> None:
    """Measure, print and write."""
    parser = ReportParser(__doc__, "headline")
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--packing", action="store_true", help="Leave the padding out.")
    parser.add_argument("--fused", action="store_true", help="Attention by this package's kernel.")
    parser.add_argument("--window", type=int, default=WINDOW, help="Batches grouped by length.")
    parser.add_argument("--attention_dropout", type=float, default=0.1)
    parser.add_argument("--port", action="store_true", help="The naive port, padded to 64.")
    parser.add_argument("--graph", action="store_true", help="CUDA graphs.")
    parser.add_argument("--seconds", type=float, default=5.0, help="How long to measure.")
    parser.add_argument("--toy", action="store_true", help="A tiny model, to try the program.")
    parser.add_argument("--device", default=DEVICE)
    args = parser.parse_args()
    if args.port and (args.compile or args.packing or args.graph):
        parser.error("--port can only be combined with --bf16.")
    if args.graph and args.device != "cuda":
        parser.error("--graph needs CUDA.")
    if args.graph and args.packing:
        parser.error("--packing waits for the device at each step, which a graph cannot record.")
    if WINDOW % args.window:
        parser.error(f"--window {args.window}: give a divisor of {WINDOW}.")
    names = "rows steps port bf16 compile graph packing fused window attention_dropout toy".split()
    asked = {name: getattr(args, name) for name in names}
    report = asked | measure(args) | environment(args.device)
    print(json.dumps(report, indent=2))
    save_report(args.output, report)


if __name__ == "__main__":
    main()
