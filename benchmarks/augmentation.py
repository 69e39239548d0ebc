"""Do paraphrases of the few examples of each intent improve a classifier?

python -m benchmarks.augmentation --models all-MiniLM-L6-v2=DIR simbert-minilm-en=DIR
    [--tuned all-MiniLM-L6-v2=DIR] [--data clinc150 --writers n=20]

k training utterances of each intent are drawn. Logistic regression on TF-IDF of words and letters,
and on frozen vectors, tells the intents of the test utterances, with and without what is added:
copies, random changes of words (EDA, Wei & Zou 2019, without WordNet), paraphrases, or as many
further real ones, of which there are twenty. Encoders after --tuned are first trained by SimCSE on
the same utterances. A rerun skips what it finds beside --output.
"""

from __future__ import annotations

import argparse
import csv
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer

from benchmarks import reports
from benchmarks.group_data import OUT, SHIPPED, by_class, clinc150
from benchmarks.retrieval import Remembering
from simbert_hf import DEFAULT_MODEL, SentenceEncoder, SimBert
from simbert_hf.collators import SimCseCollator
from simbert_hf.data.noising import WORDS, Augmentation
from simbert_hf.evaluation.bootstrap import Bootstrap, Figure
from simbert_hf.evaluation.report import layout
from simbert_hf.evaluation.suite import split_name
from simbert_hf.generation.diversity import choose_diverse
from simbert_hf.objectives import SimCseObjective

Example = tuple[str, str]  # an utterance and its intent
Written = dict[str, list[list]]  # a text's paraphrases, each with its score and cosine
Add = Callable[[str], Sequence[str]]

COUNTS, ADDED, MOST, NEAR, REAL = (1, 3, 10), 5, 20, 0.9, "further real ones"
STEPS, LEARNING_RATE = 50, 3e-5  # by hand: 1e-4 is worse on the part of CLINC150
WORDS_AND_LETTERS = (
    TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"\w+"),
    TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5)),
)
WRITERS: dict[str, dict[str, Any]] = {
    "n=20": {"n": 20},
    "n=20, copying=0": {"n": 20, "copying": 0},
    "n=20, sampled": {"n": 20, "strategy": "sample", "seed": 0},
}


def read(name: str) -> dict[str, list[Example]]:
    """Read the front desks' utterances, or 20 and 15 of each of 20 intents of CLINC150."""
    if name == "front_desk_en":
        with (SHIPPED / name / "utterances.csv").open(encoding="utf-8", newline="") as file:
            rows = [*csv.reader(file)]
        return {part: [(t, own) for t, own, x in rows if x == part] for part in ("train", "test")}
    splits, rng = clinc150(SHIPPED), random.Random(0)
    some = rng.sample(sorted({own for _, own in splits["train"]} - {OUT}), 20)

    def few(part: str, size: int) -> list[Example]:
        groups = ([(t, own) for t, own in splits[part] if own == intent] for intent in some)
        return [one for group in groups for one in rng.sample(group, size)]

    return {"train": few("train", 20), "test": few("test", 15)}


def draw(train: Sequence[Example], seed: int) -> list[list[Example]]:
    """Shuffle the utterances of each intent: the first k are the few, those behind are further."""
    rng, groups = random.Random(seed), by_class((one, one[1]) for one in train)
    return [rng.sample(group, len(group)) for group in groups]


def examples(drawn: Sequence[Sequence[Example]], k: int, add: Add | None) -> list[Example]:
    """Take k examples of each intent and what is added for each; None adds further real ones."""
    if add is None:
        return [one for group in drawn for one in group[: k + ADDED * k]]
    few = [one for group in drawn for one in group[:k]]
    return few + [(other, intent) for text, intent in few for other in add(text)]


def write(texts: Sequence[str], place: Path, options: dict[str, Any]) -> Written:
    """Paraphrase texts; those that the file has are not written again."""
    found: Written = reports.load_report(place, {})
    new = [text for text in texts if text not in found]
    model = SimBert.from_pretrained(DEFAULT_MODEL) if new else None
    for block in (new[start : start + 20] for start in range(0, len(new), 20)):
        written = model.gen_synonyms(block, k=MOST, return_scores=True, **options)
        for text, some in zip(block, written, strict=True):
            found[text] = [[p.text, round(p.score, 4), round(p.similarity, 4)] for p in some]
        reports.save_report(place, found)
        print(place.stem, len(found), flush=True)
    return found


