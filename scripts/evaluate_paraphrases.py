"""Evaluate paraphrases of held-out sentences with a judge and the usual metrics, in one table.

python scripts/evaluate_paraphrases.py [--judge outputs/judge] --models outputs/mine ... \
    --groups pairs.jsonl.gz --held_out --output_dir outputs/paraphrases

What models write is kept in the folder until the table is there, so a repeated command goes on
after a stop.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

from simbert_hf.data.readers import DataFormat
from simbert_hf.evaluation.suite import split_name
from simbert_hf.judging.evaluation import (
    USUAL,
    check_names,
    check_writer,
    controls,
    load_held_out,
    measure,
    read_paraphrases,
    write_paraphrases,
)
from simbert_hf.judging.judge import Judge, check_independent
from simbert_hf.judging.report import as_json, caption, markdown_table, samples_page
from simbert_hf.modeling.loading import model_name
from simbert_hf.run_record import RUN
from simbert_hf.utils.atomic import write_text
from simbert_hf.utils.script import check_output, run_script, script_parser
from simbert_hf.utils.textfiles import read_json


def at_least(least: int) -> Callable[[str], int]:
    """Make a parser of flags that are integers of at least some number."""

    def integer(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is too few; give at least {least}")
        return value

    return integer


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read and check the command line."""
    parser = script_parser(__doc__)
    add = parser.add_argument
    add(
        "--judge",
        help="directory that scripts/train_judge.py wrote; without it, acceptance is not measured",
    )
    add("--models", nargs="*", default=[], help="[NAME=]directories or Hub ids of SimBert models")
    add("--outputs", nargs="*", default=[], help='[NAME=]JSON lines {"text", "paraphrases"}')
    add("--groups", nargs="+", required=True, help="files of groups or pairs")
    add("--data_format", choices=get_args(DataFormat), default="auto", help="what rows hold")
    add("--text_columns", nargs=2, help="columns of a pair, as given to the training run")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--held_out", action="store_const", const=USUAL, help="use those that training held out"
    )
    which.add_argument(
        "--validation_groups",
        type=at_least(1),
        dest="held_out",
        metavar="N",
        help="likewise, if the training run was given this number",
    )
    which.add_argument("--all_groups", action="store_true", help="use all; none was trained on")
    add("--split_seed", type=int, default=42, help="seed of the training run's split")
    add("--limit", type=at_least(2), help="evaluate on this many of the held-out groups")
    add("--n", type=at_least(1), default=50, help="candidates generated per source")
    add("--k", type=at_least(1), default=5, help="paraphrases returned per source")
    add("--seed", type=int, default=0, help="seed of the controls")
    add(
        "--related_models", nargs="*", default=[], help="base models and teachers of what is judged"
    )
    add(
        "--allow_related_judge",
        action="store_true",
        help="allow a judge related to them, and print so",
    )
    add("--samples", type=at_least(0), default=20, help="sources on the page of samples")
    add("--list_sources", action="store_true", help="print the sources for others, and stop")
    add("--output_dir", type=Path, required=True)
    args = parser.parse_args(argv)
    if args.k > args.n:
        parser.error(f"argument --k: {args.k} is more than --n {args.n}")
    if (args.related_models or args.allow_related_judge) and not args.judge:
        parser.error("--related_models and --allow_related_judge need a judge; give --judge")
    if not (args.models or args.outputs or args.list_sources):
        parser.error("there is nothing to evaluate; give --models or --outputs")
    return args


