"""Train a :class:`simbert_hf.judging.judge.Judge` on labelled pairs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from itertools import chain, product
from math import inf
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
from transformers import PreTrainedTokenizerBase

from simbert_hf.arguments import refuse_idle
from simbert_hf.data.batching import LengthGroupedBatchSampler, Measure
from simbert_hf.data.grouping import find_components, hash_sentences
from simbert_hf.data.sampling import FixedPairs, Pair
from simbert_hf.data.scored import LabelledPair, check_columns, check_labels, load_labelled_pairs
from simbert_hf.judging.judge import (
    Judge,
    acceptance_threshold,
    fingerprint,
    judge_figures,
    plain,
    score,
    word_embeddings,
)
from simbert_hf.modeling.loading import loading
from simbert_hf.rows import count_tokens
from simbert_hf.training.first_look import check_read
from simbert_hf.utils.arrays import Ints
from simbert_hf.utils.parsing import flag
from simbert_hf.utils.textfiles import DataError, fault

logger = logging.getLogger(__name__)

USEFUL = 0.7  # AUC on dev below which a judge is of little use
ACCEPTED = 0.9  # share of the people's paraphrases on dev that the threshold accepts

# Where the default preset differs from transformers' own defaults.
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
# transformers' flags that change nothing here, or would upload a judge without its record.
IDLE = (
    "batch_sampler", "bf16_full_eval", "do_predict", "eval_steps", "eval_strategy",
    "fp16_full_eval", "hub_model_id", "label_smoothing_factor", "load_best_model_at_end",
    "metric_for_best_model", "multi_dataset_batch_sampler", "per_device_eval_batch_size",
    "push_to_hub", "train_sampling_strategy",
)  # fmt: skip


@dataclass
class JudgeArguments:
    """The base model of a judge, and the data to train and measure it on."""

    model_name_or_path: str = field(
        metadata={"help": "Directory or Hub id of the encoder to start from."}
    )
    train_file: list[str] = field(
        metadata={"help": "Labelled pairs to train on, as for evaluate.py --pairs."}
    )
    dev_file: list[str] = field(metadata={"help": "Labelled pairs that set the threshold."})
    test_file: list[str] = field(metadata={"help": "Labelled pairs that are only measured on."})
    mismatched: float = flag(
        0.25, "Pairs of random sentences added to each training file, as a share of its pairs."
    )
    max_length: int = flag(128, "Maximum tokens of a pair, up to what the base model reads.")
    columns: list[str] = flag(
        [], "Columns of both sentences and the label, in files that have them."
    )

    def __post_init__(self) -> None:
        if len(self.columns) not in (0, 3):
            raise ValueError(f"--columns {self.columns}: give three names.")
        if self.max_length < 8:
            raise ValueError(f"--max_length {self.max_length}: a pair has at least 8 tokens.")
        if not 0 <= self.mismatched < inf:
            raise ValueError(f"--mismatched {self.mismatched}: it must be at least 0.")


@dataclass(frozen=True)
class LabelledFile:
    """Labelled pairs of one file.

    Attributes:
        name: The file's name, with folders where needed to tell it from others.
        sha256: Hash of its bytes.
        pairs: The pairs that are used.
        left_out: Number of other pairs, which share a sentence with held-out ones.
    """

    name: str
    sha256: str
    pairs: list[LabelledPair]
    left_out: int = 0

    def record(self) -> dict[str, Any]:
        """Return the file's name, its hash and how much of it is used."""
        paraphrases = sum(pair.same for pair in self.pairs)
        counts = {"pairs": len(self.pairs), "paraphrases": paraphrases, "left_out": self.left_out}
        return {"file": self.name, "sha256": self.sha256, **counts}


