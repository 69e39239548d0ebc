"""How many paraphrases have grammatical errors, and how gen_synonyms' options change that.

python -m benchmarks.grammar [--models DIR_OR_ID ...] [--groups pairs.jsonl]
    (pip install harper-py; and Debian's python3-link-grammar)

Harper, a rule-based grammar checker, and Link Grammar, a parser that finds sentences that it cannot
parse without leaving words out, read the best and the five best paraphrases of each sentence, and
human ones for comparison. Neither finds all the errors that a reader sees, and both object to some
human sentences, so only the differences count. Also measured are the chrF (Popovic 2015) of the
candidates with human paraphrases, how alike the five are (self-BLEU, Zhu et al. 2018), and the
number of distinct sentences. Each option is tested against the defaults, or each model, with the
defaults, against the first (paired bootstrap over the sentences).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from harper import Linter
from sacrebleu.metrics.chrf import CHRF

from benchmarks.group_data import SHIPPED
from benchmarks.reports import ReportParser, save_report, tested
from scripts.data.link_grammar import Parser
from simbert_hf import DEFAULT_MODEL
from simbert_hf.evaluation.bootstrap import Bootstrap, Figure, compare
from simbert_hf.evaluation.report import layout
from simbert_hf.generation.synonyms import gen_synonyms
from simbert_hf.judging.evaluation import load_held_out
from simbert_hf.judging.metrics import self_bleu

QUESTIONS = SHIPPED / "questions_en" / "test_questions.jsonl"
SLIPS = {  # kinds of faults that are no matter of spelling, of capitals or of taste
    "Agreement", "BoundaryError", "Eggcorn", "Grammar", "Malapropism", "Miscellaneous",
    "Nonstandard", "Redundancy", "Repetition", "Typo", "Usage", "WordChoice",
}  # fmt: skip
DEFAULTS = "the defaults"
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"copying": 0},
    {"repeats": True},
    {"diversity": 0},
    {"fluency_weight": 0},
    {"fluency_weight": 0.1},
    {"strategy": "sample"},
    {"strategy": "sample", "temperature": 0.7},
    {"strategy": "sample", "top_p": 0.9},
    {"strategy": "sample", "top_k": 10, "top_p": 0.9},
    {"strategy": "without_replacement"},
)
TOP = 5
FAULTS = ("slips", "unread")
NAMES = (
    *(f"{fault}, {which}" for fault in FAULTS for which in ("best", f"{TOP} best")),
    "chrF, best",
    f"chrF, {TOP} best",
    f"self-BLEU, {TOP} best",
    "different",
)


class Slips:
    """Checks whether Harper finds an error in a sentence."""

    def __init__(self) -> None:
        self.linter, self.known = Linter(), dict[str, bool]()

    def __call__(self, text: str) -> bool:
        """Check each text once."""
        text = text[:1].upper() + text[1:]  # some rules look where sentences begin
        if text not in self.known:
            self.known[text] = any(x.lint_kind in SLIPS for x in self.linter.lint(text))
        return self.known[text]


def measure(
    candidates: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    checks: Sequence[Callable[[str], bool]],
) -> dict[str, Figure]:
    """Measure sentences' candidates, best first; without any, all figures are 0."""
    metric, rows = CHRF(lowercase=True), []
    for found, people in zip(candidates, references, strict=True):
        top = found[:TOP]
        faults = [[faulty(text) for text in top] or [False] for faulty in checks]
        chrf = [metric.sentence_score(text, list(people)).score for text in top] or [0.0]
        both = [share for each in (*faults, chrf) for share in (each[0], fmean(each))]
        rows.append((*both, self_bleu([top]) or 0.0, len(found)))
    columns = dict(zip(NAMES, np.array(rows, dtype=float).T, strict=True))
    return Bootstrap().means("grammar", columns)


def cell(name: str, figure: Figure, usual: Figure) -> str:
    """Format a figure, shares in per cent; a star if it differs from the first's at p < .05."""
    text = f"{100 * figure.value if name.startswith(FAULTS) else figure.value:.1f}"
    p_value = compare(figure, usual).p_value
    return f"{text}*" if p_value is not None and p_value < 0.05 else text


def main() -> None:
    """Generate with each option or model, measure, print and save a Markdown table."""
    parser = ReportParser(__doc__, "grammar", "models")
    parser.add_argument(
        "--models", nargs="+", default=[DEFAULT_MODEL], help="one with all options, or several"
    )
    parser.add_argument("--groups", default=QUESTIONS, help="groups that no model was trained on")
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("--n", type=int, default=50)
    args = parser.parse_args()
    data, parses = load_held_out([args.groups], None, 0, args.limit), Parser()
    checks = (Slips(), lambda text: not parses(text))
    people = measure([row[:TOP] for row in data.references], data.references, checks)
    several, found = len(args.models) > 1, {}
    for model, options in product(args.models, [{}] if several else OPTIONS):
        written = gen_synonyms(data.sources, args.n, args.n, model=model, seed=0, **options)
        shown = ", ".join(f"{name}={value}" for name, value in options.items()) or DEFAULTS
        row = Path(model).name if several else shown
        print(f"{row}: {sum(not texts for texts in written)} sentences without any", flush=True)
        found[row] = measure(written, data.references, checks)
    first = next(iter(found.values()))
    rows = [
        [row, *(cell(name, figures[name], first[name]) for name in NAMES)]
        for row, figures in found.items()
    ]
    shares = [name for name in NAMES if name.startswith(FAULTS)]
    unshown = [""] * (len(NAMES) - len(shares))
    rows.append(["people's", *(f"{100 * people[name].value:.1f}" for name in shares), *unshown])
    print(layout(["models" if several else "options", *NAMES], rows, left=[0]))
    figures = tested({**found, "people's": {name: people[name] for name in shares}})
    asked = {"models": [Path(model).name for model in args.models], "groups": data.origin}
    save_report(args.output, {**asked, "n": args.n, "figures": figures})


if __name__ == "__main__":
    main()
