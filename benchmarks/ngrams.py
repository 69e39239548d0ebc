"""What n-grams bring to the ranking of paraphrases, by the sentences that they are counted of.

python -m benchmarks.ngrams --data DIR [--limit 250] [--output FILE]
    (pip install harper-py; and Debian's python3-link-grammar)

The shipped model paraphrases sentences of groups that were held out of its training and of all
counts. What it has written is then ranked without n-grams, with those of the training pairs, and
with those of more and more plain sentences. Measures and tests are those of benchmarks.grammar.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random

import numpy as np

from benchmarks.grammar import NAMES, TOP, Slips, cell, measure
from benchmarks.group_data import SHIPPED, TATOEBA, find
from benchmarks.reports import report_file, save_report, tested
from scripts.data.link_grammar import Parser
from simbert_hf import DEFAULT_MODEL, SimBert
from simbert_hf.data import load_groups, load_sentences, split_groups
from simbert_hf.data.readers import fold
from simbert_hf.evaluation.report import layout
from simbert_hf.generation.diversity import choose_diverse
from simbert_hf.generation.synonyms import DIVERSITY, FLUENCY_WEIGHT, Paraphrase
from simbert_hf.modeling.ngrams import NGramModel

QUESTIONS = SHIPPED / "questions_en" / "pairs.jsonl.gz"
HELD_OUT, SEED = 500, 42  # as in scripts/release.py
NONE = "none"


def counted(data: Path, pairs: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Name sets of sentences, each with those before it."""
    texts = [*pairs]
    yield "the training pairs", texts
    texts += load_sentences(find(data, "tatoeba/en_sentences.txt.xz"))
    yield "and Tatoeba (as shipped)", texts
    texts += load_sentences(find(data, "wiki/en_sentences.txt.xz"))
    yield "and Wikipedia", texts


def ranked(written: Sequence[Paraphrase], log_probs: Sequence[float]) -> list[str]:
    """Choose the best by cosine and these log-probabilities, and put the others behind them."""
    scores = [
        one.similarity + FLUENCY_WEIGHT * log_prob
        for one, log_prob in zip(written, log_probs, strict=True)
    ]
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    texts = [written[i].text for i in order]
    best = choose_diverse(texts, [scores[i] for i in order], min(TOP, len(texts)), DIVERSITY)
    return [texts[i] for i in best] + [text for i, text in enumerate(texts) if i not in set(best)]


def main() -> None:
    """Write once, rank by each set's n-grams, print a Markdown table, keep it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=250)
    parser.add_argument("--n", type=int, default=50)
    parser.add_argument("--output", type=report_file, default="outputs/benchmarks/ngrams.json")
    args = parser.parse_args()
    train, held_out = split_groups(load_groups([TATOEBA, QUESTIONS])[0], HELD_OUT, SEED)
    groups = Random(0).sample([row["texts"] for row in held_out], args.limit)
    hidden = {fold(text) for row in held_out for text in row["texts"]}
    model, checks = SimBert.from_pretrained(DEFAULT_MODEL), (Slips(), Parser())
    model.ngrams = None
    sources, references = [texts[0] for texts in groups], [texts[1:] for texts in groups]
    written = model.gen_synonyms(sources, args.n, args.n, seed=0, diversity=0, return_scores=True)
    own = [[one.log_prob for one in row] for row in written]
    rankings, sentences = {NONE: own}, {NONE: 0}
    pairs = (text for row in train for text in row["texts"])
    for name, texts in counted(args.data, pairs):
        kept = [text for text in dict.fromkeys(texts) if fold(text) not in hidden]
        ngrams = NGramModel.fit(model.rows.sources(kept, 128), model.config.vocab_size)
        sentences[name] = len(kept)
        rankings[name] = [
            list((np.array(mine) + scored(ngrams, model, row)) / 2) if row else []
            for mine, row in zip(own, written, strict=True)
        ]
    faults = (checks[0], lambda text: not checks[1](text))
    found = {
        name: measure([ranked(*row) for row in zip(written, by, strict=True)], references, faults)
        for name, by in rankings.items()
    }
    shown = [name for name in NAMES if name != "different"]
    rows = [
        [name, f"{sentences[name]:,}", *(cell(key, row[key], found[NONE][key]) for key in shown)]
        for name, row in found.items()
    ]
    print(layout(["n-grams of", "sentences", *shown], rows, left=[0]))
    report = {"groups": args.limit, "n": args.n, "sentences": sentences, "figures": tested(found)}
    save_report(args.output, report)


def scored(ngrams: NGramModel, model: SimBert, row: Sequence[Paraphrase]) -> np.ndarray:
    """Score paraphrases by n-grams."""
    return ngrams.mean_log_probs(model.rows.sources([one.text for one in row], 128))


if __name__ == "__main__":
    main()
