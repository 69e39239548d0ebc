"""Streaming millions of groups: memory while they pass, their rate, and a resume in the middle.

python -m benchmarks.stream [--groups 5000000] [--shards 16] [--processes 4] \
    [--output benchmarks/results/stream.json]

Writes synthetic groups to Parquet shards in a temporary folder. Each of the processes takes its
batches as in training; a resumed one skips to the middle and must go on with the very same pairs.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import platform
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from accelerate import skip_first_batches
from accelerate.data_loader import prepare_data_loader
from torch.utils.data import DataLoader

from simbert_hf.data import PairStream, load_groups

BATCH = 64


def write_shards(folder: Path, groups: int, shards: int) -> list[str]:
    """Write pairs of two short sentences each; return the files."""
    files = []
    for shard in range(shards):
        numbers = range(shard, groups, shards)
        columns = {
            "sentence1": [f"how does thing {n} work?" for n in numbers],
            "sentence2": [f"what is the way in which thing {n} works?" for n in numbers],
        }
        files.append(str(folder / f"part-{shard:05d}.parquet"))
        pq.write_table(pa.table(columns), files[-1], row_group_size=10_000)
    return files


def make_loader(files: list[str], process: int, processes: int) -> DataLoader[Any]:
    """Prepare a process's loader as the trainer does."""
    groups, _ = load_groups(files, streaming=True)
    plain = DataLoader(PairStream(groups, seed=1), BATCH, collate_fn=list, drop_last=True)
    found: DataLoader[Any] = prepare_data_loader(
        plain, num_processes=processes, process_index=process, put_on_device=False
    )
    return found


def digest(batches: Iterator[list[dict[str, Any]]]) -> str:
    """Name a run of batches by their sentences and seeds."""
    found = hashlib.sha256()
    for pair in itertools.chain.from_iterable(batches):
        found.update(f"{pair['source']}|{pair['target']}|{pair['seed']}\n".encode())
    return found.hexdigest()


def pass_once(loader: DataLoader[Any], seen: bytearray) -> dict[str, Any]:
    """Take a whole epoch: mark the groups, and note memory ten times on the way."""
    own = psutil.Process()
    memory, rows, started = [], 0, time.perf_counter()
    step = max(1, len(seen) // 10)
    for batch in loader:
        for pair in batch:
            seen[int(pair["source"].rstrip("?").split("thing ")[1].split()[0])] += 1
        rows += len(batch)
        if rows // step > len(memory):
            memory.append(round(own.memory_info().rss / 1e6))
    return {"rows": rows, "seconds": time.perf_counter() - started, "MB": memory}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, default=5_000_000)
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--processes", type=int, default=4, help="of which each takes its part")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/stream.json"))
    args = parser.parse_args()
    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as folder:
        files = write_shards(Path(folder), args.groups, args.shards)
        seen = bytearray(args.groups)
        parts = [
            pass_once(make_loader(files, process, args.processes), seen)
            for process in range(args.processes)
        ]
        middle = args.groups // args.processes // BATCH // 2
        whole = itertools.islice(make_loader(files, 0, args.processes), middle, middle + 20)
        resumed = skip_first_batches(make_loader(files, 0, args.processes), middle)
        same = digest(whole) == digest(itertools.islice(resumed, 20))
    report = {
        "groups": args.groups, "shards": args.shards, "processes": parts,
        "seen_once": seen.count(1), "seen_more": sum(n > 1 for n in seen),
        "resumed_alike": same, "machine": platform.machine(), "datasets": datasets.__version__,
    }  # fmt: skip
    print(json.dumps(report, indent=2))
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
