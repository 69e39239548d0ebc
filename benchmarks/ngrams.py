"""What n-grams bring to the ranking of paraphrases, by the sentences that they are counted of.

python -m benchmarks.ngrams --data DIR [--limit 250] [--output FILE]
    (pip install harper-py; and Debian's python3-link-grammar)

The shipped model paraphrases sentences of groups that were held out of its training and of all
counts: what it writes is ranked without n-grams, by those of the training pairs, and by those of
more and more plain sentences. Measures and tests are those of benchmarks.grammar.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random

from benchmarks.grammar import NAMES, TOP, Slips, cell, measure
from benchmarks.group_data import SHIPPED, TATOEBA, find
from benchmarks.reports import report_file, save_report, tested
from scripts.data.link_grammar import Parser
from simbert_hf import DEFAULT_MODEL, SimBert
from simbert_hf.data import load_groups, load_sentences, split_groups
from simbert_hf.data.readers import fold
from simbert_hf.evaluation.bootstrap import Figure
from simbert_hf.evaluation.report import layout
from simbert_hf.modeling.ngrams import fit_ngrams
from simbert_hf.training.data import folded

QUESTIONS = SHIPPED / "questions_en" / "pairs.jsonl.gz"
HELD_OUT, SEED = 500, 42  # as in scripts/release.py
NONE = "none"


def counted(data: Path, pairs: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Name sets of sentences, each with those before it."""
    texts: list[str] = []
    yield NONE, texts
    texts += pairs
    yield "the training pairs", texts
    texts += load_sentences(find(data, "tatoeba/en_sentences.txt.xz"))
    yield "and Tatoeba (as shipped)", texts
    texts += load_sentences(find(data, "wiki/en_sentences.txt.xz"))
    yield "and Wikipedia", texts


def main() -> None:
    """Write, rank by each set's n-grams, print a Markdown table, keep it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=250)
    parser.add_argument("--n", type=int, default=50)
    parser.add_argument("--output", type=report_file, default="outputs/benchmarks/ngrams.json")
    args = parser.parse_args()
    train, held_out = split_groups(load_groups([TATOEBA, QUESTIONS])[0], HELD_OUT, SEED)
    groups = Random(0).sample([row["texts"] for row in held_out], args.limit)
    hidden, model, parses = folded(held_out), SimBert.from_pretrained(DEFAULT_MODEL), Parser()
    sources, references = [texts[0] for texts in groups], [texts[1:] for texts in groups]
    checks = (Slips(), lambda text: not parses(text))
    found, sentences = dict[str, dict[str, Figure]](), {}
    pairs = (text for row in train for text in row["texts"])
    for name, texts in counted(args.data, pairs):
        kept = list(dict.fromkeys(text for text in texts if fold(text) not in hidden))
        sentences[name], model.ngrams = len(kept), None
        if kept:
            fit_ngrams(model, kept)
        written = model.gen_synonyms(sources, args.n, TOP, seed=0)
        found[name] = measure(written, references, checks)
        print(f"{name}: measured", flush=True)
    shown = [name for name in NAMES if name != "different"]
    rows = [
        [name, f"{sentences[name]:,}", *(cell(key, row[key], found[NONE][key]) for key in shown)]
        for name, row in found.items()
    ]
    print(layout(["n-grams of", "sentences", *shown], rows, left=[0]))
    report = {"groups": args.limit, "n": args.n, "sentences": sentences, "figures": tested(found)}
    save_report(args.output, report)


if __name__ == "__main__":
    main()
