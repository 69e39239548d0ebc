"""Mine hard negatives with any model that SentenceTransformer loads, a character GRU, or BM25.

python scripts/mine_negatives.py --model_name_or_path DIR_OR_ID --train_file groups.tsv \
    --output_file mined.csv --range_min 5 --relative_margin 0.05

The file's columns are sent0, sent1 and hard_neg, as train_triplet.py --examples triplets and
train_simcse.py --examples triplets read them. Hold out groups beforehand, in a separate file.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import get_args

from simbert_hf.data import load_groups
from simbert_hf.data.readers import DataFormat
from simbert_hf.encoders.loader import load_sentence_transformer
from simbert_hf.mining.negatives import MiningSettings, mine_by_words, mine_triplets, write_triplets
from simbert_hf.utils.atomic import make_room
from simbert_hf.utils.script import run_script, script_parser
from simbert_hf.utils.text import counted

RANGE_MAX = (
    "Number of the nearest sentences of other groups to consider; by default range_min + "
    "num_negatives, or + 10 x these with a margin."
)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = script_parser(__doc__)
    add = parser.add_argument
    miner = parser.add_mutually_exclusive_group(required=True)
    miner.add_argument("--model_name_or_path", help="Model that embeds the sentences.")
    miner.add_argument("--bm25", action="store_true", help="Compare words, without a model.")
    add("--train_file", required=True, nargs="+", help="Files of groups or pairs.")
    add("--data_format", choices=get_args(DataFormat), default="auto", help="What rows hold.")
    add("--text_columns", nargs=2, help="The columns of a pair.")
    add("--output_file", required=True, help="A .csv file.")
    add("--num_negatives", type=int, default=1, help="Maximum negatives per anchor.")
    add("--range_min", type=int, default=0, help="Number of these to skip.")
    add("--range_max", type=int, help=RANGE_MAX)
    add("--relative_margin", type=float, help="Gap to the positive, relative.")
    add("--absolute_margin", type=float, help="Gap to it, absolute.")
    add("--max_per_group", type=int, default=16, help="Maximum sentences per group.")
    add("--batch_size", type=int, default=64, help="Sentences per forward pass.")
    add("--use_faiss", action="store_true", help="Search with faiss.")
    add("--seed", type=int, default=0, help="Seed of what is drawn.")
    args = parser.parse_args(argv)
    unread = ("use_faiss", "batch_size", "range_max")  # by BM25
    idle = [name for name in unread if getattr(args, name) != parser.get_default(name)]
    if args.bm25 and idle:
        parser.error(f"--{idle[0]} needs a model; --bm25 has none")
    if not args.output_file.endswith(".csv"):
        raise ValueError(f"--output_file {args.output_file}: name a .csv file for the triplets.")
    make_room(Path(args.output_file), args.train_file)
    return args


def main(argv: Sequence[str] | None = None) -> None:
    """Mine and write."""
    args = parse(argv)
    settings = MiningSettings(**{f.name: getattr(args, f.name) for f in fields(MiningSettings)})
    groups, report = load_groups(
        args.train_file, data_format=args.data_format, text_columns=args.text_columns
    )
    print(report)
    if args.bm25:
        triplets = mine_by_words(groups, settings, seed=args.seed)
    else:
        triplets = mine_triplets(
            groups,
            load_sentence_transformer(args.model_name_or_path),
            settings,
            seed=args.seed,
            batch_size=args.batch_size,
            use_faiss=args.use_faiss,
        )
    write_triplets(args.output_file, triplets)
    print(f"{args.output_file}: {counted(len(triplets), 'triplet')}.")


if __name__ == "__main__":
    run_script(main)