def load_labelled_file(path: str | Path, columns: Sequence[str] = ()) -> LabelledFile:
    r"""Read a file of :func:`simbert_hf.data.scored.load_labelled_pairs` with both labels.

    Raises:
        DataError: If the file does not hold labelled pairs, or all labels are the same.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "pairs.tsv")
        ...     _ = path.write_text("1\tIt is late.\tIt's late.\n0\tIt is late.\tIt was.\n")
        ...     [pair.same for pair in load_labelled_file(path).pairs]
        [True, False]
    """
    pairs = load_labelled_pairs(path, columns)
    check_labels(path, pairs)
    return LabelledFile(Path(path).name, sha256(Path(path).read_bytes()).hexdigest(), pairs)


def without_sentences_of(file: LabelledFile, held_out: Sequence[LabelledFile]) -> LabelledFile:
    """Leave out pairs that share a sentence with held-out ones.

    Example:
        >>> dev = [LabelledPair("a b", "c", True), LabelledPair("d", "e", False)]
        >>> test = LabelledFile("test.tsv", "", [LabelledPair("A  b", "f", False)])
        >>> without_sentences_of(LabelledFile("dev.tsv", "", dev), [test]).record()
        {'file': 'dev.tsv', 'sha256': '', 'pairs': 1, 'paraphrases': 0, 'left_out': 1}
    """
    pairs = chain(*(other.pairs for other in held_out))
    seen = {plain(text) for pair in pairs for text in (pair.first, pair.second)}
    kept = [p for p in file.pairs if seen.isdisjoint((plain(p.first), plain(p.second)))]
    return replace(file, pairs=kept, left_out=len(file.pairs) - len(kept))


def load_splits(given: JudgeArguments) -> dict[str, list[LabelledFile]]:
    """Read train, dev and test, and keep each sentence in one of them: test first, then dev.

    Raises:
        DataError: If a file cannot be used, is both dev and test, or too little of dev or train is
            left.
        ValueError: If no file has the given columns.
    """
    paths = [*given.train_file, *given.dev_file, *given.test_file]
    check_columns(given.columns, paths)
    train, dev, test = (
        [
            replace(load_labelled_file(path, given.columns), name=name)
            for path, name in zip(split, distinct_names(split), strict=True)
        ]
        for split in (given.train_file, given.dev_file, given.test_file)
    )
    for (path, ours), theirs in product(zip(given.dev_file, dev, strict=True), test):
        if ours.sha256 == theirs.sha256:
            problem = f"the dev file holds the same as the test file {theirs.name}"
            raise fault(path, None, problem, "Set the threshold on pairs other than the test pairs")
    dev = [without_sentences_of(file, test) for file in dev]
    for path, file in zip(given.dev_file, dev, strict=True):
        if len({pair.same for pair in file.pairs}) < 2:
            problem = f"{file.left_out} pairs share a sentence with {', '.join(given.test_file)}"
            remedy = "Use a dev file that has pairs of both labels without them"
            raise fault(path, None, problem, remedy)
    train = [without_sentences_of(file, [*dev, *test]) for file in train]
    if not any(file.pairs for file in train):
        raise DataError("Every training pair shares a sentence with the dev or test files.")
    return {"train": train, "dev": dev, "test": test}


def distinct_names(paths: Sequence[str]) -> list[str]:
    """Name files by as many last parts of their paths as needed to tell them apart.

    Example:
        >>> distinct_names(["a/dev.tsv", "b/other.tsv"]), distinct_names(["a/dev.tsv", "b/dev.tsv"])
        (['dev.tsv', 'other.tsv'], ['a/dev.tsv', 'b/dev.tsv'])
    """
    parts = [Path(path).absolute().parts for path in paths]
    lengths = range(1, max(map(len, parts), default=1) + 1)
    tails = ([Path(*each[-length:]).as_posix() for each in parts] for length in lengths)
    return next(names for names in tails if len({*names}) == len({*parts}))


