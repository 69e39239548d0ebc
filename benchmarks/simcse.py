"""Unsupervised SimCSE: this package and sentence-transformers' own recipe, in one run.

Theirs is MultipleNegativesRankingLoss on every sentence twice, or with ``--cached`` its cached form
(GradCache), compared with ours at as many rows per forward pass. Model, sentences, batch size,
optimiser, seed and number of steps are the same. The trainers take turns in blocks of steps, each
of which continues from its model's state with a new optimiser, so that a busy machine slows both
equally; CPU time excludes other work altogether.

python -m benchmarks.simcse --model DIR_OR_ID [--sentences text.txt] [--sts dev.csv] \
    [--batch 64] [--cached 0] [--steps 30] [--blocks 4] [--seeds 0]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import sentence_transformers
import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MultipleNegativesRankingLoss,
)
from transformers import TrainerCallback

from benchmarks.group_data import TATOEBA
from benchmarks.reports import DEVICE, ReportParser, clock, environment, markdown, save_report
from simbert_hf import SimBert
from simbert_hf.arguments import SimilarityTrainingArguments
from simbert_hf.collators import SimCseCollator
from simbert_hf.data import FixedPairs, load_groups, load_scored_pairs, load_sentences
from simbert_hf.evaluation.evaluators import SPEARMAN, StsEvaluator
from simbert_hf.objectives import SimCseObjective
from simbert_hf.trainer import SimilarityTrainer

SCALE, MAX_LENGTH = 20.0, 32
PEER = "sentence-transformers"


class Clock(TrainerCallback):
    """Times the steps after the first, with the loading of their batches."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Record the ends of the first and the last step, in wall time and in CPU time."""
        self.end = clock(DEVICE), time.process_time()
        if state.global_step == 1:
            self.start = self.end

    def rates(self, steps: int) -> tuple[float, float]:
        """Return how many of ``steps`` steps were made per second, and per second of CPU time."""
        seconds, worked = (b - a for a, b in zip(self.start, self.end, strict=True))
        return (steps - 1) / seconds, (steps - 1) / worked


def ours(
    model_name: str, window: int, compiled: bool, cached: int
) -> tuple[SimBert, Callable[..., tuple[float, float]]]:
    """Return this package's model and training block."""
    model = SimBert.from_pretrained(model_name)
    model.freeze_idle()
    assert model.tokenizer is not None
    model.tokenizer.model_max_length = MAX_LENGTH

    def block(sentences: Sequence[str], options: dict[str, Any]) -> tuple[float, float]:
        watch = Clock()
        args = SimilarityTrainingArguments(
            **options,
            length_window=window,
            eval_strategy="no",
            torch_compile=compiled,
            gradcache_batch_size=cached,
        )
        SimilarityTrainer(
            model=model,
            args=args,
            objective=SimCseObjective(scale=SCALE, symmetric=False, mask_false_negatives=False),
            train_dataset=FixedPairs({"source": sentences, "target": sentences}),
            data_collator=SimCseCollator(model.rows, max_length=MAX_LENGTH),
            callbacks=[watch],
        ).train()
        return watch.rates(args.max_steps)

    return model, block


def theirs(
    model_name: str, cached: int
) -> tuple[SentenceTransformer, Callable[..., tuple[float, float]]]:
    """Return sentence-transformers' model, the same one by our export, and training block."""
    with tempfile.TemporaryDirectory() as folder:
        SimBert.from_pretrained(model_name).save_pretrained(folder)
        model = SentenceTransformer(folder)
    model.max_seq_length = MAX_LENGTH
    loss = (
        CachedMultipleNegativesRankingLoss(model, scale=SCALE, mini_batch_size=cached)
        if cached
        else MultipleNegativesRankingLoss(model, scale=SCALE)
    )

    def block(sentences: Sequence[str], options: dict[str, Any]) -> tuple[float, float]:
        watch = Clock()
        SentenceTransformerTrainer(
            model=model,
            args=SentenceTransformerTrainingArguments(**options, eval_strategy="no"),
            train_dataset=Dataset.from_dict({"anchor": sentences, "positive": sentences}),
            loss=loss,
            callbacks=[watch],
        ).train()
        return watch.rates(options["max_steps"])

    return model, block


def main() -> None:
    """Measure, print a Markdown table, write JSON."""
    args = parse_arguments()
    sentences = load_sentences(args.sentences) if args.sentences else tatoeba()
    due = args.blocks * args.batch * args.steps * len(args.seeds)
    if len(sentences) < due:
        raise SystemExit(f"{due} sentences are needed, but there are {len(sentences)}.")
    sts = load_scored_pairs(args.sts) if args.sts else []
    rates: dict[str, list[tuple[float, float]]] = {}
    figures: dict[str, list[tuple[float, float]]] = {}
    for number, seed in enumerate(args.seeds):
        part = sentences[number :: len(args.seeds)]
        train_in_turns(args, seed, part, sts, rates, figures)
    report(args, rates, figures)


