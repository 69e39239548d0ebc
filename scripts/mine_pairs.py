"""Turn raw sentences into SimBERT's training groups.

python scripts/mine_pairs.py --model_name_or_path DIR_OR_ID --sentences_file questions.txt \
    --output_file groups.jsonl

It pairs sentences that are among each other's nearest, by the model's vectors or by words (BM25),
within a range of cosines; near pairs are joined into small groups, written as {"text", "synonyms"}.
Vectors are kept beside the file until it is written, so a repeated command goes on after a stop.

A teacher is of little use on unrelated sentences. For train_simbert.py's --sentences_file, the
flags --min_similarity 0.3 --max_similarity 0.9 --max_group_size 2 --vectors_only --output_file
related.txt write pairs of related sentences on adjacent lines.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np
import torch

from simbert_hf.data import load_sentences
from simbert_hf.encoders.text_encoder import TextEncoder
from simbert_hf.encoders.vectorfiles import encoded
from simbert_hf.mining.pairs import PairSettings, check_sentences, different, mine_groups
from simbert_hf.utils.atomic import make_room, write_text
from simbert_hf.utils.extras import require
from simbert_hf.utils.script import run_script, script_parser
from simbert_hf.utils.text import counted


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = script_parser(__doc__)
    add = parser.add_argument
    add("--model_name_or_path", required=True, help="Model that embeds the sentences.")
    add("--sentences_file", required=True, nargs="+", help="Sentences, one per line.")
    add("--output_file", required=True, type=Path, help=".jsonl: groups; .txt: related lines.")
    for name, about in {
        "neighbours": "Nearest ones considered.",
        "min_similarity": "Minimum cosine of a pair.",
        "max_similarity": "Maximum cosine of a pair.",
        "max_group_size": "Maximum sentences per group.",
    }.items():
        default = getattr(PairSettings, name)
        add(f"--{name}", type=type(default), default=default, help=about)
    add("--vectors_only", dest="words", action="store_false", help="Compare only vectors.")
    add("--batch_size", type=int, default=128, help="Sentences per forward pass.")
    add("--bf16", action="store_true", help="Embed in bfloat16.")
    args = parser.parse_args(argv)
    if args.output_file.suffix not in WRITERS:
        raise ValueError(f"--output_file {args.output_file}: name a {' or '.join(WRITERS)} file.")
    make_room(args.output_file, args.sentences_file)
    return args


def as_records(groups: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield groups in the format that training reads."""
    for text, *others in groups:
        yield json.dumps({"text": text, "synonyms": others}, ensure_ascii=False)


def two_and_two(groups: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield each group's sentences, except an odd last one, so that adjacent lines are related."""
    for group in groups:
        yield from group[: len(group) // 2 * 2]


WRITERS = {".jsonl": as_records, ".txt": two_and_two}


def main(argv: Sequence[str] | None = None) -> None:
    """Mine and write."""
    args = parse(argv)
    settings = PairSettings(**{f.name: getattr(args, f.name) for f in fields(PairSettings)})
    logging.basicConfig(format="%(message)s")
    logging.getLogger("simbert_hf").setLevel(logging.INFO)
    require("faiss", "index")
    if args.words:
        require("bm25s", "index")
        logging.getLogger("bm25s").setLevel(logging.WARNING)  # importing it sets DEBUG
    raw = [text for file in args.sentences_file for text in load_sentences(file)]
    sentences = different(raw)
    print(f"{counted(len(raw), 'sentence')}, {len(sentences):,} different")
    check_sentences(sentences)  # before vectors are made, which would be kept
    encoder = TextEncoder(args.model_name_or_path, batch_size=args.batch_size)
    with (
        torch.autocast(encoder.model.device.type, torch.bfloat16, enabled=args.bf16),
        encoded(sentences, encoder, args.output_file) as (files, _),
    ):
        vectors = np.concatenate([np.load(file) for file in files])
        groups, counts = mine_groups(sentences, vectors, settings)
        lines = WRITERS[args.output_file.suffix](groups)
        write_text(args.output_file, "".join(f"{line}\n" for line in lines))
    print(f"{args.output_file}: " + ", ".join(f"{n:,} {name}" for name, n in counts.items()))


if __name__ == "__main__":
    run_script(main)
