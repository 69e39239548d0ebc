"""Arguments, data and objective of ``train_triplet.py``, beyond ``training/``."""

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
from simbert_hf.mining.negatives import ONE_GROUP, MiningSettings
from simbert_hf.objectives import SimCseObjective
from simbert_hf.rows import Rows
from simbert_hf.training.base_models import GRU_PRESET
from simbert_hf.training.data import check_files, hold_out, load_unseen, make_evaluator, read_groups
from simbert_hf.triplet.losses import Distance, Mining
from simbert_hf.triplet.members import MemberCollator, MemberDataset
from simbert_hf.triplet.objective import TripletObjective
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
MINABLE = ("triplet", "unanchored")
# An encoder's vectors are not of length 1, so squared distances are larger than cosine ones.
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
    """Triplets: their source, and the loss."""

    examples: str = flag(
        "groups",
        "What --train_file holds: groups, with negatives mined in each batch, or triplets (columns "
        "sent0, sent1, hard_neg), such as scripts/mine_negatives.py writes.",
        ("groups", "triplets"),
    )
    loss: str = flag(
        "triplet",
        "triplet; unanchored (against any hard negative pair of the batch); sdml; softmax over the "
        "batch; or siamese (pairs classified by [u, v, |u - v|]).",
        tuple(READ),
    )
    mining: str | None = flag(
        None, "How --loss triplet mines negatives in batches; hard if not given.", get_args(Mining)
    )
    distance: str | None = flag(
        None,
        "Distance of triplet, unanchored and sdml; if not given, cosine, but squared for sdml.",
        get_args(Distance),
    )
    margin: float | None = flag(None, "Margin; if not given, 0.2 (cosine) or 1 (squared).")
    scale: float = flag(20.0, "Inverse temperature of softmax.")
    smoothing: float = flag(0.3, "Label smoothing of sdml.")
    sentences_per_group: int = flag(
        2,
        "K sentences of each of the --per_device_train_batch_size groups in a batch; for classes, "
        "4 or more give better negatives.",
    )
    remine_steps: int | None = flag(
        None,
        "Instead of the batch's negatives use hard ones, mined by the model among all training "
        "groups at the start and again every so many steps. One process mines, while the others "
        "wait up to --ddp_timeout seconds.",
    )
    range_min: int = flag(0, "With --remine_steps: nearest sentences of other groups to skip.")

    def __post_init__(self) -> None:
        check_scale(self.scale)
        if self.mining and (self.loss, self.examples) != ("triplet", "groups"):
            raise ValueError(
                f"--mining {self.mining} is only for --loss triplet on groups: drop it."
            )
        if self.margin is not None and not 0 <= self.margin < math.inf:
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
            raise ValueError("--remine_steps mines single positives: drop --sentences_per_group.")
        if pairwise and self.sentences_per_group != 2:
            raise ValueError(
                f"--sentences_per_group {self.sentences_per_group}: --loss {self.loss} on "
                f"{self.examples} uses pairs; drop it."
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
                "--remine_steps mines groups for --loss triplet or unanchored: drop --mining and "
                "--examples, and choose one of these losses."
            )

    def callbacks(self, train: Train) -> list[TrainerCallback]:
        """Return the callback that renews the triplets, if they are renewed."""
        if not isinstance(train, RenewedTriplets):
            return []
        assert self.remine_steps is not None
        return [Renewal(train, self.remine_steps, MiningSettings(range_min=self.range_min))]

    def objective(self) -> TripletObjective | SimCseObjective:
        """Build the objective that the arguments describe."""
        if self.loss == "softmax":
            return SimCseObjective(scale=self.scale, symmetric=self.examples == "groups")
        distance: Any = self.distance or ("squared" if self.loss == "sdml" else "cosine")
        loss: Any = self.loss
        mining: Any = self.mining or "hard"
        return TripletObjective(
            loss,
            mining,
            distance,
            margin=MARGINS[distance] if self.margin is None else self.margin,
            smoothing=self.smoothing,
        )