def train_in_turns(
    args: argparse.Namespace,
    seed: int,
    sentences: Sequence[str],
    sts: Sequence[Any],
    rates: dict[str, list[tuple[float, float]]],
    figures: dict[str, list[tuple[float, float]]],
) -> None:
    """Train every variant from the base model; add blocks' rates, and Spearman before and after."""
    variants = {
        PEER: theirs(args.model, args.cached),
        "simbert_hf": ours(args.model, 1, args.compile, args.cached),
        "simbert_hf, like lengths together": ours(args.model, 50, args.compile, args.cached),
    }
    measure = StsEvaluator(sts) if sts else None
    before = {n: measure(model)[SPEARMAN] for n, (model, _) in variants.items() if measure}
    size = args.batch * args.steps
    with tempfile.TemporaryDirectory() as folder:
        options = trainer_options(args, folder) | {"seed": seed}
        for i in range(args.blocks):
            part = sentences[i * size : (i + 1) * size]
            for name in list(variants)[:: 1 if i % 2 else -1]:  # nobody always comes first
                rates.setdefault(name, []).append(variants[name][1](part, options))
    for name, value in before.items():
        figures.setdefault(name, []).append((value, measure(variants[name][0])[SPEARMAN]))


def tatoeba() -> list[str]:
    """Take a sentence of each group of the Tatoeba pairs."""
    return [texts[0] for texts in load_groups(TATOEBA)[0]["texts"]]


def median_ratios(
    values: list[tuple[float, float]], peers: list[tuple[float, float]]
) -> tuple[float, ...]:
    """Return the median over the blocks of the ratio by wall time, and by CPU time."""
    blocks = zip(values, peers, strict=True)
    return tuple(
        statistics.median(column)
        for column in zip(*((a / c, b / d) for (a, b), (c, d) in blocks), strict=True)
    )


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = ReportParser(__doc__, "simcse", "cached")
    parser.add_argument("--model", required=True)
    parser.add_argument("--sentences", help="Sentences, one per line; default: Tatoeba's.")
    parser.add_argument("--sts", help="Scored pairs; Spearman before and after.")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--batch", type=int, default=64, help="Sentences; each makes two rows.")
    parser.add_argument("--cached", type=int, default=0, help="GradCache: rows per pass.")
    parser.add_argument("--steps", type=int, default=30, help="Steps per block.")
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--learning_rate", type=float, default=3e-5)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--compile", action="store_true", help="torch.compile, for ours.")
    return parser.parse_args()


def trainer_options(args: argparse.Namespace, folder: str) -> dict[str, Any]:
    """Return the arguments of both trainers."""
    return {
        "output_dir": folder,
        "per_device_train_batch_size": args.batch,
        "max_steps": args.steps,
        "learning_rate": args.learning_rate,
        "lr_scheduler_type": "constant",
        "warmup_steps": 0,
        "weight_decay": 0.0,
        "bf16": args.bf16,
        "use_cpu": not torch.accelerator.is_available(),
        "dataloader_drop_last": True,
        "logging_steps": args.steps,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }


def report(
    args: argparse.Namespace,
    rates: dict[str, list[tuple[float, float]]],
    figures: dict[str, list[tuple[float, float]]],
) -> None:
    """Print a Markdown table, and write everything as JSON."""
    ratios = {name: median_ratios(values, rates[PEER]) for name, values in rates.items()}
    rows = [
        {
            "program": name,
            "steps/s": statistics.median(wall for wall, _ in values),
            "ratio": ratios[name][0],
            "ratio in CPU time": ratios[name][1],
            "STS Spearman by seed": ", ".join(
                f"{100 * a:.2f} -> {100 * b:.2f}" for a, b in figures.get(name, [])
            ),
        }
        for name, values in rates.items()
    ]
    print(markdown(rows))
    settings = {key: value for key, value in vars(args).items() if key != "output"}
    settings["model"] = Path(args.model).name
    settings |= {key: settings[key] and Path(settings[key]).name for key in ("sentences", "sts")}
    content = {
        "steps_per_second_by_wall_and_cpu": rates, "ratio_by_wall_and_cpu": ratios,
        "sts_spearman": figures, "settings": settings,
        "sentence_transformers": sentence_transformers.__version__,
    }  # fmt: skip
    save_report(args.output, content | environment(DEVICE))


if __name__ == "__main__":
    main()
