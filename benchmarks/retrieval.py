"""FAQ retrieval that may decline: quality on three FAQs, paraphrases, index timings.

python -m benchmarks.retrieval --models NAME=DIR_OR_ID ... --data DIR [--writer DIR_OR_ID]
    [--train_from DIR_OR_ID --steps 100]
python -m benchmarks.retrieval --language zh --models NAME=DIR_OR_ID ...
    [--prompts "" "query: " ...] [--train_from DIR_OR_ID --steps 100]
python -m benchmarks.retrieval --sizes 10000 100000 1000000

Quality: every training question is a row, its intent the answer; the threshold is calibrated on the
validation questions (for CLINC150 with its 100 out-of-scope ones), and measured on test. The FAQs
are CLINC150 and Banking77, or in Chinese scripts/data/shop_zh.
Paraphrases: a few questions per intent, with and without those that --writer generates.
--train_from adds models trained on the FAQs' own questions, one per objective. Timings: unit
vectors around random centres, 20 each, one query at a time on one thread.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import chain, repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import faiss
import numpy as np

from benchmarks.group_data import (
    OUT,
    banking77,
    by_class,
    clinc150,
    intents,
    shop_zh,
    write_groups,
)
from benchmarks.reports import ReportParser, load_report, save_report, spread
from scripts import train_margin_softmax, train_simbert, train_simcse
from simbert_hf.evaluation.report import layout
from simbert_hf.evaluation.suite import split_name
from simbert_hf.index import Calibration, FaissVectors, Faq, FaqIndex, Query, TextEncoder, augment
from simbert_hf.index.calibration import calibrate_scores
from simbert_hf.index.plots import plot_calibrations
from simbert_hf.index.stores import kind_for, measure_recall

TRAINED: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {  # script, flags and rows a step
    "AM-Softmax": (train_margin_softmax.main, ("--loss=am", "--per_device_train_batch_size=96")),
    "SimCSE": (train_simcse.main, ("--examples=pairs", "--per_device_train_batch_size=48")),
    "SimBERT": (train_simbert.main, ("--per_device_train_batch_size=48",)),
}
RATE, ADDED = 0.05, 5  # of false accepts; paraphrases of each question, at most


class Remembering(TextEncoder):
    """Encodes each text once."""

    def __init__(self, model: str, prompt: str = "") -> None:
        super().__init__(model, prompt=prompt)
        self.known: dict[str, np.ndarray] = {}

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Embed texts: (N, D)."""
        new = [text for text in dict.fromkeys(texts) if text not in self.known]
        if new:
            self.known.update(zip(new, super().__call__(new), strict=True))
        return np.stack([self.known[text] for text in texts])


def as_queries(splits: dict[str, list[list[str]]]) -> dict[str, list[Query]]:
    """Convert (text, intent) rows to queries; out-of-scope ones have no answer."""
    return {
        part: [Query(text, answer=None if intent == OUT else intent) for text, intent in rows]
        for part, rows in splits.items()
    }


def train_models(args: argparse.Namespace) -> list[str]:
    """Train on the FAQs' own questions; return ``NAME=folder``, made if missing."""
    found = []
    groups = intents(args.data) if args.language == "en" else by_class(shop_zh()["train"])
    with TemporaryDirectory() as folder:
        write_groups(Path(folder, "intents.tsv"), groups)
        for name, (script, flags) in TRAINED.items():
            start = Path(args.train_from).name + "-zh" * (args.language == "zh")
            output = Path("outputs/retrieval", f"{start}-{name}-{args.steps}")
            if not (output / "run.json").exists():
                script([
                    f"--model_name_or_path={args.train_from}", f"--output_dir={output}",
                    f"--train_file={folder}/intents.tsv", f"--max_steps={args.steps}",
                    "--learning_rate=1e-4", "--head_learning_rate=1e-2", "--max_length=32",
                    "--validation_groups=0", "--eval_strategy=no", "--save_strategy=no",
                    "--report_to=none", "--bf16=true", *flags,
                ])  # fmt: skip
            found.append(f"{name} on these questions={output}")
    return found


def build(encoder: TextEncoder, rows: Sequence[Faq]) -> FaqIndex:
    """Build an index with a caching encoder."""
    index = FaqIndex.build(encoder.model, rows[:1], store="flat")
    index.encoder = encoder
    if len(rows) > 1:
        index.add(rows[1:])
    return index


