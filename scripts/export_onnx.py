"""Export a model to ONNX beside its weights, and compare the result with PyTorch.

python scripts/export_onnx.py --model_name_or_path DIR_OR_ID [--output_dir out]

Writes onnx/model.onnx (encoder, with pooling and normalisation), onnx/model_quint8.onnx (8-bit) and
onnx/decoder.onnx (writes paraphrases, with a cache) into the directory, or with config, tokenizer
and weights into another. Run them with simbert_hf.onnx_export.OnnxSimBert, or see docs/serving.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from simbert_hf import SimBert
from simbert_hf.generation.search import SearchSettings
from simbert_hf.generation.writing import write
from simbert_hf.onnx_export import QUANTIZED, OnnxSimBert, check_exportable, export
from simbert_hf.rows import unread
from simbert_hf.utils.atomic import filled
from simbert_hf.utils.script import check_new_output, run_script, script_parser

TEXTS = ("how can i reset my password?", "the weather is really nice today.", "今天天气很好。")


def main(argv: Sequence[str] | None = None) -> None:
    """Export, compare, print sizes and differences."""
    parser = script_parser(__doc__)
    parser.add_argument("--model_name_or_path", required=True)
    parser.add_argument(
        "--output_dir", help="a folder without a model; by default the model's own directory"
    )
    args = parser.parse_args(argv)
    if args.output_dir:
        check_new_output(args.output_dir, [args.model_name_or_path])
    model = SimBert.from_pretrained(args.model_name_or_path).eval()
    check_exportable(model)
    folder = Path(args.output_dir or args.model_name_or_path)
    if args.output_dir:
        with filled(folder) as made:  # with its graphs, else a killed export could not be repeated
            model.save_pretrained(made)
            paths = [folder / path.relative_to(made) for path in export(model, made)]
    elif not folder.is_dir():
        raise ValueError(f"{folder} is not a directory; give --output_dir for a Hub model.")
    else:
        paths = export(model, folder)
    for path in paths:
        print(f"{path.stat().st_size:>13,}  {path}")
    foreign = unread(model.loaded_tokenizer(), TEXTS)
    texts = [text for text in TEXTS if text not in foreign]
    wanted = model.encode(texts)
    exact = np.abs(OnnxSimBert(folder).encode(texts) - wanted).max()
    cosines = (OnnxSimBert(folder, QUANTIZED).encode(texts) * wanted).sum(axis=1)
    print(
        f"vectors: {exact:.1e} from PyTorch's; 8-bit ones: cosine of at least {cosines.min():.4f}"
    )
    if exact > 1e-4:
        raise ValueError("The graph's vectors differ from PyTorch's; try another torch version.")
    if model.has_lm_head:
        greedy = SearchSettings(n=1, strategy="beam")
        same = [d.text for row in write(model, texts, greedy) for d in row] == [
            d.text for row in OnnxSimBert(folder).write(texts, greedy) for d in row
        ]
        print(f"greedy paraphrases: {'the same' if same else 'NOT the same'} as PyTorch's")


if __name__ == "__main__":
    run_script(main)
