"""Encoders side by side: PyTorch, ONNX and ONNX with 8-bit weights; speed and Spearman.

    python -m benchmarks.onnx --model DIR --sts stsb-test.csv

The directory holds the graphs of scripts/export_onnx.py. All three encode the same sentences in one
process, including tokenization, in turn; the best of several rounds counts, so that other load on
the machine affects all equally. Prints a Markdown table; the JSON file holds the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from scipy.stats import spearmanr

from benchmarks.reports import ReportParser, environment, markdown, save_report, seconds
from simbert_hf import SimBert
from simbert_hf.data import load_scored_pairs
from simbert_hf.onnx_export import ENCODER, FOLDER, QUANTIZED, OnnxSimBert

Encode = Callable[..., np.ndarray]


def spearman(encode: Encode, pairs: list[Any]) -> float:
    """Correlate cosines with scores."""
    first, second, scores = zip(*pairs, strict=True)
    cosines = (encode(first) * encode(second)).sum(axis=1)
    return float(spearmanr(cosines, scores).statistic)


def main() -> None:
    """Run the benchmark."""
    parser = ReportParser(__doc__, "onnx")
    parser.add_argument("--model", type=Path, required=True, help="directory with ONNX graphs")
    parser.add_argument("--sts", required=True, help="scored pairs")
    parser.add_argument("--timed", type=int, default=512, help="sentences that are timed")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    encoders: dict[str, Encode] = {
        "PyTorch": SimBert.from_pretrained(args.model).eval().encode,
        "ONNX": OnnxSimBert(args.model, ENCODER, 1).encode,
        "ONNX, 8-bit": OnnxSimBert(args.model, QUANTIZED, 1).encode,
    }
    pairs = load_scored_pairs(args.sts)
    texts = [pair[0] for pair in pairs[: args.timed]]
    programs = {name: partial(encode, texts) for name, encode in encoders.items()}
    times = {name: best for name, (best, _) in seconds(programs, args.rounds).items()}
    files = ["model.safetensors", f"{FOLDER}/{ENCODER}", f"{FOLDER}/{QUANTIZED}"]
    rows = [
        {
            "encoder": name,
            "MB": (args.model / file).stat().st_size / 1e6,
            "sentences_per_second": len(texts) / times[name],
            "times_pytorch": times["PyTorch"] / times[name],
            "spearman": spearman(encode, pairs),
        }
        for (name, encode), file in zip(encoders.items(), files, strict=True)
    ]
    where = {"model": args.model.name, "onnxruntime": onnxruntime.__version__}
    where |= environment("cpu")
    print(f"{where}\n\n{markdown(rows)}")
    report = {"environment": where, "encoders": rows}
    save_report(args.output, report)


if __name__ == "__main__":
    main()
