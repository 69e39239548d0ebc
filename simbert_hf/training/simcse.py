"""The parts specific to train_simcse.py: its arguments, data and objective."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from math import isfinite
from typing import Any, Literal, get_args

import torch

from simbert_hf.arguments import DataArguments, SimilarityTrainingArguments, refuse_idle
from simbert_hf.data import (
    FixedPairs,
    PairDataset,
    load_scored_pairs,
    load_sentences,
    load_triplets,
)
from simbert_hf.data.near_words import nearest_words
from simbert_hf.data.noising import Augmentation, Augmenting
from simbert_hf.data.scored import check_scores
from simbert_hf.evaluation.evaluators import Evaluator
from simbert_hf.modeling.embedding import Embedder
from simbert_hf.modeling.encoder import SentenceEncoder
from simbert_hf.modeling.simbert import SimBert
from simbert_hf.objectives import ScoredPairObjective, SimCseObjective
from simbert_hf.training.data import check_files, make_evaluator, read_groups
from simbert_hf.training.first_look import some_sentences
from simbert_hf.utils.checks import check_scale, check_weights
from simbert_hf.utils.parsing import Presets, flag

logger = logging.getLogger(__name__)

FEW = 0.05  # share of changed sentences, below which replacing words is no augmentation

# The defaults that each preset changes. ``paper-...`` are the authors' recipes for BERT-base.
SIMCSE_MODERN: dict[str, Any] = {
    "learning_rate": 3e-5,
    "metric_for_best_model": "eval_sts_spearman",
}
SIMCSE_PAPER: dict[str, Any] = SIMCSE_MODERN | {
    "loss": "one_way",
    "mask_false_negatives": False,
    "max_length": 32,
    "lr_scheduler_type": "linear",
    "warmup_steps": 0,
    "weight_decay": 0.0,
    "length_window": 1,
    "eval_strategy": "steps",
    "eval_steps": 125,
    "save_strategy": "steps",
    "save_steps": 125,
}
SIMCSE_PRESETS: Presets = {
    "modern": SIMCSE_MODERN,
    "paper-unsup": SIMCSE_PAPER
    | {
        "examples": "sentences",
        "pooling": "cls",
        "training_head": True,
        "per_device_train_batch_size": 64,
        "num_train_epochs": 1,
    },
    "paper-sup": SIMCSE_PAPER
    | {
        "examples": "triplets",
        "pooling": "tanh_pooler",  # there the MLP head is kept, and evaluated too
        "learning_rate": 5e-5,
        "per_device_train_batch_size": 512,  # of all devices together: divide it
        "num_train_epochs": 3,
    },
}

# The losses for each kind of examples, the default first.
EXAMPLES: dict[str, tuple[str, ...]] = {
    "sentences": ("symmetric", "one_way"),
    "pairs": ("symmetric", "one_way"),
    "triplets": ("one_way",),
    "scored": ("cosent", "angle"),
}


@dataclass
class SimCseArguments:
    """SimCSE's data and loss."""

    examples: str = flag("sentences", "What the rows of --train_file hold.", tuple(EXAMPLES))
    loss: str | None = flag(
        None,
        "symmetric (2N - 1 columns) or one_way (N, or 2N with hard negatives); cosent or angle for "
        "scored pairs. By default the first that fits the examples.",
        tuple(dict.fromkeys(chain(*EXAMPLES.values()))),
    )
    scale: float = flag(20.0, "Inverse temperature.")
    hard_negative_weight: float = flag(
        0.0, "Added to the scaled cosine with a sentence's own hard negative."
    )
    mask_false_negatives: bool = flag(True, "Do not use equal sentences as negatives.")
    similarity_weight: float = flag(
        1.0, "Weight of the similarity loss; 0 trains with --mlm_weight only."
    )
    mlm_weight: float = flag(0.0, "Weight of an MLM loss on masked copies; 0: none.")
    training_head: bool = flag(False, "Add an MLP head on the vector during training only.")
    augmentation: str | None = flag(
        None,
        "Change the second view besides dropout: crop it, delete words, or replace them by near "
        "ones in the base model's word embeddings.",
        get_args(Augmenting),
    )
    augmentation_rate: float = flag(0.1, "Share of the words that the augmentation changes.")

    def __post_init__(self) -> None:
        check_scale(self.scale)
        fitting = EXAMPLES[self.examples]
        self.loss = self.loss or fitting[0]
        if self.loss not in fitting:
            raise ValueError(
                f"--loss {self.loss} does not fit --examples {self.examples}; choose one of "
                f"{', '.join(fitting)}."
            )
        if self.augmentation and self.examples != "sentences":
            raise ValueError("--augmentation makes a second view; it needs --examples sentences.")
        if self.hard_negative_weight and self.examples != "triplets":
            raise ValueError("--hard_negative_weight needs --examples triplets.")
        if not isfinite(self.hard_negative_weight):
            raise ValueError(f"--hard_negative_weight {self.hard_negative_weight}: give a number.")
        if not self.augmentation:
            refuse_idle(self, ["augmentation_rate"], "there is no --augmentation")
        self._check_weights()

    def _check_weights(self) -> None:
        weights = [self.similarity_weight, self.mlm_weight]
        check_weights(weights)
        if self.examples == "scored" and weights != [1, 0]:
            raise ValueError("Scored pairs have one loss: drop --similarity_weight, --mlm_weight.")
        if self.examples == "scored":
            refuse_idle(self, ["mask_false_negatives"], "scored pairs have no negatives")
        if not self.similarity_weight and (self.training_head or self.augmentation):
            raise ValueError(
                "--similarity_weight 0 makes no views: drop --training_head and --augmentation."
            )


