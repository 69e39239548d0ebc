"""Make training pairs from sentences labelled by intent: the nearest of the same intent.

Sentences of one intent ask for one thing, but not always in one sense ("how old am i" is near "when
was i born", far from "is my age on file"), so a pair needs a high cosine too.

    python scripts/data/prepare_questions.py --model all-MiniLM-L6-v2 --banking train.csv \
        --clinc data_full.json --target scripts/data/questions_en/pairs.jsonl.gz
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from prepare_tatoeba import write_records
from sentence_transformers import SentenceTransformer

from simbert_hf.utils.script import run_script, script_parser
from simbert_hf.utils.text import fold

NEAREST = 4  # of a sentence, in its intent
COSINES = 0.75, 0.98


def read_intents(banking: Path, clinc: Path) -> dict[str, list[str]]:
    """Read the training sentences of both sets by intent, each once, without out-of-scope ones."""
    with banking.open(encoding="utf-8", newline="") as file:
        rows = [(row["text"], f"banking {row['category']}") for row in csv.DictReader(file)]
    rows += [(text, intent) for text, intent in json.loads(clinc.read_text())["train"]]
    intents: dict[str, dict[str, str]] = defaultdict(dict)
    for text, intent in rows:
        intents[intent].setdefault(fold(text), " ".join(text.split()))
    return {intent: list(texts.values()) for intent, texts in intents.items()}


def near_pairs(texts: Sequence[str], model: SentenceTransformer) -> Iterator[tuple[str, list[str]]]:
    """Yield each sentence with the near ones that are not paired with it yet."""
    vectors = np.asarray(model.encode(list(texts), normalize_embeddings=True))
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -1)
    seen = set()
    for i, row in enumerate(cosines):
        nearest = [int(j) for j in np.argsort(-row)[:NEAREST] if COSINES[0] <= row[j] <= COSINES[1]]
        new = [j for j in nearest if (j, i) not in seen]
        seen |= {(i, j) for j in new}
        if new:
            yield texts[i], [texts[j] for j in new]


def main() -> None:
    """Make the records and write them."""
    parser = script_parser(__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--banking", type=Path, required=True)
    parser.add_argument("--clinc", type=Path, required=True)
    parser.add_argument("--target", type=Path, required=True)
    args = parser.parse_args()
    model = SentenceTransformer(args.model)
    records = [
        {"text": text, "synonyms": synonyms}
        for texts in read_intents(args.banking, args.clinc).values()
        for text, synonyms in near_pairs(texts, model)
    ]
    write_records(args.target, records)


if __name__ == "__main__":
    run_script(main)
