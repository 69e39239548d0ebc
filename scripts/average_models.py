"""Average the weights of models trained from the same base model, or of a model and its base.

python scripts/average_models.py --models TUNED BASE --weights 0.6 0.4 --output_dir out
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from simbert_hf.modeling.averaging import average_models
from simbert_hf.modeling.encoder import load_encoder
from simbert_hf.utils.atomic import filled
from simbert_hf.utils.script import check_new_output, run_script, script_parser


def main(argv: Sequence[str] | None = None) -> None:
    """Load, average and save."""
    parser = script_parser(__doc__)
    parser.add_argument("--models", nargs="+", required=True, metavar="DIR_OR_ID")
    parser.add_argument(
        "--weights", nargs="+", type=float, help="Weight of each model; by default equal."
    )
    parser.add_argument("--output_dir", required=True, help="A folder that holds no model yet.")
    parser.add_argument("--pooling", help="Pooling of all; by default each one's own, else mean.")
    args = parser.parse_args(argv)
    check_new_output(args.output_dir, args.models)
    models = [load_encoder(name, pooling=args.pooling) for name in args.models]
    average = average_models(models, args.weights)
    with filled(Path(args.output_dir)) as made:
        average.save_pretrained(made)
    print(f"{args.output_dir}: the average of {', '.join(args.models)}.")


if __name__ == "__main__":
    run_script(main)