def top1(index: FaqIndex, queries: Sequence[Query]) -> float:
    """Compute the share of in-scope queries whose best answer is right."""
    asked = [query for query in queries if query.in_scope]
    found = index.search([query.text for query in asked], k=1)
    return statistics.mean(hits[0].answer == q.answer for hits, q in zip(found, asked, strict=True))


def judge(index: FaqIndex, queries: Sequence[Query]) -> Calibration:
    """Score test queries at the threshold chosen on dev."""
    assert index.calibration is not None
    found = index.search([query.text for query in queries], k=1)
    kinds = [
        2 if not query.in_scope else int(hits[0].answer != query.answer)
        for hits, query in zip(found, queries, strict=True)
    ]
    on_test = calibrate_scores([hits[0].score for hits in found], kinds, "false_accept_rate", RATE)
    chosen = index.calibration
    return Calibration(
        on_test.scores, on_test.kinds, chosen.target, RATE, chosen.threshold, chosen.interval
    )


def quality(args: argparse.Namespace) -> dict[str, dict]:
    """Measure every model, by the nearest question alone and by the mean of three."""
    sets = {"": shop_zh()}
    if args.language == "en":
        sets = {"clinc_": clinc150(args.data), "banking_": banking77(args.data)}
    data = {name: as_queries(splits) for name, splits in sets.items()}
    main = next(iter(data))  # has a dev split, and queries out of scope
    figures: dict[str, dict] = {}
    pictures = {}
    models = [*args.models, *(train_models(args) if args.train_from else [])]
    prompts = chain(args.prompts, repeat(""))
    for (name, path), prompt in zip(map(split_name, models), prompts, strict=False):
        encoder = Remembering(path, prompt)
        indexes = {
            name: build(encoder, [Faq(query.text, query.answer) for query in splits["train"]])
            for name, splits in data.items()
        }
        for votes in (1, 3):
            for index in indexes.values():
                index.votes = votes
            indexes[main].calibrate(data[main]["dev"], false_accept_rate=RATE)
            found = judge(indexes[main], data[main]["test"])
            label = f"{name or Path(path).name}, {votes} vote{'s' * (votes > 1)}"
            rates = found.rates
            figures[label] = {
                **{f"{name}top1": top1(indexes[name], data[name]["test"]) for name in data},
                "auroc": found.auroc,
                "threshold": found.threshold,
                "answered": rates.answered.value,
                "correct": rates.correct.value,
                "correct_interval": [rates.correct.low, rates.correct.high],
                "false_accepts": rates.false_accepts.value,
                "false_accepts_interval": [rates.false_accepts.low, rates.false_accepts.high],
            }
            if votes == 1:
                pictures[label] = found
            print(label, figures[label], flush=True)
    plot_calibrations(pictures, args.output.with_suffix(".png"))
    return figures


def print_quality(figures: dict[str, dict]) -> None:
    """Print one row per model."""
    first = next(iter(figures.values()))
    names = [name for name, value in first.items() if isinstance(value, float)]
    rows = [[label, *(f"{100 * v[name]:.1f}" for name in names)] for label, v in figures.items()]
    print(layout(["model", *names], rows))


def paraphrases(args: argparse.Namespace) -> dict[str, dict]:
    """Measure top-1 with few questions per intent, with and without paraphrases of them."""
    encoder = Remembering(args.writer)
    found: dict[str, dict] = {}
    for name, read in (("CLINC150", clinc150), ("Banking77", banking77)):
        data = as_queries(read(args.data))
        by_intent = by_class((query, query.answer) for query in data["train"])
        runs: dict[int, list[tuple[float, float]]] = {count: [] for count in args.counts}
        for seed in range(args.seeds):
            rng = np.random.default_rng(seed)
            chosen = [rng.permutation(np.array(some, dtype=object)) for some in by_intent]
            most = [query for some in chosen for query in some[: max(args.counts)]]
            rows = augment([Faq(q.text, q.answer) for q in most], args.writer, k=ADDED)
            for count in args.counts:
                few = {query.text for some in chosen for query in some[:count]}
                real = [row for row in rows if row.question in few and not row.metadata]
                made = [row for row in rows if row.metadata.get("paraphrase_of") in few]
                pair = [top1(build(encoder, r), data["test"]) for r in (real, real + made)]
                runs[count].append((pair[0], pair[1]))
                print(name, seed, count, len(real), len(made), pair, flush=True)
        found[name] = {str(count): pairs for count, pairs in runs.items()}
    return found


