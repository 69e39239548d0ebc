"""Are texts of several sentences paraphrased better sentence by sentence than as a whole?

python -m benchmarks.sentences --judge DIR --data DIR [--model DIR_OR_ID] [--limit 200]

Banking77's test questions that consist of several sentences are paraphrased both ways. A judge
(scripts/train_judge.py) decides which of the five best paraphrases mean the same, and chrF (Popovic
2015) with the source shows how much of it they repeat. A question with one word exchanged shows
what the judge wrongly accepts.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import numpy as np
from sacrebleu.metrics.chrf import CHRF

from benchmarks.group_data import banking77
from benchmarks.reports import ReportParser, bracketed, save_report, tested
from simbert_hf import DEFAULT_MODEL, gen_synonyms
from simbert_hf.evaluation.bootstrap import Bootstrap, Figure
from simbert_hf.evaluation.report import layout
from simbert_hf.generation.sentences import split_sentences
from simbert_hf.judging.evaluation import exchange_word
from simbert_hf.judging.judge import Judge

TOP = 5
NAMES = "best accepted", f"{TOP} best accepted", "chrF with the source"
WAYS = {"sentence by sentence": True, "at once": False}
EXCHANGED = "one word exchanged"


def measure(judge: Judge, sources: list[str], candidates: list[list[str]]) -> dict[str, Figure]:
    """Measure sources' candidates, best first; without any, all figures are 0."""
    metric, rows = CHRF(lowercase=True), []
    for source, found, scores in zip(
        sources, candidates, judge.score_lists(sources, candidates), strict=True
    ):
        accepted = [score >= judge.threshold for score in scores] or [False]
        repeated = [metric.sentence_score(text, [source]).score for text in found] or [0.0]
        rows.append((100 * accepted[0], 100 * fmean(accepted), fmean(repeated)))
    columns = dict(zip(NAMES, np.array(rows).T, strict=True))
    return Bootstrap().means("sentences", columns)


def main() -> None:
    """Generate, judge, print a Markdown table, save the figures."""
    parser = ReportParser(__doc__, "sentences", "model")
    parser.add_argument("--judge", required=True, help="folder written by scripts/train_judge.py")
    parser.add_argument("--data", type=Path, required=True, help="folder that contains Banking77")
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("--n", type=int, default=50)
    args = parser.parse_args()
    judge = Judge.load(args.judge)
    questions = [text.strip() for text, _ in banking77(args.data)["test"]]
    several = [text for text in dict.fromkeys(questions) if len(split_sentences(text)) > 1]
    chosen = np.random.default_rng(0).permutation(len(several))[: args.limit].tolist()
    sources = [several[i] for i in chosen]
    written = {
        name: gen_synonyms(sources, args.n, TOP, model=args.model, by_sentence=way)
        for name, way in WAYS.items()
    }
    others = [*sources[1:], sources[0]]
    written[EXCHANGED] = [
        [exchange_word(text, other)] for text, other in zip(sources, others, strict=True)
    ]
    found = {name: measure(judge, sources, texts) for name, texts in written.items()}
    rows = [
        [row, *(bracketed(each[name].value, each[name].interval) for name in NAMES)]
        for row, each in found.items()
    ]
    print(f"{len(sources)} of {len(several)} questions of several sentences")
    print(layout(["", *NAMES], rows, left=[0]))
    asked = {"model": Path(args.model).name, "n": args.n, "of": len(several)}
    save_report(args.output, {**asked, "sources": len(sources), "figures": tested(found)})


if __name__ == "__main__":
    main()
