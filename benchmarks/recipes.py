"""Train and measure SimCSE's recipes from several base models, over seeds, in one table.

python -m benchmarks.recipes --data DIR --start L3=PATH --start MiniLM=PATH [--language zh]
    [--scratch L3] [--adapted MiniLM] [--seeds 0 1 2]

The files in the tables below lie anywhere below DIR: Wikipedia sentences, one per line; STS-B
(for Chinese, its translation) as CSV without header; SemEval's STS13 to STS16 test files; LCQMC, BQ
and PAWS-X; Chinese pairs as {"text", "synonyms"} lines. The English pairs are the shipped ones.

Finished steps are not repeated, so that an interrupted command resumes where it was.
`--scratch L3` adds a base model without contrastive training: the shape and vocabulary of L3,
random weights, MLM on the sentences; `scratch-cls` is the same with [CLS] as the vector.
`--adapted MiniLM` adds one whose contrastive training MLM has partly undone, in both forms.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import torch

from benchmarks.group_data import find, find_all
from benchmarks.reports import kept, same_settings, save_report, spread
from simbert_hf import SimBert
from simbert_hf.data import load_sentences
from simbert_hf.data.scored import load_scored_pairs
from simbert_hf.evaluation.plots import draw_places
from simbert_hf.evaluation.report import layout
from simbert_hf.evaluation.suite import EvaluationArguments, evaluate, load_tasks
from simbert_hf.modeling.whitening import whiten
from simbert_hf.utils.text import normalize_text

SENTENCES = {"en": "wiki/en_sentences.txt.xz", "zh": "wiki/zh_sentences.txt.xz"}
PAIRS = {"en": "tatoeba_en/pairs.jsonl.gz", "zh": "data_similarity.json"}
STS = {
    part: {lang: f"stsb-{lang}-{part}.csv" for lang in ("en", "zh")} for part in ("train", "dev")
}
TESTS = {
    "en": {"STS-B dev": "stsb-en-dev.csv", "STS-B": "stsb-en-test.csv"}
    | {f"STS{year}": f"20{year}-*.tsv" for year in (13, 14, 15, 16)},
    "zh": {
        "STS-B dev": "stsb-zh-dev.csv",
        "STS-B": "stsb-zh-test.csv",
        "LCQMC": "LCQMC-test.txt",
        "BQ": "BQ_corpus-test.csv",
        "PAWS-X": "PAWS-X-test_2k.tsv",
    },
}
WHITENING_SENTENCES = 10_000


@dataclass(frozen=True)
class Recipe:
    """Flags of scripts/train_simcse.py besides the base model and the seed."""

    data: dict[str, str]
    flags: tuple[str, ...]


PAPERS = ("--loss=one_way", "--mask_false_negatives=false")  # SimCSE's loss
RECIPES = {
    "unsup": Recipe(SENTENCES, PAPERS),
    "unsup-symmetric": Recipe(SENTENCES, ("--loss=symmetric",)),
    "unsup-crop": Recipe(SENTENCES, (*PAPERS, "--augmentation=crop")),
    "unsup-delete": Recipe(SENTENCES, (*PAPERS, "--augmentation=delete")),
    "unsup-replace": Recipe(SENTENCES, (*PAPERS, "--augmentation=replace")),
    "pairs": Recipe(PAIRS, ("--examples=pairs",)),
    "cosent": Recipe(STS["train"], ("--examples=scored", "--loss=cosent")),
    "angle": Recipe(STS["train"], ("--examples=scored", "--loss=angle")),
}
COMMON = (
    "--bf16=true", "--max_length=32", "--logging_steps=10", "--report_to=none",
    "--save_only_model=true", "--save_total_limit=1",
)  # fmt: skip
TUNING = ("--eval_strategy=steps", "--save_strategy=steps", "--learning_rate=3e-5")
MLM = (
    "--similarity_weight=0", "--mlm_weight=1", "--eval_strategy=no", "--save_strategy=no",
)  # fmt: skip


def train(output: Path, *flags: str) -> Path:
    """Run the script into a folder that appears only when the run has ended."""
    if output.exists():
        return output
    part = output.with_name(f"{output.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    print(f"training {output.name}", flush=True)
    command = [sys.executable, "scripts/train_simcse.py", f"--output_dir={part}", *COMMON, *flags]
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
    with (output.parent / f"{output.name}.log").open("w") as log:
        subprocess.run(command, check=True, stdout=log, stderr=log, env=environment)
    for checkpoint in part.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    part.rename(output)
    return output


def drawn_anew(like: str, output: Path) -> str:
    """Save a model with a base model's shape and tokenizer and random weights."""
    if not output.exists():
        torch.manual_seed(0)
        start = SimBert.from_pretrained(like)
        model = SimBert(start.config)
        model.tokenizer, model.has_lm_head = start.tokenizer, True
        model.save_pretrained(output)
    return str(output)


def mlm_starts(args: argparse.Namespace, starts: dict[str, str], sentences: Path) -> dict[str, str]:
    """Train by MLM alone, from random weights or from a base model's; each with mean and [CLS]."""
    found = {}
    for name, like in (("scratch", args.scratch), ("adapted", args.adapted)):
        if like is None:
            continue
        path = args.output / f"{name}-{args.language}-{args.mlm_steps}"
        start = starts[like]
        if name == "scratch":
            start = drawn_anew(start, path.with_name(f"{path.name}-random"))
        train(
            path, *MLM, f"--model_name_or_path={start}", f"--train_file={sentences}",
            f"--max_steps={args.mlm_steps}", f"--learning_rate={args.mlm_rate}",
        )  # fmt: skip
        found[name], found[f"{name}-cls"] = str(path), f"{path}-cls"
        SimBert.from_pretrained(path, pooling="cls").save_pretrained(found[f"{name}-cls"])
    return found