def best(written: Written, text: str, k: int, diversity: float = 0.2, least: float = -1) -> list:
    """Choose of a text's paraphrases nearly as ``gen_synonyms`` does."""
    some = [one for one in written[text] if one[2] >= least]
    chosen = choose_diverse([one[0] for one in some], [one[1] for one in some], k, diversity)
    return [some[i][0] for i in chosen]


def changed(text: str, count: int) -> list[str]:
    """Delete words of a text at random or swap two: different results, fewer for short texts."""
    rng, found = random.Random(text), dict[str, None]()
    for _ in range(10 * count):
        words = [word.strip() for word in WORDS.findall(text)]
        i, j = rng.choices(range(len(words)), k=2)
        words[i], words[j] = words[j], words[i]
        found[rng.choice([" ".join(words), Augmentation("delete", 0.1)(text, rng)])] = None
    return [other for other in found if other != text][:count]


def compared(written: dict[str, Written]) -> dict[str, Add | None]:
    """List what is added for each example to train an encoder, too."""
    return {
        "nothing": lambda text: [],
        f"{ADDED} random changes": partial(changed, count=ADDED),
        f"{ADDED} paraphrases, n=20": partial(best, written["n=20"], k=ADDED),
        REAL: None,
    }


def additions(written: dict[str, Written]) -> dict[str, Add | None]:
    """List what else may be added for each example."""
    usual = partial(best, written["n=20"])
    return {
        f"{ADDED} copies": lambda text: [text] * ADDED,
        "1 paraphrase, n=20": partial(usual, k=1),
        **{f"{ADDED} paraphrases, {x}": partial(best, written[x], k=ADDED) for x in written},
        f"{ADDED} paraphrases, n=20, diversity=0": partial(usual, k=ADDED, diversity=0),
        f"{ADDED} paraphrases, n=20, diversity=1": partial(usual, k=ADDED, diversity=1),
        f"{ADDED} paraphrases, n=20, min_similarity={NEAR}": partial(usual, k=ADDED, least=NEAR),
        "10 paraphrases, n=20": partial(usual, k=10),
    }


def fitted(features: Any, train: Sequence[Example], test: Sequence[str]) -> np.ndarray:
    """Tell the intents of texts by logistic regression."""
    texts, intents = zip(*train, strict=True)
    model = make_pipeline(features, LogisticRegression(C=10, max_iter=1000))
    return model.fit(texts, intents).predict(test)


class Tuned(TransformerMixin, BaseEstimator):
    """Vectors of an encoder that is trained anew on the texts that it is fitted to.

    At every step, two texts of each intent are to be near each other, and far from all others'; the
    only text of an intent stands for both, seen with two dropouts.
    """

    def __init__(self, start: str) -> None:
        self.start = start

    def fit(self, texts: Sequence[str], intents: Sequence[str]) -> Tuned:
        """Train the encoder."""
        torch.manual_seed(0)
        rng = random.Random(0)
        groups = by_class(zip(texts, intents, strict=True))
        self.model = SentenceEncoder.from_pretrained(self.start).train()
        collator, objective = SimCseCollator(self.model.rows), SimCseObjective()
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE)
        for step in range(STEPS):
            two = [rng.sample(group, 2) if len(group) > 1 else group * 2 for group in groups]
            batch = collator(
                [
                    {"source": source, "target": target, "group": i, "seed": step}
                    for i, (source, target) in enumerate(two)
                ]
            )
            objective(self.model, batch).total.backward()
            optimizer.step()
            optimizer.zero_grad()
        return self

    def transform(self, texts: Sequence[str]) -> np.ndarray:
        """Embed texts: (N, D)."""
        return self.model.encode(list(texts))


def accuracy(right: np.ndarray) -> Figure:
    """Resample draws and utterances: (D, N) of 0 and 1 -> their mean in per cent."""
    draws, utterances = (
        np.concatenate([*Bootstrap().counts(name, n)]) / n
        for name, n in zip(("draws", "utterances"), right.shape, strict=True)
    )
    return Figure(100 * float(right.mean()), 100 * ((draws @ right) * utterances).sum(axis=1))


