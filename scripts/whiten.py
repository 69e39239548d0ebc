"""Whiten a checkpoint's sentence vectors, and optionally reduce their dimensions.

python scripts/whiten.py --model_name_or_path DIR_OR_ID --train_file sentences.txt \
    --output_dir out [--dim 256]
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from simbert_hf.data import load_sentences
from simbert_hf.modeling.encoder import load_encoder
from simbert_hf.modeling.whitening import whiten
from simbert_hf.utils.atomic import filled
from simbert_hf.utils.script import check_new_output, run_script, script_parser


def main(argv: Sequence[str] | None = None) -> None:
    """Fit on the sentences and save the whitened model."""
    parser = script_parser(__doc__)
    parser.add_argument("--model_name_or_path", required=True)
    parser.add_argument("--train_file", required=True, help="Sentences, one per line.")
    parser.add_argument("--output_dir", required=True, help="A folder that holds no model yet.")
    parser.add_argument("--dim", type=int, help="Dimensions to keep; by default all they span.")
    parser.add_argument("--pooling", help="By default the checkpoint's own, else mean.")
    args = parser.parse_args(argv)
    check_new_output(args.output_dir, [args.model_name_or_path])
    model = load_encoder(args.model_name_or_path, pooling=args.pooling)
    sentences = load_sentences(args.train_file)
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    whiten(model, sentences, args.dim)
    with filled(Path(args.output_dir)) as made:
        model.save_pretrained(made)
    dim = model.config.whitening_dim
    print(f"{args.output_dir}: whitened to {dim} dimensions on {len(set(sentences)):,} sentences.")


if __name__ == "__main__":
    run_script(main)