def mismatch(pairs: Sequence[LabelledPair], count: int, seed: int = 0) -> list[LabelledPair]:
    """Pair first sentences with second ones of unrelated pairs, at random, labelled 0.

    People label pairs that look alike. A judge that has seen no others takes whatever does not
    resemble a negative, even two unrelated statements, for a paraphrase.

    Pairs are unrelated if no chain of shared sentences joins them; otherwise a mismatch could be a
    known pair, or the two ends of a chain of paraphrases.

    Returns:
        As many as requested; none if all pairs are related.

    Example:
        >>> pairs = [LabelledPair("a", "b", True), LabelledPair("c", "d", True)]
        >>> mismatch([*pairs, LabelledPair("d", "e", False)], 1)
        [LabelledPair(first='d', second='b', same=False)]
        >>> mismatch(pairs[:1], 1)
        []
    """
    texts = [plain(text) for pair in pairs for text in (pair.first, pair.second)]
    related = find_components(hash_sentences(texts), np.full(len(pairs), 2))[0]
    order = np.argsort(related, kind="stable")  # rows, related ones side by side
    sizes = np.bincount(related)
    if len(sizes) < 2:
        return []
    rng = np.random.default_rng(seed)
    rows = rng.integers(len(pairs), size=count)
    others = rng.integers(len(pairs) - sizes[related[rows]])  # counted from the end of its own
    places = (sizes.cumsum()[related[rows]] + others) % len(pairs)
    return [
        LabelledPair(pairs[i].first, pairs[j].second, False)
        for i, j in zip(rows, order[places], strict=True)
    ]


def train_judge(given: JudgeArguments, args: CrossEncoderTrainingArguments) -> Judge:
    """Fine-tune an encoder as a judge, find its threshold on dev, measure it on dev and test.

    Raises:
        DataError: If a file cannot be used, or too little is left of dev or train.
        OSError: If the base model cannot be loaded.
        ValueError: If a run is to be resumed, a flag would have no effect, or the run diverged.
    """
    if args.resume_from_checkpoint:
        raise ValueError("--resume_from_checkpoint: a judge cannot be resumed; train it again.")
    refuse_idle(args, IDLE, "a judge is only measured at the end, and is not uploaded")
    files = load_splits(given)
    kept = [file.pairs for file in files["train"]]
    added = [mismatch(pairs, int(given.mismatched * len(pairs)), args.seed) for pairs in kept]
    pairs, mismatched = list(chain(*kept, *added)), sum(map(len, added))
    model = load_cross_encoder(given, args.seed)
    check_read(model.tokenizer, [pair.first for pair in pairs], given.train_file)
    place = Path(given.model_name_or_path)
    name = place.resolve().name if place.exists() else given.model_name_or_path
    start = {"name": name, "sha256": fingerprint(word_embeddings(model)[1])}
    fit(model, pairs, args)
    threshold, figures = measure(model, files["dev"], files["test"])
    if figures["dev"]["auc"] < USEFUL:
        logger.warning(
            "The judge hardly tells paraphrases from others: its AUC on dev is %.2f (.50: not at "
            "all). Train it longer, or on more pairs.",
            figures["dev"]["auc"],
        )
    record = {
        "accepts": ACCEPTED,
        "figures": figures,
        "start": start,
        "data": {name: [file.record() for file in split] for name, split in files.items()},
        "training_pairs": {"pairs": len(pairs), "mismatched": mismatched},
        "training": recipe(model, args),
        "versions": {
            library.__name__: library.__version__
            for library in (torch, transformers, sentence_transformers)
        },
    }
    return Judge(model, threshold, record)


def load_cross_encoder(given: JudgeArguments, seed: int) -> CrossEncoder:
    """Load an encoder with a new classification head, initialized by the seed.

    Raises:
        OSError: If the encoder cannot be loaded.
    """
    transformers.set_seed(seed)
    with loading(given.model_name_or_path):
        model: CrossEncoder = CrossEncoder(
            given.model_name_or_path,
            num_labels=1,
            max_length=given.max_length,
            model_kwargs={"dtype": torch.float32},
        )
    assert model.config is not None
    model.max_seq_length = min(given.max_length, model.config.max_position_embeddings)
    return model


