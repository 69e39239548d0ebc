"""Rows per second of `train_simbert.py` itself, with its loader and log, without CUDA graphs.

python -m benchmarks.script --model DIR_OR_ID [--rows 128] [--steps 400] [--toy] \
    [--flags="--bf16 --torch_compile"]

In BERT-base's shape, with random weights, on Tatoeba's pairs; the tokenizer is that of --model. The
median over the logged windows, without the first quarter, which includes compilation.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transformers import AutoTokenizer

from benchmarks.group_data import TATOEBA
from benchmarks.headline import ORIGINAL_ROWS, TOY
from benchmarks.reports import DEVICE, ReportParser, environment, peak_memory, save_report
from scripts import train_simbert
from simbert_hf import SimBert, SimBertConfig

WINDOWS = 16


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Train with the script, and read its log."""
    with TemporaryDirectory() as folder:
        tokenizer = AutoTokenizer.from_pretrained(args.model)
        start = SimBert(SimBertConfig(vocab_size=len(tokenizer), **(TOY if args.toy else {})))
        start.tokenizer = tokenizer
        start.save_pretrained(Path(folder, "start"))
        trainer = train_simbert.main(
            [
                f"--model_name_or_path={folder}/start",
                f"--train_file={TATOEBA}",
                f"--output_dir={folder}/run",
                f"--per_device_train_batch_size={args.rows // 2}",
                f"--max_steps={args.steps}",
                f"--logging_steps={max(1, args.steps // WINDOWS)}",
                *("--validation_groups=0", "--eval_strategy=no", "--save_strategy=no"),
                *args.flags,
            ]
        )
        log = [line for line in trainer.state.log_history if "rows_per_second" in line]
    rates = {name: [line[f"{name}_per_second"] for line in log] for name in ("rows", "tokens")}
    found = {f"{name}_per_second": statistics.median(r[len(r) // 4 :]) for name, r in rates.items()}
    hours = ORIGINAL_ROWS / found["rows_per_second"] / 3600
    return found | {
        "hours_for_the_original": hours,
        "windows": rates["rows"],
        "peak_MB": peak_memory(DEVICE) / 1e6,
    }


def main() -> None:
    """Measure, print and write."""
    parser = ReportParser(__doc__, "script")
    parser.add_argument("--model", required=True, help="Model whose tokenizer is used.")
    parser.add_argument("--rows", type=int, default=128, help="Rows per batch, two per pair.")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--toy", action="store_true", help="A tiny model, to try the program.")
    parser.add_argument("--flags", type=shlex.split, default=[], help="Further flags of it.")
    args = parser.parse_args()
    asked = {name: getattr(args, name) for name in ("rows", "steps", "toy", "flags")}
    report = asked | measure(args) | environment(DEVICE)
    print(json.dumps(report, indent=2))
    save_report(args.output, report)


if __name__ == "__main__":
    main()
