r"""Give a checkpoint n-grams, which help to rank what it writes: fluent paraphrases first.

python scripts/fit_ngrams.py --model_name_or_path DIR_OR_ID --train_file sentences.txt [...] \
    --output_dir out

A minute for some hundred thousand sentences: no pairs, but of the kind that is to be written. What
n-grams the checkpoint has are replaced.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from simbert_hf import SimBert
from simbert_hf.data import load_sentences
from simbert_hf.modeling.ngrams import fit_ngrams
from simbert_hf.utils.script import check_output, run_script


def main(argv: Sequence[str] | None = None) -> None:
    """Count the n-grams of the sentences, and save the model with them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model_name_or_path", required=True, metavar="DIR_OR_ID")
    parser.add_argument("--train_file", nargs="+", required=True, help="Sentences, one a line.")
    parser.add_argument("--output_dir", required=True)
    args = parser.parse_args(argv)
    check_output(args.output_dir, [args.model_name_or_path])
    model = SimBert.from_pretrained(args.model_name_or_path)
    sentences = [text for file in args.train_file for text in load_sentences(file)]
    fit_ngrams(model, sentences)
    model.save_pretrained(args.output_dir)
    print(f"{args.output_dir}: with n-grams of {len(sentences):,} sentences.")


if __name__ == "__main__":
    run_script(main)