def check_split(folder: str, args: argparse.Namespace, others: int | None) -> None:
    """Refuse to treat groups as held out that a model was trained on, according to its folder.

    Args:
        folder: Folder of the model.
        args: They say which groups are held out.
        others: The number of training groups besides these, if known.

    Raises:
        ValueError: If its training read some of the files, and split them differently.
    """
    path = Path(folder, RUN)
    if args.held_out is None or not path.exists():
        return
    record = read_json(path)
    script, rows, then = record.get("script"), record.get("rows"), record["arguments"]
    trained, given = (
        [Path(file).name for file in files] for files in (then.get("train_file", []), args.groups)
    )
    if set(trained).isdisjoint(given):
        return
    if file := then.get("validation_file"):
        raise ValueError(
            f"{path}: training held out none of {', '.join(trained)}, but was evaluated on another "
            f"file: give --groups {file} --all_groups."
        )
    all_trained = script == "train_simcse.py" or then.get("examples") == "triplets"
    if all_trained or then.get("streaming") or then.get("validation_groups") == 0:
        raise ValueError(
            f"{path}: training held out none of {', '.join(trained)}: give other --groups and "
            "--all_groups."
        )
    number = None if args.held_out == USUAL else args.held_out
    for name, was, now in (
        ("--groups", trained, given),
        ("--split_seed", then.get("seed", 42), args.split_seed),
        ("--validation_groups", then.get("validation_groups"), number),
        ("--text_columns", then.get("text_columns"), args.text_columns),
        ("--data_format", then.get("data_format", "auto"), args.data_format),
        ("--dataset_split", then.get("dataset_split", "train"), "train"),
        ("--dataset_config", then.get("dataset_config"), None),
    ):
        if was != now:
            told = ["not given" if value is None else value for value in (was, now)]
            raise ValueError(
                f"{path}: training held out other groups, as {name} was {told[0]}, now {told[1]}: "
                "use the same split, or give other --groups and --all_groups."
            )
    if script == "train_simbert.py" and rows and others not in (None, rows):
        raise ValueError(
            f"{path}: training had {rows:,} groups, but besides those now held out "
            f"{', '.join(given)} has {others:,}: it has changed since, so others would be held "
            "out. Give the original file, or other --groups and --all_groups."
        )


def main(argv: Sequence[str] | None = None) -> None:
    """Generate, judge and measure; print the table, and write it with samples and as JSON."""
    args = parse(argv)
    data = load_held_out(
        args.groups, args.held_out, args.split_seed, args.limit, args.text_columns, args.data_format
    )
    if args.list_sources:
        print(*(json.dumps({"text": text}, ensure_ascii=False) for text in data.sources), sep="\n")
        return
    check_output(str(args.output_dir), [])
    judge = Judge.load(args.judge) if args.judge else None
    threshold = judge.threshold if judge else None
    related_models = {
        name: check_independent(judge, name, name, args.allow_related_judge)
        for name in (args.related_models if judge else ())
    }
    outputs = map(split_name, args.outputs)
    others = [read_paraphrases(path, data, args.k, name) for name, path in outputs]
    others += controls(data, args.seed)
    models = [(name or model_name(path), path) for name, path in map(split_name, args.models)]
    check_names([*(name for name, _ in models), *(system.name for system in others)])
    for _, path in models:
        check_split(path, args, data.others)
    known = [check_writer(path, judge, args.allow_related_judge) for _, path in models]
    begun = args.output_dir / "paraphrases.parts"
    systems = [
        write_paraphrases(name, path, data, figures, args.n, args.k, begun)
        for (name, path), figures in zip(models, known, strict=True)
    ] + others
    scores = [
        judge.score_lists(data.sources, system.candidates) if judge else None for system in systems
    ]
    judged = zip(systems, scores, strict=True)
    rows = [measure(system, each, threshold, data, args.k) for system, each in judged]
    table = f"{markdown_table(rows, args.k)}\n\n{caption(judge, rows, data, related_models)}"
    page = samples_page(systems, scores, threshold, data, args.samples)
    found = as_json(judge, vars(args), data, systems, scores, rows, related_models)
    try:  # a terminal may lack letters, and a disk may be full: one of them is to hold the table
        args.output_dir.mkdir(parents=True, exist_ok=True)
        write_text(args.output_dir / "paraphrases.md", f"{table}\n{page}")
        write_text(args.output_dir / "paraphrases.json", found)
        shutil.rmtree(begun, ignore_errors=True)
    finally:
        print(table)


if __name__ == "__main__":
    run_script(main)
