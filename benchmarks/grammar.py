"""How many paraphrases hold a slip of grammar, and what gen_synonyms' options do about it.

python -m benchmarks.grammar [--model DIR_OR_ID] [--groups pairs.jsonl] [--output FILE]
    (pip install harper-py)

Harper, a grammar checker of rules, reads the best and the five best paraphrases of each sentence,
and people's for comparison. It knows few of the slips a reader sees, and of people's sentences it
finds fault with some: a measure to compare by. Beside it chrF (Popovic 2015) of the same
candidates with people's paraphrases, and how many different sentences were written. Each option is
tested against the defaults (paired bootstrap over the sentences).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from harper import Linter
from sacrebleu.metrics import CHRF

from benchmarks.group_data import SHIPPED
from benchmarks.reports import report_file, save_report
from simbert_hf import DEFAULT_MODEL
from simbert_hf.evaluation.bootstrap import Bootstrap, Figure, compare, mean
from simbert_hf.evaluation.report import layout
from simbert_hf.generation import gen_synonyms
from simbert_hf.judging.evaluation import load_held_out

QUESTIONS = SHIPPED / "questions_en" / "test_questions.jsonl"
SLIPS = {  # kinds of faults that are no matter of spelling, of capitals or of taste
    "Agreement", "BoundaryError", "Eggcorn", "Grammar", "Malapropism", "Miscellaneous",
    "Nonstandard", "Redundancy", "Repetition", "Typo", "Usage", "WordChoice",
}  # fmt: skip
DEFAULTS = "the defaults"
OPTIONS: dict[str, dict[str, Any]] = {
    DEFAULTS: {},
    "fluency_weight=0": {"fluency_weight": 0.0},
    "fluency_weight=0.2": {"fluency_weight": 0.2},
    "copying=0": {"copying": 0.0},
    "temperature=0.7": {"temperature": 0.7},
    "top_p=0.9": {"top_p": 0.9},
    "top_k=10, top_p=0.9": {"top_k": 10, "top_p": 0.9},
    "without_replacement": {"strategy": "without_replacement"},
    "beam": {"strategy": "beam"},
}
TOP = 5
NAMES = ("slips, best", f"slips, {TOP} best", "chrF, best", f"chrF, {TOP} best", "different")


class Slips:
    """Tells whether a sentence holds a slip."""

    def __init__(self) -> None:
        self.linter, self.known = Linter(), dict[str, bool]()

    def __call__(self, text: str) -> bool:
        """Look each text up once."""
        text = text[:1].upper() + text[1:]  # some rules look where sentences begin
        if text not in self.known:
            self.known[text] = any(x.lint_kind in SLIPS for x in self.linter.lint(text))
        return self.known[text]


def measure(
    candidates: Sequence[Sequence[str]], references: Sequence[Sequence[str]], slips: Slips
) -> dict[str, Figure]:
    """Measure sentences' candidates, best first; where there are none, all is 0."""
    metric, rows = CHRF(), []
    for found, people in zip(candidates, references, strict=True):
        wanted = [reference.lower() for reference in people]
        slipped = [slips(text) for text in found[:TOP]] or [False]
        chrf = [metric.sentence_score(text, wanted).score for text in found[:TOP]] or [0.0]
        rows.append((slipped[0], fmean(slipped), chrf[0], fmean(chrf), len(found)))
    columns = dict(zip(NAMES, np.array(rows, dtype=float).T, strict=True))
    return Bootstrap().figures(
        "grammar", len(rows), {name: column.mean() for name, column in columns.items()},
        lambda counts: {name: mean(column, counts) for name, column in columns.items()},
    )  # fmt: skip


def cell(name: str, figure: Figure, usual: Figure) -> str:
    """Show a figure, shares in per cent; a star where it differs from the defaults' at p < .05."""
    text = f"{100 * figure.value if 'slips' in name else figure.value:.1f}"
    p_value = compare(figure, usual).p_value
    return f"{text}*" if p_value is not None and p_value < 0.05 else text


def main() -> None:
    """Write with each option, measure, print a Markdown table, keep it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--groups", default=QUESTIONS, help="groups that no model was trained on")
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("--n", type=int, default=50)
    parser.add_argument("--output", type=report_file, default="outputs/benchmarks/grammar.json")
    args = parser.parse_args()
    data, slips = load_held_out([args.groups], None, 0, args.limit), Slips()
    people = measure([row[:TOP] for row in data.references], data.references, slips)
    found = {}
    for row, options in OPTIONS.items():
        written = gen_synonyms(data.sources, args.n, args.n, model=args.model, seed=0, **options)
        found[row] = measure(written, data.references, slips)
        print(f"{row}: {sum(not texts for texts in written)} sentences without any", flush=True)
    rows = [
        [row, *(cell(name, figures[name], found[DEFAULTS][name]) for name in NAMES)]
        for row, figures in found.items()
    ]
    rows.append(
        ["people's", *(f"{100 * people[name].value:.1f}" for name in NAMES[:2]), "", "", ""]
    )
    print(layout(["options", *NAMES], rows, left=[0]))
    figures = {
        row: {name: {"value": one.value, "interval": one.interval} for name, one in each.items()}
        for row, each in {**found, "people's": {name: people[name] for name in NAMES[:2]}}.items()
    }
    asked = {"model": Path(args.model).name, "groups": data.origin, "n": args.n}
    save_report(args.output, {**asked, "figures": figures})


if __name__ == "__main__":
    main()