def prepare_simcse(model: SimBert | SentenceEncoder, args: SimCseArguments) -> str | None:
    """Train only the weights that the loss depends on.

    Returns:
        Name prefix of an untrained LM head; None without one.

    Raises:
        ValueError: If the loss needs an LM head, which the model does not support, or views by
            dropout, which it does not have.
    """
    fresh_head = None
    if not args.mlm_weight:
        model.freeze_idle()
    elif not isinstance(model, SimBert):
        kind = model.config.model_type
        raise ValueError(f"--mlm_weight needs a BERT checkpoint; this is a {kind!r}.")
    elif not model.has_lm_head:
        model.has_lm_head, fresh_head = True, model.head_prefix
    if isinstance(model, SimBert) and not args.similarity_weight:
        model.pooler.requires_grad_(False)
    if args.training_head:
        model.add_training_head()
    if args.examples == "sentences" and args.similarity_weight and not args.augmentation:
        check_dropout(model)
    return fresh_head


@torch.no_grad()
def check_dropout(model: Embedder) -> None:
    """Raise a ValueError if two views of a sentence are equal; leave the model in training mode."""
    rows = model.rows.pad(model.rows.sources(["a", "a"], 8))
    with torch.random.fork_rng(devices=[]):
        one, other = model.train()(**rows).sentence_embedding
    if torch.allclose(one, other, atol=1e-5):
        raise ValueError(
            "Unsupervised SimCSE makes two views of a sentence by dropout, but this model has "
            "none: give --hidden_dropout 0.1, or another second view (train_simcse.py's "
            "--augmentation, train_simbert.py's --simcse_weight 0)."
        )


def load_simcse_data(
    examples: str, data_args: DataArguments, args: SimilarityTrainingArguments
) -> tuple[PairDataset | FixedPairs, Evaluator | None]:
    """Read SimCSE's training data; without ``--sts_file`` nothing is evaluated.

    Args:
        examples: sentences, pairs, triplets or scored.
        data_args: They name the files.
        args: Their seed draws the pairs.

    Raises:
        DataError: If a file cannot be read, or nothing is left to train on.
        ValueError: If an argument is not supported with SimCSE.
    """
    given = ["streaming", "validation_file", "sample_sentences"]
    given += ["validation_groups"] if data_args.validation_groups else []
    of_groups = ["data_format", "text_columns", "dataset_config", "dataset_split"]
    given += [] if examples == "pairs" else of_groups
    refuse_idle(data_args, given, f"SimCSE reads all {examples} and is evaluated on --sts_file")
    evaluator = make_evaluator(None, data_args, args, "--sts_file with scored pairs")
    files, seed = data_args.train_file, args.order_seed
    train: PairDataset | FixedPairs
    if examples == "pairs":
        train = PairDataset(read_groups(data_args, args), seed)
    else:
        train = FixedPairs(read_columns(examples, files), seed)
        logger.info("%s: %d %s", ", ".join(files), len(train), examples)
    return train, evaluator


def read_columns(examples: str, files: Sequence[str]) -> dict[str, Sequence[Any]]:
    """Read sentences, triplets or scored pairs as columns of :class:`FixedPairs`."""
    check_files(files)
    if examples == "sentences":
        sentences = [text for file in files for text in load_sentences(file)]
        return {"source": sentences, "target": sentences}
    load, third = (
        (load_triplets, "negative") if examples == "triplets" else (load_scored_pairs, "score")
    )
    rows: list[tuple[Any, ...]] = [row for file in files for row in load(file)]
    if examples == "scored":
        check_scores(", ".join(files), rows)  # type: ignore[arg-type]
    return dict(zip(("source", "target", third), zip(*rows, strict=True), strict=True))


def make_augmentation(
    args: SimCseArguments, model: Embedder, data: FixedPairs | PairDataset
) -> Augmentation | None:
    """Build the augmentation that the arguments name, with synonyms from the model's embeddings.

    Raises:
        ValueError: If words are to be replaced, but hardly any sentence has one that could be.
    """
    if args.augmentation is None:
        return None
    synonyms: dict[str, list[str]] = {}
    if args.augmentation == "replace":
        embeddings: Any = model.get_input_embeddings()
        synonyms = nearest_words(embeddings.weight, model.loaded_tokenizer())
        texts = some_sentences(data)
        replace = Augmentation("replace", 1 - 1e-9, synonyms)
        changed = sum(replace(text, random.Random(0)) != text for text in texts)
        if changed < FEW * len(texts):
            raise ValueError(
                f"--augmentation replace can change words in only {changed} of {len(texts)} "
                "sentences; it is for languages with spaces between words: choose crop or delete."
            )
        logger.info("%d words have near ones that can replace them", len(synonyms))
    kind: Any = args.augmentation
    return Augmentation(kind, args.augmentation_rate, synonyms)


def make_simcse_objective(args: SimCseArguments) -> SimCseObjective | ScoredPairObjective:
    """Build the objective that the arguments name."""
    if args.examples == "scored":
        loss: Literal["cosent", "angle"] = "angle" if args.loss == "angle" else "cosent"
        return ScoredPairObjective(loss=loss, scale=args.scale)
    return SimCseObjective(
        scale=args.scale,
        symmetric=args.loss == "symmetric",
        hard_negative_weight=args.hard_negative_weight,
        similarity_weight=args.similarity_weight,
        mlm_weight=args.mlm_weight,
        mask_false_negatives=args.mask_false_negatives,
    )
