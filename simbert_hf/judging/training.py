"""Labelled pairs -> a :class:`simbert_hf.judging.judge.Judge`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import sentence_transformers
import torch
import transformers
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

from simbert_hf.checkpoint import quiet_transformers
from simbert_hf.judging.judge import (
    Judge,
    acceptance_threshold,
    fingerprint,
    judge_figures,
    plain,
    score,
    word_embeddings,
)
from simbert_hf.sampling import FixedPairs, LengthGroupedBatchSampler
from simbert_hf.scored import ScoredPair, load_scored_pairs
from simbert_hf.textfiles import DataError, fault, shorten

ACCEPTED = 0.9  # share of the people's paraphrases on dev that the threshold accepts

# What the default preset changes of transformers' own defaults.
JUDGE_PRESETS: dict[str, dict[str, Any]] = {
    "modern": {
        "learning_rate": 1e-4,
        "per_device_train_batch_size": 32,
        "warmup_steps": 0.06,
        "weight_decay": 0.01,
        "logging_steps": 50,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": not torch.accelerator.is_available(),  # bf16 asks for it
    }
}


@dataclass
class JudgeArguments:
    """What a judge is made from, and measured on."""

    start: str = field(metadata={"help": "Directory or Hub id of the encoder to start from."})
    train_file: list[str] = field(metadata={"help": "Labelled pairs (csv, tsv) to train on."})
    dev_file: list[str] = field(metadata={"help": "Labelled pairs that set the threshold."})
    test_file: list[str] = field(metadata={"help": "Labelled pairs it is only measured on."})
    mismatched: float = field(
        default=0.25,
        metadata={"help": "Pairs of random sentences added to each training file, as a share."},
    )
    max_length: int = field(default=128, metadata={"help": "Longest pair in tokens."})

    def __post_init__(self) -> None:
        if self.mismatched < 0:
            raise ValueError(f"--mismatched {self.mismatched}: it must be at least 0.")


@dataclass(frozen=True)
class LabelledFile:
    """Labelled pairs of one file.

    Attributes:
        name: The file's name.
        sha256: Of its bytes.
        pairs: What it holds.
    """

    name: str
    sha256: str
    pairs: list[ScoredPair]

    def record(self) -> dict[str, Any]:
        """Say what the file holds."""
        paraphrases = int(sum(pair.score for pair in self.pairs))
        counts = {"pairs": len(self.pairs), "paraphrases": paraphrases}
        return {"file": self.name, "sha256": self.sha256, **counts}


def load_labelled_file(path: str | Path) -> LabelledFile:
    r"""Read pairs that are labelled 1 (paraphrases) or 0, the label in any column.

    Raises:
        DataError: If the file does not hold scored pairs, a label is neither 0 nor 1, or all are
            the same.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "pairs.tsv")
        ...     _ = path.write_text("1\tIt is late.\tIt's late.\n0\tIt is late.\tIt was.\n")
        ...     [pair.score for pair in load_labelled_file(path).pairs]
        [1.0, 0.0]
    """
    pairs = load_scored_pairs(path)
    for pair in pairs:
        if pair.score not in (0, 1):
            problem = f"{shorten(pair.first)} has the label {pair.score:g}"
            raise fault(path, None, problem, "Write 1 for a paraphrase and 0 for none")
    if len({pair.score for pair in pairs}) < 2:
        problem = f"all pairs are labelled {pairs[0].score:g}"
        raise fault(path, None, problem, "A judge needs paraphrases and pairs that are none")
    return LabelledFile(Path(path).name, sha256(Path(path).read_bytes()).hexdigest(), pairs)


def without_sentences_of(
    pairs: Sequence[ScoredPair], held_out: Sequence[ScoredPair]
) -> list[ScoredPair]:
    """Drop pairs that share a sentence with held-out ones.

    Example:
        >>> train = [ScoredPair("a b", "c", 1), ScoredPair("d", "e", 0)]
        >>> without_sentences_of(train, [ScoredPair("A  b", "f", 0)])
        [ScoredPair(first='d', second='e', score=0)]
    """
    seen = {plain(text) for pair in held_out for text in (pair.first, pair.second)}
    return [pair for pair in pairs if seen.isdisjoint((plain(pair.first), plain(pair.second)))]


def mismatch(pairs: Sequence[ScoredPair], count: int, seed: int = 0) -> list[ScoredPair]:
    """Pair first sentences with second ones of other pairs, at random, labelled 0.

    People label pairs that look alike. A judge that has seen no others takes whatever resembles
    no negative, two unrelated statements too, for a paraphrase.

    Example:
        >>> mismatch([ScoredPair("a", "b", 1), ScoredPair("c", "d", 1)], 2)
        [ScoredPair(first='c', second='b', score=0.0), ScoredPair(first='c', second='b', score=0.0)]
    """
    rng = np.random.default_rng(seed)
    rows = rng.integers(len(pairs), size=count)
    others = (rows + rng.integers(1, len(pairs), size=count)) % len(pairs)
    return [
        ScoredPair(pairs[i].first, pairs[j].second, 0.0) for i, j in zip(rows, others, strict=True)
    ]


def training_pairs(
    train: Sequence[LabelledFile], held_out: Sequence[LabelledFile], share: float, seed: int
) -> tuple[list[ScoredPair], dict[str, int]]:
    """Leave out what shares a sentence with held-out pairs; add mismatched pairs to each file.

    Returns:
        The pairs, and how many were left out and added.

    Raises:
        DataError: If none is left.
    """
    seen = list(chain(*(file.pairs for file in held_out)))
    found: list[ScoredPair] = []
    counts = {"left_out": 0, "mismatched": 0}
    for file in train:
        kept = without_sentences_of(file.pairs, seen)
        added = mismatch(kept, int(share * len(kept)), seed) if len(kept) > 1 else []
        found += [*kept, *added]
        counts["left_out"] += len(file.pairs) - len(kept)
        counts["mismatched"] += len(added)
    if not found:
        raise DataError("Every training pair shares a sentence with the dev or test files.")
    return found, counts


def train_judge(given: JudgeArguments, args: CrossEncoderTrainingArguments) -> Judge:
    """Fine-tune an encoder as a judge, find its threshold on dev, measure it on dev and test.

    Raises:
        DataError: If a file cannot be used, or no training pair is left.
        OSError: If there is no such start.
    """
    files = {
        "train": list(map(load_labelled_file, given.train_file)),
        "dev": list(map(load_labelled_file, given.dev_file)),
        "test": list(map(load_labelled_file, given.test_file)),
    }
    held_out = [*files["dev"], *files["test"]]
    pairs, counts = training_pairs(files["train"], held_out, given.mismatched, args.seed)
    model = load_start(given, args.seed)
    start = {"name": name_of(given.start), "sha256": fingerprint(word_embeddings(model)[1])}
    fit(model, pairs, args)
    threshold, figures = measure(model, files["dev"], files["test"])
    record = {
        "accepts": ACCEPTED,
        "figures": figures,
        "start": start,
        "data": {name: [file.record() for file in split] for name, split in files.items()},
        "training_pairs": {"pairs": len(pairs), **counts},
        "training": recipe(given, args),
        "versions": {
            library.__name__: library.__version__
            for library in (torch, transformers, sentence_transformers)
        },
    }
    return Judge(model, threshold, record)


def load_start(given: JudgeArguments, seed: int) -> CrossEncoder:
    """Load an encoder with a fresh classification head, whose weights the seed draws.

    Raises:
        OSError: If there is none.
    """
    transformers.set_seed(seed)
    with quiet_transformers():
        model: CrossEncoder = CrossEncoder(
            given.start,
            num_labels=1,
            max_length=given.max_length,
            model_kwargs={"dtype": torch.float32},
        )
    return model


def name_of(name_or_path: str) -> str:
    """Return a Hub id as it is, a directory's last part.

    Example:
        >>> name_of("org/model"), name_of(str(Path(__file__).parent))
        ('org/model', 'simbert_hf')
    """
    return Path(name_or_path).resolve().name if Path(name_or_path).exists() else name_or_path


def fit(
    model: CrossEncoder, pairs: Sequence[ScoredPair], args: CrossEncoderTrainingArguments
) -> None:
    """Fine-tune a cross-encoder on labelled pairs with binary cross-entropy.

    The word embeddings stay as they are: they tell a judge's kin, and are most of a small model.
    """
    assert model.model is not None
    model.model.get_input_embeddings().requires_grad_(False)
    columns: dict[str, Sequence[Any]] = {
        "source": [plain(pair.first) for pair in pairs],
        "target": [plain(pair.second) for pair in pairs],
        "label": [pair.score for pair in pairs],
    }
    sampler: Any = partial(group_by_length, pairs=FixedPairs(columns, args.seed))
    args.batch_sampler = sampler
    CrossEncoderTrainer(
        model=model,
        args=args,
        train_dataset=datasets.Dataset.from_dict(columns),
        loss=BinaryCrossEntropyLoss(model),
    ).train()


def group_by_length(
    _: datasets.Dataset, batch_size: int, drop_last: bool, seed: int, pairs: FixedPairs, **__: Any
) -> LengthGroupedBatchSampler:
    """Batch pairs of like length; sentence-transformers calls this with more than is needed."""
    return LengthGroupedBatchSampler(pairs, batch_size, seed, drop_last=drop_last)


def measure(
    model: CrossEncoder, dev: Sequence[LabelledFile], test: Sequence[LabelledFile]
) -> tuple[float, dict[str, dict[str, float]]]:
    """Find the threshold on dev; measure on dev and test, and on each of their files.

    The last row of each is its paraphrases against as many mismatched pairs.

    Returns:
        The threshold, and figures by name of the split or ``split: file``.
    """
    scored: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for split, files in {"dev": dev, "test": test}.items():
        parts = {f"{split}: {file.name}": score_labelled(model, file.pairs) for file in files}
        whole = [np.concatenate(arrays) for arrays in zip(*parts.values(), strict=True)]
        scored[split] = whole[0], whole[1]
        scored |= parts if len(parts) > 1 else {}
        scored[f"{split}: mismatched"] = against_mismatched(model, files, *scored[split])
    scores, labels = scored["dev"]
    threshold = acceptance_threshold(scores[labels == 1], ACCEPTED)
    return threshold, {name: judge_figures(*each, threshold) for name, each in scored.items()}


def against_mismatched(
    model: CrossEncoder, files: Sequence[LabelledFile], scores: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the paraphrases' scores and as many of mismatched pairs of the same files."""
    counts = [int(sum(pair.score for pair in file.pairs)) for file in files]
    pairs = [mismatch(file.pairs, n) for file, n in zip(files, counts, strict=True)]
    others, zeros = score_labelled(model, list(chain(*pairs)))
    paraphrases = labels == 1
    return (
        np.concatenate([scores[paraphrases], others]),
        np.concatenate([labels[paraphrases], zeros]),
    )


