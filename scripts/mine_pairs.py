"""Turn raw sentences into SimBERT's training groups.

python scripts/mine_pairs.py --model_name_or_path DIR_OR_ID --sentences_file questions.txt \
    --output_file groups.jsonl

Sentences are paired that are among each other's nearest, by the model's vectors or by words (BM25),
within a window of cosines; near pairs are joined to small groups, written as {"text", "synonyms"}.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from simbert_hf.atomic import write_text
from simbert_hf.data import load_sentences
from simbert_hf.loader import load_sentence_transformer
from simbert_hf.pair_mining import PairSettings, different, mine_groups
from simbert_hf.script import run_script


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add, defaults = parser.add_argument, PairSettings()
    add("--model_name_or_path", required=True, help="What embeds the sentences.")
    add("--sentences_file", required=True, nargs="+", help="Sentences, one a line.")
    add("--output_file", required=True, type=Path, help="A .jsonl file.")
    add("--neighbours", type=int, default=defaults.neighbours, help="Nearest ones looked at.")
    add("--lowest", type=float, default=defaults.lowest, help="Cosine of a pair, at least.")
    add("--highest", type=float, default=defaults.highest, help="And at most.")
    add("--largest", type=int, default=defaults.largest, help="Sentences a group, at most.")
    add("--no_words", dest="words", action="store_false", help="Compare vectors alone.")
    add("--batch_size", type=int, default=128, help="Sentences a forward pass.")
    args = parser.parse_args(argv)
    if args.output_file.suffix != ".jsonl":
        raise ValueError(f"--output_file {args.output_file}: the groups are a .jsonl file.")
    args.output_file.parent.mkdir(parents=True, exist_ok=True)
    return args


def main(argv: Sequence[str] | None = None) -> None:
    """Mine and write."""
    args = parse(argv)
    names = ("neighbours", "lowest", "highest", "largest", "words")
    settings = PairSettings(**{name: getattr(args, name) for name in names})
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    raw = [text for file in args.sentences_file for text in load_sentences(file)]
    sentences = different(raw)
    print(f"{len(raw):,} sentences, {len(sentences):,} different ones")
    model = load_sentence_transformer(args.model_name_or_path)
    vectors = model.encode(
        sentences, batch_size=args.batch_size, normalize_embeddings=True, show_progress_bar=True
    )
    groups, counts = mine_groups(sentences, np.asarray(vectors, dtype=np.float32), settings)
    records = [{"text": text, "synonyms": others} for text, *others in groups]
    lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    write_text(args.output_file, lines)
    print(f"{args.output_file}: " + ", ".join(f"{n:,} {name}" for name, n in counts.items()))


if __name__ == "__main__":
    run_script(main)