def whitened(start: str, sentences: Path, output: Path) -> Path:
    """Save a base model with whitened vectors."""
    if not output.exists():
        model = SimBert.from_pretrained(start)
        whiten(model, load_sentences(sentences)[:WHITENING_SENTENCES])
        model.save_pretrained(output)
    return output


def runs(args: argparse.Namespace) -> Iterator[tuple[str, str, str, Path]]:
    """Train what is missing; yield base model, recipe, name and path of every model."""
    lang, starts = args.language, dict(item.split("=", 1) for item in args.start)
    sentences = find(args.data, SENTENCES[lang])
    starts |= mlm_starts(args, starts, sentences)
    for name, start in starts.items():
        yield name, "(start)", f"{name}-{lang}", Path(start)
        path = args.output / f"{name}-{lang}-whitened"
        yield name, "whitened", path.name, whitened(start, sentences, path)
    for recipe, (name, start), seed in product(args.recipes, starts.items(), args.seeds):
        path = train(
            args.output / f"{name}-{lang}-{recipe}-{args.steps}-{seed}",
            f"--model_name_or_path={start}",
            f"--train_file={find(args.data, RECIPES[recipe].data[lang])}",
            f"--sts_file={find(args.data, STS['dev'][lang])}",
            f"--max_steps={args.steps}", f"--eval_steps={args.steps // 3}",
            f"--save_steps={args.steps // 3}", f"--seed={seed}",
            *TUNING, *RECIPES[recipe].flags,
        )  # fmt: skip
        yield name, recipe, path.name, path


def measure(path: Path, args: argparse.Namespace) -> dict[str, float]:
    """Return Spearman's correlation on each test set, alignment and uniformity on STS-B."""
    files = [
        f"{task}={file}"
        for task, pattern in TESTS[args.language].items()
        for file in find_all(args.data, pattern)
    ]
    given = EvaluationArguments(models=[f"model={path}"], sts=files, bootstrap=0)
    tasks = evaluate(given, load_tasks(given)).models["model"]
    found = {task: tasks[task].figures["spearman"].value for task in TESTS[args.language]}
    shape = ("alignment", "uniformity")
    return found | {figure: tasks["STS-B"].figures[figure].value for figure in shape}


def pair_keys(files: Sequence[Path]) -> list[frozenset[str]]:
    """Return scored pairs, normalized in order, case and punctuation."""
    pairs = (pair for path in files for pair in load_scored_pairs(path))
    return [frozenset(map(normalize_text, (pair.first, pair.second))) for pair in pairs]


def cell(name: str, values: list[float]) -> str:
    """Format the mean over seeds and their standard deviation; correlations times 100."""
    return spread(values, 3) if name in ("alignment", "uniformity") else spread(values, scale=100)


def main() -> None:
    """Train and measure what is missing; print and save the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--start", action="append", required=True, metavar="NAME=PATH")
    parser.add_argument("--scratch", metavar="NAME", help="Base model to re-initialize.")
    parser.add_argument("--adapted", metavar="NAME", help="Base model to train further by MLM.")
    parser.add_argument("--mlm_steps", type=int, default=3000)
    parser.add_argument("--mlm_rate", type=float, default=1e-3, help="Learning rate of the MLM.")
    parser.add_argument("--language", default="en", choices=sorted(SENTENCES))
    parser.add_argument(
        "--recipes", nargs="+", choices=RECIPES, default=["cosent", "pairs", "unsup"]
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=120, help="Steps, of 64 rows or pairs.")
    parser.add_argument("--output", type=Path, default=Path("outputs/recipes"))
    args = parser.parse_args()
    patterns = [STS["dev"][args.language], SENTENCES[args.language]]
    patterns += [RECIPES[recipe].data[args.language] for recipe in args.recipes]
    for pattern in (*patterns, *TESTS[args.language].values()):
        find_all(args.data, pattern)  # those that are missing are better known before
    named = {f"start {name}": path for name, path in (item.split("=", 1) for item in args.start)}
    mlm = ("mlm_steps", "mlm_rate") if args.scratch or args.adapted else ()
    same_settings(args.output, **named, **{name: vars(args)[name] for name in mlm})
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for start, recipe, name, path in runs(args):
        figures = kept(args.output / f"{name}.json", partial(measure, path, args))
        found.setdefault((start, recipe), []).append(figures)
    names = [*TESTS[args.language], "alignment", "uniformity"]
    rows = [
        [*key, *(cell(name, [seed[name] for seed in seeds]) for name in names)]
        for key, seeds in sorted(found.items())
    ]
    print(layout(["trained from", "recipe", *names], rows))
    results = [{"start": key[0], "recipe": key[1], "seeds": seeds} for key, seeds in found.items()]
    report: dict[str, object] = {"steps": args.steps, "results": results}
    if any(RECIPES[recipe].data is STS["train"] for recipe in args.recipes):
        known = set(pair_keys(find_all(args.data, STS["train"][args.language])))
        report["pairs of the tests in STS-B train"] = shares = {
            task: round(
                statistics.fmean(k in known for k in pair_keys(find_all(args.data, files))), 3
            )
            for task, files in TESTS[args.language].items()
        }
        print(f"STS-B train, of which `cosent` and `angle` learn, holds of their pairs: {shares}")
    name = f"recipes-{args.language}"
    save_report(args.output / f"{name}.json", report)
    places = [
        (*key, seed["uniformity"], seed["alignment"])
        for key, seeds in found.items()
        for seed in seeds
    ]
    draw_places(places, args.output / f"{name}.png")


if __name__ == "__main__":
    main()
