"""Measure paraphrases of held-out sentences with a judge and the usual metrics; one table for all.

python scripts/evaluate_paraphrases.py --judge outputs/judge --models outputs/mine ... \
    --groups pairs.jsonl.gz --held_out 500 --output_dir outputs/paraphrases
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from simbert_hf.judging.evaluation import (
    controls,
    load_held_out,
    measure,
    read_paraphrases,
    write_paraphrases,
)
from simbert_hf.judging.judge import Judge, check_independent
from simbert_hf.judging.report import as_json, caption, markdown_table, samples_page


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    add = parser.add_argument
    add("--judge", required=True, help="directory that scripts/train_judge.py wrote")
    add("--models", nargs="*", default=[], help="directories or Hub ids of SimBert models")
    add("--outputs", nargs="*", default=[], help='{"text", "paraphrases"} JSON lines of others')
    add("--groups", nargs="+", required=True, help="files of groups or pairs")
    add("--held_out", type=int, help="groups that training held out of them; all if not given")
    add("--split_seed", type=int, default=42, help="seed of the training run's split")
    add("--limit", type=int, help="measure on this many of the held-out groups")
    add("--n", type=int, default=50, help="sentences a model writes for each source")
    add("--k", type=int, default=5, help="of which it gives this many")
    add("--seed", type=int, default=0, help="seed of the writing, and of the controls")
    add("--relatives", nargs="*", default=[], help="starts and teachers of what is judged")
    add("--allow_kin", action="store_true", help="let a kindred judge judge, and print so")
    add("--samples", type=int, default=20, help="sources on the page of samples")
    add("--output_dir", type=Path, required=True)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Write, judge, measure; print the table, and write it with samples and as JSON."""
    args = parse(argv)
    if not (args.models or args.outputs):
        raise ValueError("There is nothing to measure; give --models or --outputs.")
    judge = Judge.load(args.judge)
    for relative in args.relatives:
        check_independent(judge, relative, relative, args.allow_kin)
    data = load_held_out(args.groups, args.held_out, args.split_seed, args.limit)
    systems = [
        write_paraphrases(name, data, judge, args.n, args.k, args.seed, args.allow_kin)
        for name in args.models
    ]
    systems += [read_paraphrases(path, data, args.k) for path in args.outputs]
    written = len(systems)
    systems += controls(data, args.seed)
    scores = [judge.score_lists(data.sources, system.candidates) for system in systems]
    judged = zip(systems, scores, strict=True)
    rows = [measure(system, each, judge.threshold, data, args.k) for system, each in judged]
    table = f"{markdown_table(rows, args.k)}\n\n{caption(judge, rows)}"
    print(table)
    page = samples_page(systems[:written], scores[:written], judge.threshold, data, args.samples)
    found = as_json(judge, vars(args), data, systems, scores, rows)
    args.output_dir.mkdir(parents=True, exist_ok=True)
    (args.output_dir / "paraphrases.md").write_text(f"{table}\n{page}", encoding="utf-8")
    (args.output_dir / "paraphrases.json").write_text(found, encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
