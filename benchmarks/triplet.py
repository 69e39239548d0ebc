"""Random and mined negatives: does the encoder collapse, and how well does it retrieve?

python -m benchmarks.triplet --model DIR_OR_ID --data intents.csv [--steps 100] [--seeds 0 1 2]

From one base model, with the same held-out groups and number of steps: random negatives, the
hardest and the semi-hard ones of the batch, negatives mined beforehand by the base model (anchored
or not), SDML, and the in-batch softmax. Measured on the held-out groups: mean cosine of two
sentences, effective rank, top-1.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.group_data import by_class, write_groups
from benchmarks.reports import DEVICE, ReportParser, environment, save_report, spread
from scripts.train_triplet import main as train
from simbert_hf.data import load_groups, split_groups
from simbert_hf.encoders.loader import load_sentence_transformer
from simbert_hf.evaluation.evaluators import RetrievalEvaluator
from simbert_hf.evaluation.report import layout
from simbert_hf.mining.negatives import MiningSettings, mine_triplets, write_triplets
from simbert_hf.modeling.encoder import load_encoder

VARIANTS = {
    "random negatives": ["--mining=random"],
    "hard in the batch": ["--mining=hard"],
    "semi-hard in the batch": ["--mining=semi_hard"],
    "mined beforehand": ["--examples=triplets"],
    "mined, unanchored": ["--examples=triplets", "--loss=unanchored"],
    "SDML": ["--loss=sdml"],
    "softmax": ["--loss=softmax"],
}
FIGURES = ("mean_cosine", "effective_rank", "top1")
BATCH = 16  # groups of two, or triplets


def prepare(folder: Path, args: argparse.Namespace, seed: int) -> dict[str, float]:
    """Hold out groups, mine the others with the base model, and measure the base model."""
    groups, _ = load_groups(args.data)
    kept, held_out = split_groups(groups, args.held_out, seed)
    for name, part in (("train", kept), ("held_out", held_out)):
        texts = ((text, row["group"]) for row in part for text in row["texts"])
        write_groups(folder / f"{name}.tsv", by_class(texts))
    model = load_sentence_transformer(args.model)
    triplets = mine_triplets(kept, model, MiningSettings(), seed=seed)
    write_triplets(folder / "mined.csv", triplets)
    return RetrievalEvaluator(held_out)(load_encoder(args.model))


def measure(folder: Path, variant: list[str], args: argparse.Namespace, seed: int) -> dict:
    """Train one variant and return its figures on the held-out groups."""
    given = "--examples=triplets" in variant
    trainer = train([
        f"--model_name_or_path={args.model}", f"--output_dir={folder / 'out'}", f"--seed={seed}",
        f"--train_file={folder / ('mined.csv' if given else 'train.tsv')}",
        f"--validation_file={folder / 'held_out.tsv'}", "--max_length=32",
        f"--per_device_train_batch_size={BATCH}", f"--max_steps={args.steps}",
        f"--learning_rate={args.learning_rate}", "--eval_strategy=no", "--save_strategy=no",
        "--report_to=none", "--disable_tqdm=true", "--logging_steps=25", *variant,
    ])  # fmt: skip
    return {name: trainer.state.log_history[-1][f"eval_{name}"] for name in FIGURES}


def main() -> None:
    """Measure every variant over the seeds, print a Markdown table and write JSON."""
    parser = ReportParser(__doc__, "triplet")
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True, help="Groups, or a table of texts and classes.")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=[*VARIANTS])
    parser.add_argument("--held_out", type=int, default=20, help="Groups to measure on.")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--learning_rate", type=float, default=3e-5)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    args = parser.parse_args()
    runs: dict[str, list[dict]] = {"start": [], **{name: [] for name in args.variants}}
    for seed in args.seeds:
        with TemporaryDirectory() as name:
            runs["start"].append(prepare(Path(name), args, seed))
            for variant in args.variants:
                runs[variant].append(measure(Path(name), VARIANTS[variant], args, seed))
    found = {
        variant: {name: statistics.mean(run[name] for run in them) for name in FIGURES}
        | {f"{name}_spread": statistics.pstdev(run[name] for run in them) for name in FIGURES}
        for variant, them in runs.items()
    }
    rows = [
        [variant, *(spread([run[name] for run in them], 3) for name in FIGURES)]
        for variant, them in runs.items()
    ]
    print(layout(["variant", *FIGURES], rows, left=[0]))
    options = {k: v for k, v in vars(args).items() if k not in ("model", "data", "output")}
    options |= {"model": Path(args.model).name, "data": Path(args.data).name}
    report = {"figures": found, "options": options} | environment(DEVICE)
    save_report(args.output, report)


if __name__ == "__main__":
    main()
