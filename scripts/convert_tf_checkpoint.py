"""Convert original SimBERT weights: a TensorFlow checkpoint or bert4keras' Keras weights.

python scripts/convert_tf_checkpoint.py chinese_simbert_L-12_H-768_A-12/ \
    --output_dir outputs/simbert-base-zh

TensorFlow is not needed; the extra "convert" is.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from simbert_hf.conversion.convert import convert
from simbert_hf.pooling import POOLINGS
from simbert_hf.utils.script import run_script, script_parser


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = script_parser(__doc__)
    parser.add_argument("source", help="The released folder, or the weights in it.")
    parser.add_argument("--output_dir", required=True, help="A new or empty directory.")
    parser.add_argument("--config_file", help="bert_config.json; by default beside the weights.")
    parser.add_argument("--vocab_file", help="vocab.txt or dict.txt; likewise.")
    parser.add_argument("--pooling", default="linear_pooler", choices=POOLINGS)
    parser.add_argument(
        "--simplified", action="store_true", help="Trained on bert4keras' simplified vocabulary."
    )
    parser.add_argument("--cased", action="store_true", help="The tokenizer is cased.")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Convert and save."""
    args = parse(argv)
    model = convert(
        args.source,
        args.output_dir,
        config_file=args.config_file,
        vocab_file=args.vocab_file,
        pooling=args.pooling,
        simplified=args.simplified,
        lower_case=not args.cased,
    )
    config = model.config
    print(
        f"{args.output_dir}: {type(model).__name__}, {config.num_hidden_layers} layers of "
        f"{config.hidden_size}, {config.vocab_size:,} tokens"
        + (", embeds and paraphrases." if model.has_lm_head else ", embeds (there is no LM head).")
    )


if __name__ == "__main__":
    run_script(main)