def fit(
    model: CrossEncoder, pairs: Sequence[LabelledPair], args: CrossEncoderTrainingArguments
) -> None:
    """Fine-tune a cross-encoder on labelled pairs with binary cross-entropy.

    The word embeddings stay frozen: they show kinship, and are most of a small model.

    Raises:
        ValueError: If weights are infinite or NaN in the end.
    """
    assert model.model is not None
    model.model.get_input_embeddings().requires_grad_(False)
    columns: dict[str, Sequence[Any]] = {
        "source": [plain(pair.first) for pair in pairs],
        "target": [plain(pair.second) for pair in pairs],
        "label": [float(pair.same) for pair in pairs],
    }
    fixed = FixedPairs(columns)
    sampler: Any = partial(  # which is pickled with the arguments at each save
        group_by_length, pairs=fixed, lengths=partial(pair_lengths, model.tokenizer)
    )
    args.batch_sampler = sampler
    CrossEncoderTrainer(
        model=model,
        args=args,
        train_dataset=datasets.Dataset.from_dict(columns),
        loss=BinaryCrossEntropyLoss(model),
    ).train()
    if not all(weight.isfinite().all() for weight in model.parameters()):
        raise ValueError(
            "The run diverged: weights are infinite or NaN. Train the judge again with a lower "
            f"--learning_rate than {args.learning_rate:g}."
        )


def pair_lengths(tokenizer: PreTrainedTokenizerBase, pairs: Sequence[Pair]) -> Ints:
    """Count the tokens of both sentences of each of N pairs: (N,)."""
    first, second = zip(*((pair["source"], pair["target"]) for pair in pairs), strict=True)
    return count_tokens(tokenizer, first) + count_tokens(tokenizer, second)


def group_by_length(
    _: datasets.Dataset,
    batch_size: int,
    drop_last: bool,
    seed: int,
    pairs: FixedPairs,
    lengths: Measure,
    **__: Any,
) -> LengthGroupedBatchSampler:
    """Batch pairs of similar length; sentence-transformers passes more arguments than needed."""
    return LengthGroupedBatchSampler(pairs, batch_size, lengths, seed, drop_last=drop_last)


def measure(
    model: CrossEncoder, dev: Sequence[LabelledFile], test: Sequence[LabelledFile]
) -> tuple[float, dict[str, dict[str, float]]]:
    """Find the threshold on dev; measure on dev and test, and on each of their files.

    The last row of each compares its paraphrases with as many mismatched pairs, if possible.

    Returns:
        The threshold, and figures by split or ``split: file``.
    """
    scored: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for split, files in {"dev": dev, "test": test}.items():
        parts = [score_labelled(model, file.pairs) for file in files]
        scores, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        scored[split] = scores, labels
        if len(parts) > 1:
            scored |= {f"{split}: {f.name}": part for f, part in zip(files, parts, strict=True)}
        counts = [sum(pair.same for pair in file.pairs) for file in files]
        others = [mismatch(f.pairs, count) for f, count in zip(files, counts, strict=True)]
        if any(others):
            found, zeros = score_labelled(model, list(chain(*others)))
            same = labels == 1
            both = np.concatenate([scores[same], found]), np.concatenate([labels[same], zeros])
            scored[f"{split}: mismatched"] = both
    scores, labels = scored["dev"]
    threshold = acceptance_threshold(scores[labels == 1], ACCEPTED)
    return threshold, {name: judge_figures(*each, threshold) for name, each in scored.items()}


def score_labelled(
    model: CrossEncoder, pairs: Sequence[LabelledPair]
) -> tuple[np.ndarray, np.ndarray]:
    """Return scores and labels of labelled pairs, each of shape (N,)."""
    labels = np.array([float(pair.same) for pair in pairs])
    return score(model, [(pair.first, pair.second) for pair in pairs]), labels


def recipe(model: CrossEncoder, args: CrossEncoderTrainingArguments) -> dict[str, Any]:
    """Return the settings that a judge was trained with."""
    return {
        "epochs": args.num_train_epochs,
        "max_steps": args.max_steps,
        "batch_size": args.train_batch_size,
        "learning_rate": args.learning_rate,
        "seed": args.seed,
        "bf16": args.bf16,
        "max_length": model.max_seq_length,
    }
