"""Choose gen_synonyms' fluency weight on held-out groups.

Each held-out sentence is paraphrased once; the same candidates are then ranked with every weight.
A ranking is judged by chrF (Popovic 2015) of its best candidates against the people's paraphrases
of that sentence. The held-out groups are those that picked the training run's best checkpoint.

python -m benchmarks.fluency --model outputs/minilm_tatoeba [--output outputs/benchmarks]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean
from typing import Any

from sacrebleu.metrics import CHRF

from benchmarks.group_data import TATOEBA
from benchmarks.reports import save_report
from simbert_hf import SimBert, gen_synonyms
from simbert_hf.data import load_groups, split_groups
from simbert_hf.evaluation.report import layout

WEIGHTS = [0.0, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0]
TOP = (1, 5)


def chrf_at(candidates: list[list[Any]], references: list[list[str]], weight: float) -> list[float]:
    """Mean chrF of the k best by cosine + weight * log-probability, for each k of TOP."""
    metric = CHRF(lowercase=True)
    scores: dict[int, list[float]] = {k: [] for k in TOP}
    for found, wanted in zip(candidates, references, strict=True):
        ranked = sorted(found, key=lambda c: -(c.similarity + weight * c.log_prob))
        each = [
            max(metric.sentence_score(c.text, [reference]).score for reference in wanted)
            for c in ranked[: max(TOP)]
        ]
        for k in TOP:
            scores[k].append(fmean(each[:k]) if each else 0.0)
    return [fmean(scores[k]) for k in TOP]


def main() -> None:
    """Rank, judge, print a Markdown table, write JSON and a plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--validation_groups", type=int, default=500)
    parser.add_argument("--seed", type=int, default=42, help="Seed of the training run's split.")
    parser.add_argument("--limit", type=int, help="Use this many of the held-out groups.")
    parser.add_argument("--n", type=int, default=50)
    parser.add_argument("--output", type=Path, default=Path("outputs/benchmarks"))
    args = parser.parse_args()
    _, held_out = split_groups(load_groups(TATOEBA)[0], args.validation_groups, args.seed)
    rows = list(held_out)[: args.limit]
    texts = [row["texts"][0] for row in rows]
    references = [row["texts"][1:] for row in rows]
    candidates = gen_synonyms(
        texts,
        args.n,
        args.n,
        model=SimBert.from_pretrained(args.model),
        strategy="sample",
        copying=0,
        repeats=True,
        seed=0,
        return_scores=True,
    )
    table = {w: chrf_at(candidates, references, w) for w in WEIGHTS}
    best = max(table, key=lambda w: table[w][-1])
    names = [f"chrF of the {k} best" for k in TOP]
    rows = [
        [f"{w} **best**" if w == best else str(w), *(f"{score:.2f}" for score in scores)]
        for w, scores in table.items()
    ]
    print(layout(["weight", *names], rows, left=[0]))
    chrf = {str(w): dict(zip(map(str, TOP), s, strict=True)) for w, s in table.items()}
    report = {"groups": len(texts), "n": args.n, "best": best, "chrf": chrf}
    save_report(args.output / "fluency.json", report)
    plot(table, best, args.output / "fluency.png")


def plot(table: dict[float, list[float]], best: float, path: Path) -> None:
    """Draw chrF over the weight."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.2), layout="constrained")
    axis = figure.subplots()
    for i, k in enumerate(TOP):
        axis.plot(list(table), [scores[i] for scores in table.values()], "o-", label=f"{k} best")
    axis.axvline(best, color="grey", linewidth=0.8)
    axis.set(xlabel="fluency weight (cosine a nat)", ylabel="chrF with held-out paraphrases")
    axis.legend(frameon=False)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