def drifted(train: Sequence[Example], written: Written, features: Any) -> dict[str, float]:
    """Fit to half the utterances; count the others, and the paraphrases of those told rightly.

    Returns:
        Per cent told wrongly, in ten draws: of the others, and of the paraphrases by their cosine.
    """
    wrong: dict[str, list[bool]] = {}
    for groups in (draw(train, seed) for seed in range(10)):
        known, others = ([one for group in groups for one in group[i::2]] for i in (0, 1))
        faults = fitted(features, known, [text for text, _ in others]) != [x for _, x in others]
        wrong.setdefault("utterances", []).extend(faults)
        fine = [one for one, fault in zip(others, faults, strict=True) if not fault]
        asked = [(*one, intent) for text, intent in fine for one in written.get(text, [])[:ADDED]]
        told = fitted(features, known, [row[0] for row in asked])
        for (_, _, cosine, intent), own in zip(asked, told, strict=True):
            for name in ("paraphrases", f"cosine {'below' if cosine < NEAR else 'from'} {NEAR}"):
                wrong.setdefault(name, []).append(own != intent)
    return {name: 100 * float(np.mean(some)) for name, some in wrong.items()}


def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Compare all that may be added with nothing, for each classifier and k; print tables."""
    data, report = read(args.data), dict[str, Any]()
    texts, intents = zip(*data["test"], strict=True)
    drawn = [draw(data["train"], seed) for seed in range(args.draws)]
    few = (examples(some, max(args.counts), lambda text: []) for some in drawn)
    shots = sorted({text for some in few for text, _ in some})
    written = {name: write(shots, folder / f"{name}.json", WRITERS[name]) for name in args.writers}
    features: dict[str, Any] = {"TF-IDF": make_union(*WORDS_AND_LETTERS)}
    for name, path in map(split_name, args.models):
        features[name or path] = FunctionTransformer(Remembering(path))
    for name, path in map(split_name, args.tuned):
        features[f"{name or path}, trained"] = Tuned(path)

    def work(kind: Any, k: int, add: Add | None) -> dict[str, Any]:
        told = [fitted(kind, examples(some, k, add), texts) for some in drawn]
        return {"right": np.array([own == intents for own in told], int).tolist()}

    for name, kind in features.items():
        rows, found = compared(written), dict[str, Any]()
        if not isinstance(kind, Tuned):  # which takes long
            found["told wrongly"] = drifted(data["train"], written["n=20"], kind)
            rows |= additions(written)
        table = [[row] for row in rows]
        for k in args.counts:
            figures = {}
            for row, add in rows.items():
                place = folder / f"{name}, k={k}, {row}, {args.draws} draws.json"
                part = reports.kept(place, partial(work, kind, k, add))
                figures[row] = {"accuracy": accuracy(np.array(part["right"]))}
            found[f"k={k}"] = reports.tested(figures)
            for line in table:
                one = found[f"k={k}"][line[0]]["accuracy"]
                interval = one.get("difference_interval")
                text = " [{:+.1f}, {:+.1f}]".format(*interval) if interval else ""
                line.append(f"{one['value']:.1f}{text}")
        print(layout([name, *(f"k={k}" for k in args.counts)], table, left=[0]))
        report[name] = found
    return report


def main() -> None:
    """Write, classify, print and save the figures."""
    parser = reports.ReportParser(__doc__, "augmentation")
    parser.add_argument("--data", choices=("front_desk_en", "clinc150"), default="front_desk_en")
    parser.add_argument("--models", nargs="*", default=[], help="frozen encoders: NAME=DIR_OR_ID")
    parser.add_argument("--tuned", nargs="*", default=[], help="encoders to train: NAME=DIR_OR_ID")
    parser.add_argument("--writers", nargs="+", choices=WRITERS, default=[*WRITERS])
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS, help="real examples")
    parser.add_argument("--draws", type=int, default=12)
    args = parser.parse_args()
    found = measure(args, args.output.with_suffix("") / args.data)
    report = reports.load_report(args.output, reports.environment(reports.DEVICE))
    reports.save_report(args.output, report | {f"{args.data}, {args.draws} draws": found})


if __name__ == "__main__":
    main()
