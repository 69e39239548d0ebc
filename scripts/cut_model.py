"""Cut a BERT to some of its layers, and its vocabulary to the pieces that some texts need.

python scripts/cut_model.py --model_name_or_path intfloat/multilingual-e5-small \
    --layers 0 1 3 4 6 7 9 11 --text_files zh.txt pairs.jsonl --output_dir outputs/cut

The model then needs training, with the whole model as teacher: train_simbert.py
--model_name_or_path outputs/cut --teacher_name_or_path intfloat/multilingual-e5-small ...
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from simbert_hf import SimBert
from simbert_hf.data import load_texts
from simbert_hf.modeling.cutting import cut_layers, cut_vocabulary
from simbert_hf.utils.atomic import filled
from simbert_hf.utils.script import check_new_output, run_script, script_parser


def main(argv: Sequence[str] | None = None) -> None:
    """Load, cut and save."""
    parser = script_parser(__doc__)
    add = parser.add_argument
    add("--model_name_or_path", required=True)
    add("--layers", nargs="+", type=int, help="Layers to keep, from 0; by default all.")
    add("--text_files", nargs="+", help="Sentences or groups; by default no piece goes.")
    add("--min_count", type=int, default=20, help="How often a piece must occur in them.")
    add("--output_dir", required=True, help="A folder that holds no model yet.")
    args = parser.parse_args(argv)
    check_new_output(args.output_dir, [args.model_name_or_path])
    if not (args.layers or args.text_files):
        parser.error("there is nothing to cut: give --layers or --text_files")
    texts = [text for file in args.text_files or () for text in load_texts(file)]
    model = SimBert.from_pretrained(args.model_name_or_path)
    size = model.num_parameters()
    if args.layers:
        cut_layers(model, args.layers)
    if texts:
        cut_vocabulary(model, texts, args.min_count)
    with filled(Path(args.output_dir)) as made:
        model.save_pretrained(made)
    print(
        f"{args.output_dir}: {model.config.num_hidden_layers} layers, {model.config.vocab_size:,} "
        f"pieces, {model.num_parameters() / 1e6:.1f} of {size / 1e6:.1f} million parameters."
    )


if __name__ == "__main__":
    run_script(main)
