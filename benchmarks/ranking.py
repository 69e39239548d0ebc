"""How well cosine and gen_synonyms' fluency weight rank paraphrases as a reader does.

A reader rated candidates of each sentence from 0 to 2 (scripts/data/rated_en). The model scores
them again and ranks them with each weight of the mean log-probability of the candidate, given the
sentence, and of the sentence, given the candidate.

python -m benchmarks.ranking [--model MODEL] [--ratings FILE] [--limit N]
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.group_data import SHIPPED
from benchmarks.reports import ReportParser, save_report
from simbert_hf import DEFAULT_MODEL, SimBert
from simbert_hf.evaluation.bootstrap import Bootstrap
from simbert_hf.evaluation.report import layout
from simbert_hf.generation.scoring import score_pairs
from simbert_hf.utils.textfiles import read_objects

RATINGS = SHIPPED / "rated_en" / "choice.jsonl.gz"
WEIGHTS = [0.0, 0.05, 0.1, 0.2, 0.3, 0.5]
GOOD, TOP = 2, 3

Rows = list[dict[str, Any]]


def features(model: SimBert, rows: Rows) -> list[np.ndarray]:
    """Read each sentence's candidates: cosine, log-probability and its reverse, (C, 3) each."""
    pairs = [(text, row["text"]) for row in rows for text in row["candidates"]]
    back, forth = score_pairs(model, pairs), score_pairs(model, [(b, a) for a, b in pairs])
    cosines = (back.vectors * forth.vectors).sum(dim=1)
    read = torch.stack([cosines, forth.means, back.means], dim=1).numpy()
    return np.split(read, np.cumsum([len(row["candidates"]) for row in rows])[:-1])


def agreement(scores: np.ndarray, ratings: Sequence[int]) -> tuple[float, float, float]:
    """Compare a ranking with ratings, (C,) both.

    Returns:
        The share of candidates rated differently that stand in the right order (NaN where there are
        none), whether the best is good, and the share of the three best that is.
    """
    ranked = [ratings[i] for i in np.argsort(-scores, kind="stable")]
    unequal = [a > b for a, b in combinations(ranked, 2) if a != b]
    right = float(np.mean(unequal)) if unequal else float("nan")
    good = [rating == GOOD for rating in ranked]
    return right, float(good[0]), float(np.mean(good[:TOP]))


def main() -> None:
    """Rank by each weight; print and save a Markdown table."""
    parser = ReportParser(__doc__, "ranking", "ratings", "model")
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--ratings", type=Path, default=RATINGS)
    parser.add_argument("--limit", type=int, help="read the first N sentences")
    args = parser.parse_args()
    rows: Rows = [row for _, row in read_objects(args.ratings)][: args.limit]
    read = features(SimBert.from_pretrained(args.model), rows)
    names, figures = ["right order", "best good", f"{TOP} best good"], {}
    for forth, back in product(WEIGHTS, WEIGHTS):
        weights = np.array([1.0, forth, back])
        found = [agreement(x @ weights, row["ratings"]) for x, row in zip(read, rows, strict=True)]
        columns = dict(zip(names, np.array(found).T, strict=True))
        unequal = ~np.isnan(columns[names[0]])  # the sentences that have an order
        measured = {
            name: Bootstrap().means(name, {name: column[unequal] if name == names[0] else column})
            for name, column in columns.items()
        }
        figures[forth, back] = {
            name: (one[name].value, *(one[name].interval or ())) for name, one in measured.items()
        }
    table = [
        [f"{forth:g}", f"{back:g}", *(f"{100 * row[name][0]:.1f}" for name in names)]
        for (forth, back), row in figures.items()
    ]
    print(layout(["log-probability", "its reverse", *names], table))
    report = {f"{forth:g}, {back:g}": row for (forth, back), row in figures.items()}
    save_report(args.output, {"sentences": len(rows), "weights": report})


if __name__ == "__main__":
    main()
