"""Train a SimBERT on pairs mined from raw sentences: does it retrieve better than its base model?

python -m benchmarks.mining_loop --start PATH --sentences raw.txt [more.txt.xz ...] \
    --retrieval Banking77=test.csv CLINC150=test.csv [--steps 100]

Pairs are mined by the base model's own vectors and by words. Only the evaluation sees labels; the
caller must make sure that its sentences are not among the raw ones. Finished steps are not
repeated.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.reports import load_report, same_settings, save_report
from scripts import mine_pairs, train_simbert
from simbert_hf.evaluation.report import layout
from simbert_hf.evaluation.suite import EvaluationArguments, evaluate, load_tasks

FIGURES = ("top1", "top5", "top10")


def main() -> None:
    """Mine, train, measure; print and save the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--start", required=True)
    parser.add_argument("--sentences", nargs="+", required=True)
    parser.add_argument("--retrieval", nargs="+", required=True, metavar="NAME=FILE")
    parser.add_argument("--steps", type=int, default=100, help="Steps of 32 pairs each.")
    parser.add_argument("--output", type=Path, default=Path("outputs/mining_loop"))
    args = parser.parse_args()
    same_settings(args.output, **{"--start": args.start}, sentences=args.sentences)
    place = args.output / "mining_loop.json"
    mined, trained = args.output / "mined.jsonl", args.output / f"trained-{args.steps}"
    seconds = load_report(place, {}).get("seconds of mining")
    if not mined.exists():
        started = time.perf_counter()
        mine_pairs.main([
            f"--model_name_or_path={args.start}", f"--output_file={mined}",
            "--sentences_file", *args.sentences,
        ])  # fmt: skip
        seconds = round(time.perf_counter() - started)
    if not (trained / "all_results.json").exists():
        train_simbert.main([
            f"--model_name_or_path={args.start}", f"--train_file={mined}",
            f"--output_dir={trained}", f"--max_steps={args.steps}", "--bf16=true",
            "--report_to=none", "--per_device_train_batch_size=32", "--save_strategy=no",
            "--eval_strategy=no", "--load_best_model_at_end=false",
        ])  # fmt: skip
    models = [f"start={args.start}", f"trained={trained}"]
    given = EvaluationArguments(models=models, retrieval=args.retrieval)
    results = evaluate(given, load_tasks(given))
    rows, kept = [], []
    for task in results.models["start"]:
        for name, tasks in results.models.items():
            found = {figure: tasks[task].figures[figure] for figure in FIGURES}
            shown = [
                " ".join(f"{end:.4f}" for end in (v.value, *(v.interval or ())))
                for v in found.values()
            ]
            rows.append([task, name, *shown])
            kept.append({"task": task, "model": name} | {k: v.value for k, v in found.items()})
    print(layout(["task", "model", *FIGURES], rows))
    groups = sum(1 for _ in mined.open(encoding="utf-8"))
    report = {"seconds of mining": seconds, "groups": groups, "steps": args.steps, "results": kept}
    save_report(place, report)


if __name__ == "__main__":
    main()
