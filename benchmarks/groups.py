"""The articles' table: losses on groups of sentences, measured on groups not seen in training.

python -m benchmarks.groups --data DIR --bert PATH [--bert_zh PATH] [--bf16]
    [--datasets intents qqp zh faq] [--encoders gru bert] [--losses ...] [--seeds 0 1 2] [--show]

Sets, from files anywhere below DIR or shipped: ``intents`` (CLINC150 and Banking77, split by
intent), ``qqp`` (Quora duplicates, connected ones of three questions or more), ``zh``
(data_similarity.json, connected pairs): a fifth of the groups is held out, another one for each
seed, and each of their sentences ranks all the others. ``faq``: a practitioner has the FAQ's own
sentences to train on, so all intents of CLINC150's training split are trained on; its test queries
search for them, and the best cosine detects the 1,000 out-of-scope queries.

Every loss has the same base model, steps, learning rate and rows per step: sentences for the margin
softmaxes, half as many pairs, a third as many triplets. ``simbert`` is SimBERT's objective without
its seq2seq part; for the GRU the same loss on single sentences. ``mined``: negatives that the base
model finds nearest; ``remined``: the same, mined again halfway. Finished measurements are not
repeated: an interrupted command resumes where it was; ``--show`` only prints the results so far.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.group_data import DATASETS, prepare
from benchmarks.reports import kept, load_report, same_settings, save_report, spread
from scripts import train_margin_softmax, train_simbert, train_triplet
from simbert_hf.data import load_groups
from simbert_hf.encoders.loader import load_sentence_transformer
from simbert_hf.evaluation.report import layout
from simbert_hf.gru import CharGru
from simbert_hf.mining.negatives import MiningSettings, mine_triplets, write_triplets
from simbert_hf.modeling.sentence_transformers import load_embedder
from simbert_hf.utils.atomic import put_in_place

ROWS = 96  # sentences a step
LENGTHS = {"gru": 64, "bert": 32}  # characters, tokens
RATES, BERT_STEPS = {"gru": 3e-3, "bert": 1e-4}, 50
MINING = MiningSettings(range_min=3, max_per_group=32)  # the nearest sentences may mean the same
LOG = "training.log"
START, BASE = "start", "softmax"
SHARES = ("top1", "top5", "top10", "auroc", "fpr95")  # shown in per cent, with one digit


@dataclass(frozen=True)
class Recipe:
    """Training settings of a loss.

    Attributes:
        script: Its ``main``.
        flags: What it is given.
        rows: Sentences of each of its examples.
    """

    script: Callable[[Sequence[str]], Any]
    flags: tuple[str, ...]
    rows: int


def _margin(*flags: str) -> Recipe:
    return Recipe(train_margin_softmax.main, flags, 1)


def _pairs(*flags: str) -> Recipe:
    return Recipe(train_triplet.main, flags, 2)


RECIPES = {
    BASE: _margin("--loss=softmax"),
    "am": _margin("--loss=am"),
    "simpler_a": _margin("--loss=simpler_a"),
    "arc": _margin("--loss=arc"),
    "center": _margin("--loss=softmax", "--center_weight=0.01"),
    "sdml": _pairs("--loss=sdml"),
    "in_batch": _pairs("--loss=softmax"),
    "siamese": _pairs("--loss=siamese"),
    "random": _pairs("--mining=random"),
    "hard": _pairs("--mining=hard"),
    "mined": Recipe(train_triplet.main, ("--examples=triplets",), 3),
    "remined": Recipe(train_triplet.main, ("--remine_steps={half}", "--range_min=3"), 3),
    "simbert": Recipe(train_simbert.main, ("--seq2seq_weight=0",), 2),
}
GRU_SIMBERT = _pairs("--loss=softmax", "--scale=30")
COMMON = (
    "--validation_groups=0", "--eval_strategy=no", "--save_strategy=no", "--logging_strategy=no",
    "--report_to=none", "--disable_tqdm=true", "--head_learning_rate=1e-2",
)  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One measurement: a loss (or the base model) on a data set, with an encoder and a seed."""

    dataset: str
    encoder: str
    loss: str
    steps: int
    seed: int

    @property
    def name(self) -> str:
        """Name of its file."""
        return f"{self.dataset}-{self.encoder}-{self.loss}-{self.steps}-{self.seed}"


def cells(args: argparse.Namespace) -> Iterator[Cell]:
    """Yield the measurements to make, one seed of everything first."""
    for seed, dataset, encoder in product(args.seeds, args.datasets, args.encoders):
        if encoder == "bert" and not berts(args)[dataset]:
            continue
        for loss in (START, *args.losses):
            steps = 0 if loss == START else args.gru_steps if encoder == "gru" else BERT_STEPS
            yield Cell(dataset, encoder, loss, steps, seed)


def berts(args: argparse.Namespace) -> dict[str, str | None]:
    """Return the BERT of each data set, if there is one."""
    return {name: args.bert_zh if data.chinese else args.bert for name, data in DATASETS.items()}


def start_of(cell: Cell, folder: Path, args: argparse.Namespace) -> Path:
    """Return the encoder that every loss starts from; a GRU is created."""
    if cell.encoder == "bert":
        return Path(berts(args)[cell.dataset])
    made = folder / "gru"
    if not made.exists():
        torch.manual_seed(cell.seed)
        groups, _ = load_groups(folder / "train.tsv")
        texts = [text for texts in groups["texts"] for text in texts]
        with TemporaryDirectory(dir=folder) as scratch:
            CharGru.for_texts(texts, max_length=LENGTHS["gru"]).save_pretrained(f"{scratch}/gru")
            put_in_place(Path(scratch, "gru"), made)
    return made


