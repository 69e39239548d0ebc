"""Public groups of sentences for ``benchmarks.groups``, to train and to measure on.

Every set becomes a folder per seed, with ``train.tsv`` and the files that its measure reads.
"""

from __future__ import annotations

import csv
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from simbert_hf.data import load_groups, split_groups
from simbert_hf.evaluation.evaluators import RetrievalEvaluator
from simbert_hf.utils.atomic import put_in_place, scratch

Groups = list[list[str]]

SHIPPED = Path(__file__).parent.parent / "scripts" / "data"
TATOEBA = SHIPPED / "tatoeba_en" / "pairs.jsonl.gz"
OUT = "oos"  # CLINC150's name for out of scope
HELD_OUT = 5  # one group of so many
RECALL = 0.95  # share of the questions in scope that an FAQ is to answer


def find_all(data: Path, pattern: str) -> list[Path]:
    """Find files by the ends of their paths below a folder, otherwise among the shipped ones."""
    found = sorted(data.rglob(pattern)) or sorted(SHIPPED.rglob(pattern))
    if not found:
        sys.exit(f"There is no {pattern} below {data}; see benchmarks/README.md.")
    return found


def find(data: Path, name: str) -> Path:
    """Find one file in the same way."""
    return find_all(data, name)[0]


def read_splits(data: Path, name: str, parts: Sequence[str]) -> dict[str, list[list[str]]]:
    """Read CSV files with a header: split -> (text, intent) rows."""
    found = {}
    for part in parts:
        with find(data, f"{name}/{part}.csv").open(encoding="utf-8", newline="") as file:
            _, *found[part] = csv.reader(file)
    return found


def clinc150(data: Path) -> dict[str, list[list[str]]]:
    """Read CLINC150, by default the shipped one; dev and test also hold `oos`."""
    return read_splits(data, "clinc150", ("train", "dev", "test"))


def banking77(data: Path) -> dict[str, list[list[str]]]:
    """Read Banking77."""
    return read_splits(data, "banking77", ("train", "test"))


def shop_zh() -> dict[str, list[list[str]]]:
    """Read the FAQ of a Chinese shop; dev and test also hold `oos`."""
    splits = read_splits(SHIPPED, "shop_zh", ("faq", "dev", "test"))
    return {
        "train" if part == "faq" else part: [[text, group or OUT] for text, *_, group in rows]
        for part, rows in splits.items()
    }