def score_labelled(
    model: CrossEncoder, pairs: Sequence[ScoredPair]
) -> tuple[np.ndarray, np.ndarray]:
    """Return scores and labels of labelled pairs, each of shape (N,)."""
    labels = np.array([pair.score for pair in pairs])
    return score(model, [(pair.first, pair.second) for pair in pairs]), labels


def recipe(given: JudgeArguments, args: CrossEncoderTrainingArguments) -> dict[str, Any]:
    """Say how a judge was trained."""
    return {
        "epochs": args.num_train_epochs,
        "max_steps": args.max_steps,
        "batch_size": args.train_batch_size,
        "learning_rate": args.learning_rate,
        "seed": args.seed,
        "bf16": args.bf16,
        "max_length": given.max_length,
    }


def figures_table(figures: dict[str, dict[str, float]]) -> str:
    """Lay a judge's figures out as a Markdown table.

    Example:
        >>> figures = {"pairs": 4, "auc": 0.75, "accuracy": 0.5, "f1": 0.5}
        >>> print(figures_table({"dev": figures | {"accepted": 0.9, "false_accepts": 0.2}}))
        | set | pairs | AUC | accuracy at .5 | F1 at .5 | paraphrases accepted | false accepts |
        | --- | --- | --- | --- | --- | --- | --- |
        | dev | 4 | 0.750 | 0.500 | 0.500 | 0.900 | 0.200 |
    """
    heads = {
        "pairs": "pairs",
        "auc": "AUC",
        "accuracy": "accuracy at .5",
        "f1": "F1 at .5",
        "accepted": "paraphrases accepted",
        "false_accepts": "false accepts",
    }
    lines = [["set", *heads.values()], ["---"] * (len(heads) + 1)]
    for name, found in figures.items():
        cells = [found[key] for key in heads]
        lines.append([name, *(f"{c:.3f}" if isinstance(c, float) else str(c) for c in cells)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
