"""Streaming millions of groups: peak memory, throughput, and resuming in the middle.

python -m benchmarks.stream [--groups 5000000] [--shards 16] [--processes 4]

Writes synthetic groups to Parquet shards in a temporary folder. Each of the processes (here run one
after the other) takes its batches of an epoch as in training; a new one resumes from the saved
middle of the first one's epoch, and must give exactly the same pairs.
"""

from __future__ import annotations

import hashlib
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

import datasets
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.reports import ReportParser, save_report
from simbert_hf.data import PairStream, load_groups
from simbert_hf.data.streams import stream_loader

BATCH = 64


def write_shards(folder: Path, groups: int, shards: int) -> list[str]:
    """Write pairs of two short sentences each; return the files."""
    files = []
    for shard in range(shards):
        numbers = range(shard, groups, shards)
        columns = {
            "sentence1": [f"what is {n}" for n in numbers],
            "sentence2": [f"tell me of {n}" for n in numbers],
        }
        files.append(str(folder / f"part-{shard:05d}.parquet"))
        pq.write_table(pa.table(columns), files[-1], row_group_size=10_000)
    return files


def make_stream(files: list[str], process: int, processes: int) -> PairStream:
    """Open a process's stream as training scripts do."""
    return PairStream(
        load_groups(files, streaming=True)[0], 1, process=process, processes=processes
    )


def digest(batches: list[dict[str, Any]]) -> str:
    """Identify batches by their sentences and seeds."""
    found = hashlib.sha256()
    for pair in (pair for batch in batches for pair in batch["pairs"]):
        found.update(f"{pair['source']}|{pair['target']}|{pair['seed']}\n".encode())
    return found.hexdigest()


def pass_once(
    stream: PairStream, seen: bytearray, middle: int, compared: int, checkpoint: Path
) -> dict[str, Any]:
    """Run an entire epoch: mark the groups, record memory ten times, save the middle."""
    own, after, rows = psutil.Process(), [], 0
    memory: list[int] = []
    step = max(1, len(seen) // stream.processes // 10)
    started, cpu = time.perf_counter(), time.process_time()
    for number, batch in enumerate(stream_loader(stream, BATCH, lambda pairs: {"pairs": pairs})):
        pairs = [pair for pair in batch["pairs"] if pair["position"].epoch == 0]
        for pair in pairs:
            seen[int(pair["source"].rsplit(maxsplit=1)[1])] += 1
        rows += len(pairs)
        if rows // step > len(memory):
            memory.append(round(own.memory_info().rss / 1e6))
        if number == middle:
            stream.took(batch["position"])
            stream.save(checkpoint)
            before_middle = time.perf_counter() - started
        elif middle < number <= middle + compared:
            after.append(batch)
        if len(pairs) < len(batch["pairs"]):
            break
    seconds = time.perf_counter() - started
    return {
        "rows": rows, "seconds": round(seconds, 2), "MB": memory,
        "seconds_a_million_rows": round(seconds / rows * 1e6, 1),
        "cpu_seconds_a_million_rows": round((time.process_time() - cpu) / rows * 1e6, 1),
        "seconds_to_the_middle": round(before_middle, 2), "after_the_middle": digest(after),
    }  # fmt: skip


def resume(stream: PairStream, compared: int, checkpoint: Path) -> dict[str, Any]:
    """Resume from the saved middle: seconds until the first batch, and the batches."""
    started = time.perf_counter()
    stream.load(checkpoint)
    loader = stream_loader(stream, BATCH, lambda pairs: {"pairs": pairs})
    batches: list[dict[str, Any]] = []
    for batch in loader:
        if not batches:
            seconds = time.perf_counter() - started
        batches.append(batch)
        if len(batches) == compared:
            break
    return {"seconds_to_first_batch": round(seconds, 2), "digest": digest(batches)}


def main() -> None:
    """Measure, print and write."""
    parser = ReportParser(__doc__, "stream")
    parser.add_argument("--groups", type=int, default=5_000_000)
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--processes", type=int, default=4, help="processes that share the groups")
    args = parser.parse_args()
    datasets.disable_progress_bars()
    middle = args.groups // args.processes // BATCH // 2
    compared = min(200, middle // 2)  # batches after the middle: more than a window
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        files = write_shards(Path(folder), args.groups, args.shards)
        written, seen, parts = time.perf_counter() - started, bytearray(args.groups), []
        for process in range(args.processes):
            stream = make_stream(files, process, args.processes)
            parts.append(pass_once(stream, seen, middle, compared, Path(folder)))
            print(f"{process}: {parts[-1]}", flush=True)
        resumed = resume(make_stream(files, 0, args.processes), compared, Path(folder))
    report = {
        "groups": args.groups, "sharing": stream.sharing(), "seconds_to_write": round(written, 1),
        "processes": parts, "seen_once": seen.count(1), "seen_more": sum(n > 1 for n in seen),
        "resumed": resumed, "resumed_alike": resumed["digest"] == parts[0]["after_the_middle"],
        "machine": platform.machine(), "datasets": datasets.__version__,
    }  # fmt: skip
    print({name: value for name, value in report.items() if name != "processes"})
    save_report(args.output, report)


if __name__ == "__main__":
    main()