def print_paraphrases(found: dict[str, dict]) -> None:
    """Print means over the seeds, and the spread of the gain."""
    rows = []
    for name, runs in found.items():
        for count, pairs in runs.items():
            gains = [100 * (after - before) for before, after in pairs]
            means = [f"{100 * statistics.mean(side):.2f}" for side in zip(*pairs, strict=True)]
            rows.append([name, count, *means, spread(gains)])
    print(layout(["data", "questions", "real alone", "with paraphrases", "gain"], rows))


def clustered(count: int, centres: np.ndarray, seed: int) -> np.ndarray:
    """Draw unit vectors around centres, cosine .6 between two of one: float32, (count, D)."""
    rng = np.random.default_rng(seed)
    vectors = centres[rng.integers(len(centres), size=count)]
    vectors += 0.8 * rng.standard_normal(vectors.shape, dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def time_store(kind: str, vectors: np.ndarray, queries: np.ndarray) -> dict[str, float]:
    """Build, search one by one, and save."""
    store = FaissVectors(kind)
    begun = time.perf_counter()
    store.add(vectors)
    build_seconds = time.perf_counter() - begun
    times = []
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    for query in queries:
        begun = time.perf_counter()
        store.search(query[None], 10)
        times.append(time.perf_counter() - begun)
    faiss.omp_set_num_threads(threads)
    with TemporaryDirectory() as folder:
        store.save(Path(folder))
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
    return {
        "build_s": round(build_seconds, 2),
        "ms": round(1e3 * statistics.median(times), 3),
        "recall_at_10": round(measure_recall(store, vectors, 10, 100), 4),
        "MB": round(size / 1e6, 1),
    }


def timings(args: argparse.Namespace) -> dict[str, dict]:
    """Time each size's own kind against the flat scan."""
    found: dict[str, dict] = {}
    for size in args.sizes:
        rng = np.random.default_rng(0)
        centres = rng.standard_normal((size // 20, 384), dtype=np.float32)
        vectors, queries = clustered(size, centres, 1), clustered(args.queries, centres, 2)
        for kind in dict.fromkeys(["flat", *(args.kinds or [kind_for(size)])]):
            found[f"{size:,} {kind}"] = time_store(kind, vectors, queries)
            print(f"{size:,} {kind}", found[f"{size:,} {kind}"], flush=True)
    return found


def print_timings(found: dict[str, dict]) -> None:
    """Print one row per store."""
    rows = [[name, *(f"{value:,}" for value in values.values())] for name, values in found.items()]
    print(layout(["vectors", "build, s", "ms a query", "recall@10", "MB on disk"], rows))


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = ReportParser(__doc__, "retrieval", "language")
    parser.add_argument("--models", nargs="*", default=[], help="[NAME=]directories or Hub ids.")
    parser.add_argument("--prompts", nargs="*", default=[], help="Put before the models' texts.")
    parser.add_argument("--language", choices=("en", "zh"), default="en", help="Of the FAQs.")
    parser.add_argument("--train_from", help="Base model to train on the FAQs' questions.")
    parser.add_argument("--steps", type=int, default=100, help="Steps of that training.")
    parser.add_argument("--writer", help="A SimBert that generates and embeds paraphrases.")
    parser.add_argument("--data", type=Path, help="Folder that contains banking77/.")
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 3, 5], help="Real questions.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="*", default=[], help="Vectors to time.")
    parser.add_argument("--kinds", nargs="*", help="What to time; the size's own if not given.")
    parser.add_argument("--queries", type=int, default=50)
    args = parser.parse_args()
    if args.train_from and not args.models:
        parser.error("--train_from adds to --models")
    if args.language == "zh" and (args.writer or args.sizes):
        parser.error("--writer and --sizes are for --language en")
    if ((args.models and args.language == "en") or args.writer) and not args.data:
        parser.error("--models and --writer need --data")
    return args


def main() -> None:
    """Run the requested measurements, print Markdown tables, write JSON and a plot."""
    args = parse()
    report = load_report(args.output, {})
    report |= {"machine": platform.machine(), "faiss": faiss.__version__}
    for wanted, key, measure, show in (
        (args.models, "quality", quality, print_quality),
        (args.writer, "paraphrases", paraphrases, print_paraphrases),
        (args.sizes, "timings", timings, print_timings),
    ):
        if wanted:
            report[key] = report.get(key, {}) | measure(args)
            show(report[key])
            save_report(args.output, report)


if __name__ == "__main__":
    main()
