"""Everything that needs a GPU, in stages of minutes, each of which is run once.

    python -m benchmarks.gpu --model START [--trained DIR] [--lengths groups.json] \
        [--output outputs/benchmarks/gpu.json]

START is an encoder with its tokenizer (all-MiniLM-L6-v2), DIR a model that writes. Run it again to
go on: finished stages stay in the output file, failed ones are tried anew. ``--list`` names the
stages, ``--stages`` chooses. ``--device cpu --toy`` tries the program on a tiny scale: its figures
say nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.reports import load_report, report_file, save_report

LIMIT = 540  # seconds a stage


def headline_stages(args: argparse.Namespace) -> dict[str, list[str]]:
    """BERT-base's shape, plain and with what makes it fast."""
    common = ["benchmarks.headline", f"--device={args.device}"]
    common += [f"--lengths={args.lengths}"] * bool(args.lengths)
    common += ["--toy", "--steps=2"] if args.toy else ["--steps=40"]
    variants: dict[str, list[str]] = {
        "float32": [], "bf16": ["--bf16"], "bf16-compiled": ["--bf16", "--compile"]
    }  # fmt: skip
    for packing in (None, "padded", *["flex", "varlen"] * (args.device == "cuda")):
        kept = ["--bf16", "--attention_dropout=0", *[f"--packing={packing}"] * bool(packing)]
        name = f"bf16-{packing or 'undropped'}"  # all without attention dropout, which two lack
        variants |= {name: kept, f"{name}-compiled": [*kept, "--compile"]}
    return {
        f"headline-{rows}-{name}": [*common, *options, f"--rows={8 if args.toy else rows}"]
        for rows in (128, 1024)
        for name, options in variants.items()
    }


def peer_stages(args: argparse.Namespace) -> dict[str, list[str]]:
    """The other benchmarks, which compare programs on the same weights."""
    model = f"--model={args.model}"
    small = {
        "train": ["--pairs=2", "--steps=1"],
        "simcse": ["--batch=4", "--steps=2", "--blocks=1"],
        "cached": ["--batch=4", "--cached=2", "--steps=2", "--blocks=1"],
    }
    full = {
        "train": ["--pairs=64", "--steps=30"],
        "simcse": ["--steps=60", "--bf16"],
        "cached": ["--batch=1024", "--cached=128", "--steps=5", "--bf16"],
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
    if args.trained and not args.toy:
        stages["generate"] = ["benchmarks.generate", f"--model={args.trained}", "--full"]
    return stages


def run(command: list[str], device: str) -> dict[str, Any]:
    """Run one stage in a process of its own.

    Returns:
        Its report as ``result``, or what went wrong as ``error``; ``seconds`` it took.
    """
    started = time.monotonic()
    environment = os.environ | ({"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {})
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "result.json")
        full = [sys.executable, "-m", *command, f"--output={place}"]
        try:
            done = subprocess.run(
                full, capture_output=True, text=True, timeout=LIMIT, env=environment
            )
            error = None if done.returncode == 0 else done.stderr[-2000:]
        except subprocess.TimeoutExpired:
            error = f"It took more than {LIMIT} seconds."
        found = {"error": error} if error else {"result": json.loads(place.read_text())}
    return {"command": command, "seconds": round(time.monotonic() - started, 1), **found}


def main() -> None:
    """Run the stages that are not done yet; exit with 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="an encoder with its tokenizer")
    parser.add_argument("--trained", help="a model that writes, for `generate`")
    parser.add_argument("--lengths", help="groups of Chinese sentences, for their lengths alone")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--toy", action="store_true", help="tiny sizes, to try the program")
    parser.add_argument("--stages", nargs="+", help="these alone")
    parser.add_argument("--list", action="store_true", help="name the stages and stop")
    parser.add_argument("--output", type=report_file, default="outputs/benchmarks/gpu.json")
    args = parser.parse_args()
    stages = headline_stages(args) | peer_stages(args)
    if args.list:
        print("\n".join(stages))
        return
    unknown = set(args.stages or ()) - set(stages)
    if unknown:
        sys.exit(f"Unknown stages {', '.join(sorted(unknown))}; --list names them.")
    report = load_report(args.output, {})
    for name in args.stages or stages:
        known = report.get(name, {})
        if "result" in known and known["command"] == stages[name]:
            print(f"{name}: done before")
            continue
        report[name] = run(stages[name], args.device)
        save_report(args.output, report)
        print(f"{name}: {report[name].get('error') or 'done'} ({report[name]['seconds']} s)")
    failed = [name for name in args.stages or stages if "error" in report[name]]
    if failed:
        sys.exit(f"Failed: {', '.join(failed)}; run again to try anew.")


if __name__ == "__main__":
    main()
