"""A benchmark's figures: their environment, how they are printed, and how they are saved."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import transformers

from simbert_hf.evaluation.bootstrap import Figure
from simbert_hf.evaluation.report import layout
from simbert_hf.evaluation.results import figure_to_json
from simbert_hf.utils.atomic import make_room, write_json

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# For measure_apart: glibc frees blocks at once, so that a peak is what was held at a time.
FREED = {"MALLOC_MMAP_THRESHOLD_": "262144"}

# Measuring --------------------------------------------------------------------------------------


def clock(device: str) -> float:
    """Return the time in seconds, after waiting for the device."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def peak_memory(device: str) -> float:
    """Return this process's peak bytes: allocated on a GPU, otherwise resident, with libraries."""
    if device == "cuda":
        return float(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def seconds(
    programs: Mapping[str, Callable[[], Any]], rounds: int, enough: float = math.inf
) -> dict[str, tuple[float, Any]]:
    """Run programs in turn; return each one's best time and last result.

    After ``enough`` seconds no round is begun.
    """
    times: dict[str, list[float]] = {name: [] for name in programs}
    results: dict[str, Any] = {}
    for _ in range(rounds):
        for name, work in programs.items():
            start = time.perf_counter()
            results[name] = work()
            times[name].append(time.perf_counter() - start)
        if sum(map(sum, times.values())) > enough:
            break
    return {name: (min(times[name]), results[name]) for name in programs}


def measure_apart(work: Callable[..., Any], *given: Any, **environment: str) -> Any:
    """Call a function in a separate process; the environment also applies to later ones.

    On Linux it begins with the peak memory of the process that starts it, which is to be small.
    """
    os.environ.update(environment)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *given).result()


def environment(device: str) -> dict[str, Any]:
    """Describe the environment of the figures."""
    cpu = f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else cpu,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


# Showing ----------------------------------------------------------------------------------------


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Lay out rows as a table with their keys as columns; missing values and None stay empty."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return layout(names, [[_cell(row.get(name)) for name in names] for row in rows], left=[0])


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"  # not 1e+03
    return f"{value:,}" if isinstance(value, int) else str(value or "")


def spread(values: Sequence[float], digits: int = 2, scale: float = 1) -> str:
    """Format the mean over seeds and, if there are several, their standard deviation."""
    mean = f"{scale * statistics.fmean(values):.{digits}f}"
    return f"{mean} ± {scale * statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean


def bracketed(value: float, interval: tuple[float, float] | None) -> str:
    """Format a figure with its interval."""
    return "{:.1f} [{:.1f}, {:.1f}]".format(value, *(interval or (value, value)))


def tested(found: Mapping[str, Mapping[str, Figure]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return each row's figures as JSON values, compared with the first row's."""
    first = next(iter(found.values()))
    return {
        row: {name: figure_to_json(figure, first[name]) for name, figure in figures.items()}
        for row, figures in found.items()
    }


# Keeping ----------------------------------------------------------------------------------------


def same_settings(folder: Path, **settings: Any) -> None:
    """Save settings that a folder's file names do not contain, for later runs.

    Raises:
        SystemExit: If the results there were made with other settings.
    """
    place = folder / "settings.json"
    known = load_report(place, {})
    for name, value in settings.items():
        if known.get(name, value) != value:
            raise SystemExit(
                f"{folder} holds results with {name} {known[name]}, not {value}: choose another "
                "--output."
            )
    save_report(place, known | settings)


def kept(path: Path, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Do some work and save its result, unless it already exists."""
    if not path.exists():
        print(f"computing {path.stem}", flush=True)
        save_report(path, work())
    return json.loads(path.read_text(encoding="utf-8"))


def load_report(place: Path, otherwise: Any) -> Any:
    """Read saved figures; return a default if there are none."""
    return json.loads(place.read_text(encoding="utf-8")) if place.exists() else otherwise


class ReportParser(argparse.ArgumentParser):
    """Adds ``--output``, a file by default named after the program and ``kinds``.

    Those are options that change what the file holds; each that is given is in its name.
    """

    def __init__(self, doc: str, name: str, *kinds: str) -> None:
        super().__init__(description=doc.partition("\n\n")[0])
        self.name, self.kinds = name, kinds
        self.add_argument("--output", type=Path, help=f"by default outputs/benchmarks/{name}.json")

    def parse_known_args(self, *given: Any) -> Any:
        """Make the file's folder; refuse, before anything is measured, what is no file."""
        args, unknown = super().parse_known_args(*given)
        values = {kind: getattr(args, kind) for kind in self.kinds}
        parts = [self.name] + [
            Path(value).name.partition(".")[0] if isinstance(value, (str, Path)) else kind
            for kind, value in values.items()
            if value != self.get_default(kind)
        ]
        args.output = args.output or Path("outputs/benchmarks", f"{'-'.join(parts)}.json")
        if args.output.is_dir():
            self.error(f"--output {args.output} is a folder: give a file in it")
        make_room(args.output)
        return args, unknown


def save_report(place: Path, report: Any) -> None:
    """Write figures as JSON, atomically; create the folder if needed."""
    place.parent.mkdir(parents=True, exist_ok=True)
    write_json(place, report, default=str)
