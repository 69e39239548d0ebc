"""Run everything that needs a GPU, in stages of minutes, each once.

    python -m pytest -m gpu tests
    python -m benchmarks.gpu --model START [--trained DIR] [--seconds 500]

START is an encoder with its tokenizer (all-MiniLM-L6-v2), DIR a model that generates; the shipped
model is both. Run it again to continue: finished stages stay in the output file, failed ones are
retried, and with ``--seconds`` it stops in time. The most important stages come first; ``--list``
lists the stages, ``--stages`` selects some. ``--device cpu --toy`` tries the program on a tiny
scale: its figures mean nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.reports import ReportParser, load_report, save_report

LIMIT = 540  # seconds a stage
LEAST = 45  # seconds that a stage is begun with
FIRST = (  # what the goals are about, before what is measured to explain it
    "script-128",
    "script-1024",
    "headline-1024-bf16-fused-compiled-graph",
    "headline-128-bf16-fused-compiled-graph",
    "headline-128-bf16-compiled-graph",
    "headline-1024-bf16-compiled-graph",
    "headline-128-port-float32",
    "headline-1024-bf16-undropped-compiled-graph",
    "headline-128-port-bf16",
    "simcse-against-sentence-transformers",
    "headline-1024-bf16-undropped-compiled",
    "cached-simcse-against-sentence-transformers",
    "train-against-the-port",
    "memory-of-gradcache",
    "generate",
)


def headline_stages(args: argparse.Namespace) -> dict[str, list[str]]:
    """Return the stages of BERT-base's shape, plain and with all optimizations."""
    common = ["benchmarks.headline", f"--device={args.device}"]
    common += ["--toy", "--steps=2"] if args.toy else ["--steps=20", "--seconds=3"]
    variants: dict[str, list[str]] = {
        "float32": [], "bf16": ["--bf16"], "bf16-compiled": ["--bf16", "--compile"],
        "port-float32": ["--port"], "port-bf16": ["--port", "--bf16"],
    }  # fmt: skip
    for name, packing in (("bf16-undropped", []), ("bf16-packed", ["--packing"])):
        kept = ["--bf16", "--attention_dropout=0", *packing]
        variants |= {name: kept, f"{name}-compiled": [*kept, "--compile"]}
        variants[f"{name}-compiled-random"] = [*variants[f"{name}-compiled"], "--window=1"]
    if args.device == "cuda":
        variants["bf16-fused-compiled"] = [*variants["bf16-compiled"], "--fused"]
        names = ("bf16", "bf16-compiled", "bf16-undropped-compiled", "bf16-fused-compiled")
        variants |= {f"{name}-graph": [*variants[name], "--graph"] for name in names}
    return {
        f"headline-{rows}-{name}": [*common, *options, f"--rows={8 if args.toy else rows}"]
        for rows in (128, 1024, 4096)
        for name, options in variants.items()
        if rows < 4096 or name.endswith("compiled-graph")
    }


def peer_stages(args: argparse.Namespace) -> dict[str, list[str]]:
    """Return the other benchmarks, which compare programs on the same weights."""
    model = f"--model={args.model}"
    small = {
        "train": ["--pairs=2", "--steps=1", "--shapes=start"],
        "simcse": ["--batch=4", "--steps=2", "--blocks=1"],
        "cached": ["--batch=4", "--cached=2", "--steps=2", "--blocks=1"],
    }
    full = {
        "train": ["--pairs=64", "--steps=30", "--rounds=3", "--compile"],
        "simcse": ["--steps=60", "--bf16", "--compile"],
        "cached": ["--batch=1024", "--cached=128", "--steps=5", "--bf16", "--compile"],
    }
    size = small if args.toy else full
    stages = {
        "train-against-the-port": ["benchmarks.train", model, *size["train"]],
        "simcse-against-sentence-transformers": ["benchmarks.simcse", model, *size["simcse"]],
        "cached-simcse-against-sentence-transformers": [
            "benchmarks.simcse",
            model,
            *size["cached"],
        ],
        "memory-of-gradcache": ["benchmarks.memory", model, *["--large=256"] * args.toy],
    }
    for rows in (128, 1024):
        given = [f"--rows={rows}", "--steps=400", "--flags=--torch_compile --bf16"]
        if args.toy:
            given = [f"--rows={rows // 16}", "--steps=16", "--toy"]
        stages[f"script-{rows}"] = ["benchmarks.script", model, *given]
    if args.trained and not args.toy:
        stages["generate"] = ["benchmarks.generate", f"--model={args.trained}", "--full"]
    return stages


def run(command: list[str], device: str, limit: float = LIMIT) -> dict[str, Any]:
    """Run one stage in a separate process.

    Returns:
        Its report as ``result``, or what went wrong as ``error``; ``seconds`` it took.
    """
    started = time.monotonic()
    environment = os.environ | ({"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {})
    # cuDNN, which torch prefers on Hopper, plans each new shape of a batch for half a second.
    environment |= {"TORCH_CUDNN_SDPA_DEPRIORITIZED": "1"}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "result.json")
        full = [sys.executable, "-m", *command, f"--output={place}"]
        with Path(folder, "log").open("w+") as log:
            program = subprocess.Popen(
                full, stdout=log, stderr=log, env=environment, start_new_session=True
            )
            error = None
            try:
                if program.wait(limit):
                    error = Path(log.name).read_text(errors="replace")[-2000:]
            except subprocess.TimeoutExpired:
                error = f"It took more than {limit:.0f} seconds."
            finally:
                if program.poll() is None:  # also where this program is interrupted
                    os.killpg(program.pid, signal.SIGKILL)  # and what it has started itself
                    program.wait()
        found = {"error": error} if error else {"result": json.loads(place.read_text())}
    return {"command": command, "seconds": round(time.monotonic() - started, 1), **found}


def main() -> None:
    """Run the stages that are not done yet; exit with 1 if one fails."""
    parser = ReportParser(__doc__, "gpu", "toy")
    parser.add_argument("--model", required=True, help="an encoder with its tokenizer")
    parser.add_argument("--trained", help="a model that generates, for `generate`")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--seconds", type=float, default=math.inf, help="time limit")
    parser.add_argument("--toy", action="store_true", help="tiny sizes, to try the program")
    parser.add_argument("--stages", nargs="+", help="only these")
    parser.add_argument("--list", action="store_true", help="list the stages and exit")
    args = parser.parse_args()
    known_stages = headline_stages(args) | peer_stages(args)
    stages = {name: known_stages[name] for name in (*FIRST, *known_stages) if name in known_stages}
    if args.list:
        print("\n".join(stages))
        return
    unknown = set(args.stages or ()) - set(stages)
    if unknown:
        sys.exit(f"Unknown stages {', '.join(sorted(unknown))}; --list names them.")
    report, began = load_report(args.output, {}), time.monotonic()
    for name in args.stages or stages:
        known = report.get(name, {})
        if "result" in known and known["command"] == stages[name]:
            print(f"{name}: already done")
            continue
        left = args.seconds - (time.monotonic() - began)
        if left < LEAST:
            print("The time is up; run again to continue.")
            break
        report[name] = run(stages[name], args.device, min(LIMIT, left))
        save_report(args.output, report)
        told = report[name].get("error") or "done"
        print(f"{name}: {told} ({report[name]['seconds']} s)", flush=True)
    failed = [name for name in args.stages or stages if "error" in report.get(name, {})]
    if failed:
        sys.exit(f"Failed: {', '.join(failed)}; run again to retry.")


if __name__ == "__main__":
    main()