def load_triplet_data(
    triplet_args: TripletArguments, data_args: DataArguments, args: SimilarityTrainingArguments
) -> tuple[Train, Evaluator | None]:
    """Read groups or triplets, and the evaluation data: held-out groups, or scored pairs.

    Raises:
        DataError: If a file cannot be read, or nothing is left to train on.
        ValueError: If an argument is not supported by this training.
    """
    why = "triplets are drawn from all data at once, and nothing is generated"
    refuse_idle(data_args, ["streaming", "sample_sentences"], why)
    train: Train
    if triplet_args.examples == "triplets":
        train, held_out = load_given_triplets(data_args, args)
    else:
        groups, held_out = hold_out(read_groups(data_args, args), data_args, args)
        together = args.per_device_train_batch_size * args.world_size
        if triplet_args.remine_steps is None and together < 2:
            raise ValueError(
                "--per_device_train_batch_size 1: a group's negatives are the other groups of its "
                "batch; give at least 2."
            )
        if len(set(groups["group"])) < 2:
            raise DataError(ONE_GROUP)
        train = examples_of(groups, triplet_args, args)
    evaluator = make_evaluator(held_out, data_args, args)
    if isinstance(evaluator, StsEvaluator) and args.metric_for_best_model == "eval_top1":
        args.metric_for_best_model = "eval_sts_spearman"  # the presets' eval_top1 needs groups
    return train, evaluator


def examples_of(
    groups: Dataset, triplet_args: TripletArguments, args: SimilarityTrainingArguments
) -> MemberDataset | RenewedTriplets:
    """Make parts of groups, or triplets that are mined repeatedly.

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
    train = RenewedTriplets(groups, triplet_args.remine_steps * step, args.order_seed)
    if args.max_steps <= 0:  # otherwise the steps between two minings would count as an epoch
        args.max_steps = math.ceil(args.num_train_epochs * train.rows / step)
        logger.info(
            "training for %d steps: each sentence is an anchor once per epoch", args.max_steps
        )
    return train


def load_given_triplets(
    data_args: DataArguments, args: SimilarityTrainingArguments
) -> tuple[FixedPairs, Dataset | None]:
    """Read triplets that share no sentence with ``--validation_file``, and the groups of that file.

    Raises:
        DataError: If a file cannot be read, or no triplets are left.
        ValueError: If groups are to be held out of triplets.
    """
    if data_args.validation_groups:
        raise ValueError("Triplets have no groups: give --validation_file, not a number of groups.")
    refuse_idle(data_args, ["dataset_config", "dataset_split"], "triplets are read from files")
    check_files(data_args.train_file)
    held_out = None
    if data_args.validation_file:
        held_out = read_groups(data_args, args, held_out=True)
    else:
        refuse_idle(data_args, ["data_format", "text_columns"], "triplets name their columns")
    rows = load_unseen(load_triplets, data_args.train_file, held_out, "triplet")
    logger.info("%s: %s triplets", ", ".join(data_args.train_file), f"{len(rows):,}")
    columns = dict(zip(("source", "target", "negative"), zip(*rows, strict=True), strict=True))
    return FixedPairs(columns, args.order_seed), held_out


def make_collator(
    triplet_args: TripletArguments, data_args: DataArguments, rows: Rows
) -> Callable[[Sequence[Any]], Any]:
    """Make the collator for the examples."""
    given = triplet_args.examples == "triplets" or triplet_args.remine_steps is not None
    kind = SimCseCollator if given else MemberCollator
    return kind(rows, max_length=data_args.max_length, max_chars=data_args.max_chars)


def training_texts(train: Train) -> Iterator[str]:
    """Return all sentences that are trained on."""
    columns = train.columns.values() if isinstance(train, FixedPairs) else train.groups["texts"]
    return chain.from_iterable(columns)