def mined(cell: Cell, start: Path, folder: Path) -> Path:
    """Mine triplets with the base model."""
    path = folder / f"mined-{cell.encoder}.csv"
    if not path.exists():
        groups, _ = load_groups(folder / "train.tsv")
        model = load_sentence_transformer(str(start))
        triplets = mine_triplets(groups, model, MINING, seed=cell.seed)
        write_triplets(path, triplets)
    return path


def train(cell: Cell, start: Path, folder: Path, out: Path, args: argparse.Namespace) -> None:
    """Run the loss's script."""
    recipe = RECIPES[cell.loss]
    if cell.encoder == "gru" and cell.loss == "simbert":
        recipe = GRU_SIMBERT
    flags = [flag.format(half=max(1, cell.steps // 2)) for flag in (*recipe.flags, *COMMON)]
    if cell.encoder == "gru":
        flags.append("--encoder=gru")
    elif args.bf16:
        flags.append("--bf16=true")
    file = mined(cell, start, folder) if cell.loss == "mined" else folder / "train.tsv"
    flags += [
        f"--model_name_or_path={start}", f"--train_file={file}", f"--output_dir={out}",
        f"--max_length={LENGTHS[cell.encoder]}", f"--max_steps={cell.steps}",
        f"--learning_rate={RATES[cell.encoder]}",
        f"--per_device_train_batch_size={ROWS // recipe.rows}", f"--seed={cell.seed}",
    ]  # fmt: skip
    recipe.script(flags)


def measure(cell: Cell, args: argparse.Namespace) -> dict[str, float]:
    """Return a cell's figures, measured and saved if missing; its model is not saved."""
    place = args.output / "cells" / f"{cell.name}.json"
    return kept(place, lambda: train_and_measure(cell, args))


def train_and_measure(cell: Cell, args: argparse.Namespace) -> dict[str, float]:
    """Train a cell's encoder, unless it is the base model, and measure it; log its output."""
    place = args.output / "data" / f"{cell.dataset}-{cell.seed}"
    with (
        (args.output / LOG).open("a") as log, redirect_stdout(log), redirect_stderr(log),
        TemporaryDirectory(dir=args.output) as out,
    ):  # fmt: skip
        folder = prepare(cell.dataset, args.data, place, cell.seed)
        path = start_of(cell, folder, args)
        if cell.loss != START:
            train(cell, path, folder, Path(out), args)
            path = Path(out)
        return DATASETS[cell.dataset].measure(load_embedder(path), folder)


def table(found: Mapping[Cell, dict[str, float]], dataset: str, encoder: str) -> str:
    """Lay out one data set and encoder: shares times 100, top-1 also minus softmax's, by seed."""
    figures = DATASETS[dataset].figures
    by_loss: dict[str, dict[int, dict[str, float]]] = {}
    for cell, values in found.items():
        if (cell.dataset, cell.encoder) == (dataset, encoder):
            by_loss.setdefault(cell.loss, {})[cell.seed] = values
    rows, base = [], by_loss.get(BASE, {})
    for loss, seeds in by_loss.items():
        ahead = [
            values["top1"] - base[seed]["top1"] for seed, values in seeds.items() if seed in base
        ]
        cols = [
            spread([seed[name] for seed in seeds.values()], *(1, 100) * (name in SHARES))
            for name in figures
        ]
        rows.append([loss, str(len(seeds)), *cols, spread(ahead, 1, 100) if ahead else ""])
    return layout(["loss", "seeds", *figures, f"top1 - {BASE}"], rows)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--bert", help="Base model for English; if none, only the GRU is trained.")
    parser.add_argument("--bert_zh", help="The same for Chinese.")
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=[*DATASETS])
    parser.add_argument("--encoders", nargs="+", choices=LENGTHS, default=[*LENGTHS])
    parser.add_argument("--losses", nargs="+", choices=RECIPES, default=[*RECIPES])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--gru_steps", type=int, default=300)
    parser.add_argument("--bf16", action="store_true", help="Train BERT in bfloat16.")
    parser.add_argument("--show", action="store_true", help="Only print the results so far.")
    parser.add_argument("--output", type=Path, default=Path("outputs/groups"))
    return parser.parse_args()


def main() -> None:
    """Measure what is missing; print the tables and save all figures."""
    args = parse()
    (args.output / "cells").mkdir(parents=True, exist_ok=True)
    logging.basicConfig(filename=args.output / LOG, format="%(message)s")
    given = {x: vars(args)[x] for x in ("bert", "bert_zh", "bf16") if vars(args)[x] is not None}
    same_settings(args.output, **given)
    wanted = list(cells(args))
    if args.show:
        wanted = [cell for cell in wanted if (args.output / "cells" / f"{cell.name}.json").exists()]
    found = {cell: measure(cell, args) for cell in wanted}
    for dataset, encoder in dict.fromkeys((cell.dataset, cell.encoder) for cell in found):
        print(f"\n{dataset}, {encoder}\n\n{table(found, dataset, encoder)}")
    place = args.output / "groups.json"
    earlier = load_report(place, [])
    shared = {field.name for field in fields(Cell)}
    known = {Cell(**{name: row[name] for name in shared}): row for row in earlier}
    known |= {cell: vars(cell) | values for cell, values in found.items()}
    save_report(place, list(known.values()))


if __name__ == "__main__":
    main()
