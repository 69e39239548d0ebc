"""What ``train_triplet.py`` needs beside ``training/``: arguments, data, objective."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, get_args

from datasets import Dataset
from transformers import TrainerCallback

from simbert_hf.arguments import DataArguments, SimilarityTrainingArguments, refuse_idle
from simbert_hf.collators import SimCseCollator
from simbert_hf.data import DataError, FixedPairs, load_triplets
from simbert_hf.evaluation.evaluators import Evaluator, StsEvaluator
from simbert_hf.mining.negatives import MiningSettings
from simbert_hf.rows import Rows
from simbert_hf.training.data import (
    check_files,
    hold_out,
    load_unseen,
    make_evaluator,
    read_groups,
)
from simbert_hf.training.starts import GRU_PRESET
from simbert_hf.triplet.losses import Distance, Mining
from simbert_hf.triplet.members import MemberCollator, MemberDataset
from simbert_hf.triplet.objective import Kind, TripletObjective
from simbert_hf.triplet.renewal import Renewal, RenewedTriplets
from simbert_hf.utils.checks import check_scale
from simbert_hf.utils.parsing import Presets, flag

logger = logging.getLogger(__name__)

Train = MemberDataset | FixedPairs | RenewedTriplets

_MODERN: dict[str, Any] = {"learning_rate": 3e-5, "metric_for_best_model": "eval_top1"}
TRIPLET_PRESETS: Presets = {
    "modern": _MODERN,
    "gru": _MODERN | GRU_PRESET | {"num_train_epochs": 20},
}
# Vectors of an encoder are not of length 1: their squared distances are larger than cosines'.
MINABLE = ("triplet", "unanchored")
MARGINS: dict[str, float] = {"cosine": 0.2, "squared": 1.0}
READ = {  # what shapes each loss
    "triplet": {"distance", "margin"},
    "unanchored": {"distance", "margin"},
    "sdml": {"distance", "smoothing"},
    "softmax": {"scale"},
    "siamese": set[str](),
}


@dataclass
class TripletArguments:
    """Triplets: where they come from, and the loss."""

    examples: str = flag(
        "groups",
        "What --train_file holds: groups, whose batches are mined, or triplets (columns sent0, "
        "sent1, hard_neg), such as scripts/mine_negatives.py writes.",
        ("groups", "triplets"),
    )
    loss: str = flag(
        "triplet",
        "triplet; unanchored (against any hard negative pair of the batch); sdml; softmax over the "
        "batch; or siamese (pairs classified by [u, v, |u - v|]).",
        get_args(Kind),
    )
    mining: str | None = flag(
        None, "How --loss triplet mines its batches of groups; hard if not given.", get_args(Mining)
    )
    distance: str | None = flag(
        None,
        "Of triplet, unanchored and sdml: cosine, for sdml squared, if not given.",
        get_args(Distance),
    )
    margin: float | None = flag(None, "0.2 (cosine) or 1 (squared) if not given.")
    scale: float = flag(20.0, "Inverse temperature of softmax.")
    smoothing: float = flag(0.3, "Of the labels of sdml.")
    sentences_per_group: int = flag(
        2,
        "K sentences of each of the --per_device_train_batch_size groups in a batch; with classes, "
        "4 or more mine better.",
    )
    remine_steps: int | None = flag(
        None,
        "In place of the batch's negatives take hard ones, mined by the model among all training "
        "groups at the beginning and again every so many steps. One process mines, and the others "
        "wait for it up to --ddp_timeout seconds.",
    )
    range_min: int = flag(0, "With --remine_steps: nearest strangers skipped.")

    def __post_init__(self) -> None:
        check_scale(self.scale)
        if self.mining and (self.loss, self.examples) != ("triplet", "groups"):
            raise ValueError(
                f"--mining {self.mining} mines batches of groups for --loss triplet: drop it."
            )
        if self.margin is not None and not 0 <= self.margin < float("inf"):
            raise ValueError(f"--margin {self.margin} is out of range: give at least 0.")
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"--smoothing {self.smoothing} is out of range: give 0 to below 1.")
        if self.sentences_per_group < 2:
            raise ValueError(f"--sentences_per_group {self.sentences_per_group}: give at least 2.")
        idle = set().union(*READ.values()) - READ[self.loss]
        refuse_idle(self, idle, f"--loss {self.loss} does not read it")
        self._check_mining()
        pairwise = self.loss in ("sdml", "softmax") or self.examples == "triplets"
        if self.remine_steps is not None and self.sentences_per_group != 2:
            raise ValueError("--remine_steps mines one positive each: drop --sentences_per_group.")
        if pairwise and self.sentences_per_group != 2:
            raise ValueError(
                f"--sentences_per_group {self.sentences_per_group}: --loss {self.loss} on "
                f"{self.examples} takes pairs; drop it."
            )

    def _check_mining(self) -> None:
        if self.remine_steps is None:
            if self.range_min:
                raise ValueError(f"--range_min {self.range_min} needs --remine_steps.")
            return
        if self.remine_steps < 1 or self.range_min < 0:
            raise ValueError(
                f"--remine_steps {self.remine_steps} must be at least 1 and --range_min "
                f"{self.range_min} at least 0."
            )
        if self.mining or self.examples != "groups" or self.loss not in MINABLE:
            raise ValueError(
                "--remine_steps mines groups for --loss triplet or unanchored: drop --mining, "
                "--examples, or choose one of these."
            )

    def callbacks(self, train: Train) -> list[TrainerCallback]:
        """Make what renews the triplets, where they are renewed."""
        if not isinstance(train, RenewedTriplets):
            return []
        assert self.remine_steps is not None
        return [Renewal(train, self.remine_steps, MiningSettings(range_min=self.range_min))]

    def objective(self) -> TripletObjective:
        """Build the objective that the arguments name."""
        distance: Any = self.distance or ("squared" if self.loss == "sdml" else "cosine")
        loss: Any = self.loss
        mining: Any = self.mining or "hard"
        return TripletObjective(
            loss,
            mining,
            distance,
            margin=MARGINS[distance] if self.margin is None else self.margin,
            scale=self.scale,
            smoothing=self.smoothing,
        )


def load_triplet_data(
    triplet_args: TripletArguments, data_args: DataArguments, args: SimilarityTrainingArguments
) -> tuple[Train, Evaluator | None]:
    """Read groups or triplets, and what is measured on: groups held out, or scored pairs.

    Raises:
        DataError: If a file cannot be read, or nothing is left to train on.
        ValueError: If an argument asks for what this training does not do.
    """
    why = "triplets are drawn from data read whole, and nothing is written"
    refuse_idle(data_args, ["streaming", "sample_sentences"], why)
    train: Train
    if triplet_args.examples == "triplets":
        train, held_out = load_given_triplets(data_args, args)
    else:
        groups, held_out = hold_out(read_groups(data_args, args), data_args, args)
        together = args.per_device_train_batch_size * args.world_size
        if triplet_args.remine_steps is None and together < 2:
            raise ValueError(
                "--per_device_train_batch_size 1: a group's negatives are the others of its batch; "
                "give at least 2."
            )
        if len(set(groups["group"])) < 2:
            raise DataError("All sentences are of one group: there are no negatives among them.")
        train = examples_of(groups, triplet_args, args)
    evaluator = make_evaluator(held_out, data_args, args)
    if isinstance(evaluator, StsEvaluator) and args.metric_for_best_model == "eval_top1":
        args.metric_for_best_model = "eval_sts_spearman"  # the other is the presets', of groups
    return train, evaluator


def examples_of(
    groups: Dataset, triplet_args: TripletArguments, args: SimilarityTrainingArguments
) -> MemberDataset | RenewedTriplets:
    """Make parts of groups, or triplets that are mined anew.

    Raises:
        ValueError: If worker processes would outlive their triplets.
    """
    if triplet_args.remine_steps is None:
        return MemberDataset(groups, triplet_args.sentences_per_group, args.order_seed)
    if args.dataloader_persistent_workers:
        raise ValueError(
            "Persistent workers keep the first triplets: drop --dataloader_persistent_workers with "
            "--remine_steps."
        )
    step = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
    if args.max_steps <= 0:  # what is between two minings would count as an epoch
        sentences = sum(map(len, groups["texts"]))
        args.max_steps = math.ceil(args.num_train_epochs * sentences / step)
        logger.info("training for %d steps: each sentence is an anchor so often", args.max_steps)
    return RenewedTriplets(groups, triplet_args.remine_steps * step, args.order_seed)


def load_given_triplets(
    data_args: DataArguments, args: SimilarityTrainingArguments
) -> tuple[FixedPairs, Dataset | None]:
    """Read triplets, less those with a sentence of ``--validation_file``, and that file's groups.

    Raises:
        DataError: If a file cannot be read, or no triplet is left.
        ValueError: If groups are to be held out of triplets.
    """
    if data_args.validation_groups:
        raise ValueError("Triplets hold no groups: give --validation_file, not a number of groups.")
    refuse_idle(data_args, ["dataset_config", "dataset_split"], "triplets are read from files")
    check_files(data_args.train_file)
    held_out = None
    if data_args.validation_file:
        held_out = read_groups(data_args, args, held_out=True)
    else:
        refuse_idle(data_args, ["form", "text_columns"], "triplets name their columns")
    rows = load_unseen(load_triplets, data_args.train_file, held_out, "triplet")
    logger.info("%s: %s triplets", ", ".join(data_args.train_file), f"{len(rows):,}")
    columns = dict(zip(("source", "target", "negative"), zip(*rows, strict=True), strict=True))
    return FixedPairs(columns, args.order_seed), held_out


def make_collator(
    triplet_args: TripletArguments, data_args: DataArguments, rows: Rows
) -> Callable[[Sequence[Any]], Any]:
    """Make what turns examples into batches."""
    given = triplet_args.examples == "triplets" or triplet_args.remine_steps is not None
    kind = SimCseCollator if given else MemberCollator
    return kind(rows, max_length=data_args.max_length, max_chars=data_args.max_chars)


def training_texts(train: Train) -> Iterator[str]:
    """Give all sentences that are trained on."""
    columns = train.columns.values() if isinstance(train, FixedPairs) else train.groups["texts"]
    return chain.from_iterable(columns)