def by_class(rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    """Put together what has the same class: (anything, class) rows."""
    classes: dict[Any, list[Any]] = {}
    for one, label in rows:
        classes.setdefault(label, []).append(one)
    return list(classes.values())


def intents(data: Path) -> Groups:
    """Return the training sentences of CLINC150's 150 intents and Banking77's 77."""
    return by_class(clinc150(data)["train"]) + by_class(banking77(data)["train"])


def components(path: Path, least: int) -> Groups:
    """Return the connected components of pairs with at least so many sentences."""
    found: dict[int, dict[str, None]] = {}
    for row in load_groups(path)[0]:
        found.setdefault(row["group"], {}).update(dict.fromkeys(row["texts"]))
    return [list(texts) for texts in found.values() if len(texts) >= least]


def qqp(data: Path, folder: Path) -> Groups:
    """Quora's duplicate questions: three or more that are duplicates directly or through others."""
    pairs = folder / "pairs.jsonl"
    with pairs.open("w", encoding="utf-8") as file:
        for part in ("train", "test"):
            sides = [find(data, f"qqp_pos50k/{part}{i}.txt") for i in ("", "_2")]
            texts = (path.read_text("utf-8").splitlines() for path in sides)
            for first, second in zip(*texts, strict=True):
                file.write(json.dumps({"sentence1": first, "sentence2": second}) + "\n")
    return components(pairs, 3)


def write_groups(path: Path, groups: Groups) -> None:
    """Write groups as ``number TAB sentence``."""
    lines = [f"{i}\t{' '.join(t.split())}\n" for i, texts in enumerate(groups) for t in texts]
    path.write_text("".join(lines), encoding="utf-8")


def write_split(folder: Path, groups: Groups, seed: int) -> None:
    """Hold out a fifth of the groups, so that no sentence is on both sides."""
    write_groups(folder / "all.tsv", groups)
    rows, _ = load_groups(folder / "all.tsv", cache_dir=folder / "cache")
    for name, part in zip(
        ("train", "held_out"), split_groups(rows, len(rows) // HELD_OUT, seed), strict=True
    ):
        write_groups(folder / f"{name}.tsv", part["texts"][:])
    shutil.rmtree(folder / "cache")


def make_faq(data: Path, folder: Path, seed: int) -> None:
    """Make an FAQ of CLINC150's training sentences, all trained on, and of its test queries."""
    splits = clinc150(data)
    write_groups(folder / "train.tsv", by_class(splits["train"]))
    rows = {
        "train": splits["train"],
        "test": [row for row in splits["test"] if row[1] != OUT],
        "oos_test": [row for row in splits["test"] if row[1] == OUT],
    }
    (folder / "faq.json").write_text(json.dumps(rows), encoding="utf-8")


def find_group_mates(model: Any, folder: Path) -> dict[str, float]:
    """Let each held-out sentence rank all the others: top-1/5/10, and the vectors' spread."""
    return RetrievalEvaluator(load_groups(folder / "held_out.tsv")[0])(model)


def answer(model: Any, folder: Path) -> dict[str, float]:
    """Answer by the nearest sentence of the FAQ; its cosine detects out-of-scope queries.

    Returns:
        ``top1``: share of the queries in scope with the right intent; ``auroc`` of the best cosine,
        in scope against out of scope; ``fpr95``: share of the queries out of scope that get an
        answer at the threshold where 95 % of those in scope do.
    """
    rows = json.loads((folder / "faq.json").read_text("utf-8"))
    texts = {name: model.encode([text for text, _ in split]) for name, split in rows.items()}
    known, asked = (np.array([label for _, label in rows[name]]) for name in ("train", "test"))
    scores = texts["test"] @ texts["train"].T
    inside, outside = scores.max(axis=1), (texts["oos_test"] @ texts["train"].T).max(axis=1)
    is_inside = np.repeat([True, False], [len(inside), len(outside)])
    return {
        "top1": float((known[scores.argmax(axis=1)] == asked).mean()),
        "auroc": float(roc_auc_score(is_inside, np.concatenate([inside, outside]))),
        "fpr95": float((outside >= np.quantile(inside, 1 - RECALL)).mean()),
    }


@dataclass(frozen=True)
class GroupData:
    """A set of groups.

    Attributes:
        make: ``(data, folder, seed)`` writes ``train.tsv`` and what is measured on.
        chinese: Whether a BERT for Chinese is needed.
        measure: ``(model, folder)`` gives named figures.
        figures: Those in the table.
    """

    make: Callable[[Path, Path, int], None]
    chinese: bool = False
    measure: Callable[[Any, Path], dict[str, float]] = find_group_mates
    figures: tuple[str, ...] = ("top1", "top5", "top10", "mean_cosine", "effective_rank")


DATASETS = {
    "intents": GroupData(lambda data, folder, seed: write_split(folder, intents(data), seed)),
    "qqp": GroupData(lambda data, folder, seed: write_split(folder, qqp(data, folder), seed)),
    "zh": GroupData(
        lambda data, folder, seed: write_split(
            folder, components(find(data, "data_similarity.json"), 2), seed
        ),
        chinese=True,
    ),
    "faq": GroupData(make_faq, measure=answer, figures=("top1", "auroc", "fpr95")),
}


def prepare(name: str, data: Path, folder: Path, seed: int) -> Path:
    """Make a data set's folder, which appears only when it is complete."""
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with scratch(folder.with_name(f"{folder.name}.part")) as part:
            DATASETS[name].make(data, part, seed)
            put_in_place(part, folder)
    return folder
