"""Arguments, data and objective of ``train_margin_softmax.py``, beyond ``training/``."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from math import inf
from typing import Any

from transformers import TrainerCallback

from simbert_hf.arguments import DataArguments, SimilarityTrainingArguments, refuse_idle
from simbert_hf.data import FixedPairs, labelled_sentences
from simbert_hf.evaluation.evaluators import Evaluator
from simbert_hf.margin.centres import SampledCentres, check_memory
from simbert_hf.margin.classes import MarginObjective, add_centres
from simbert_hf.margin.softmax import KINDS, MarginSoftmax
from simbert_hf.modeling.embedding import Embedder
from simbert_hf.training.base_models import GRU_PRESET
from simbert_hf.training.data import check_measured, hold_out, make_evaluator, read_groups
from simbert_hf.utils.parsing import Presets, flag
from simbert_hf.utils.text import fold
from simbert_hf.utils.textfiles import shorten

logger = logging.getLogger(__name__)

# ``original`` is the article's code, https://github.com/bojone/margin-softmax; its AM-Softmax
# needs 25 epochs, the other losses 20.
_MODERN: dict[str, Any] = {"metric_for_best_model": "eval_top1"}
_GRU = _MODERN | GRU_PRESET
MARGIN_PRESETS: Presets = {
    "modern": _MODERN,
    "gru": _GRU | {"num_train_epochs": 20},
    "original": _GRU
    | {
        "mask_padding": False,
        "max_length": 32,
        "lr_scheduler_type": "constant",
        "warmup_steps": 0,
        "weight_decay": 0.0,
        "max_grad_norm": 0.0,
        "length_window": 1,
        "dataloader_drop_last": False,
        "num_train_epochs": 25,
    },
}


@dataclass
class MarginArguments:
    """Margin softmax: the loss and its classes."""

    loss: str = flag("am", "Kind of softmax.", KINDS)
    scale: float = flag(30.0, "Inverse temperature of the cosines.")
    margin: float | None = flag(
        None, "Margin; if not given, 0.35 (am), 0.5 radians (arc), 4 (sphere, simpler_a)."
    )
    sub_centres: int = flag(1, "Centres per class, of which the nearest counts.")
    sampled_classes: int | None = flag(
        None,
        "Score this many random classes per step besides the batch's own, and keep the centres out "
        "of the optimiser; for 100,000 classes or more.",
    )
    center_weight: float = flag(
        0.0, "Weight of an additional center loss (Wen et al. 2016); 0 for none."
    )

    def __post_init__(self) -> None:
        if self.sub_centres < 1 or (self.sub_centres > 1 and self.loss == "softmax"):
            raise ValueError(
                f"--sub_centres {self.sub_centres}: give 1 or more, and 1 with --loss softmax."
            )
        if self.sampled_classes is not None and self.sampled_classes < 1:
            raise ValueError(f"--sampled_classes {self.sampled_classes}: give at least 1.")
        if not 0 <= self.center_weight < inf or (self.center_weight and self.sampled_classes):
            raise ValueError(
                f"--center_weight {self.center_weight}: give at least 0, and 0 with "
                "--sampled_classes."
            )
        if self.loss == "softmax":
            refuse_idle(self, ["scale"], "--loss softmax has no cosines")
        self.softmax()

    def softmax(self) -> MarginSoftmax:
        """Return the loss that the arguments describe, checked."""
        return MarginSoftmax(self.loss, self.scale, self.margin)  # type: ignore[arg-type]


def load_class_data(
    data_args: DataArguments, args: SimilarityTrainingArguments
) -> tuple[FixedPairs, Evaluator | None]:
    """Read groups as classes, and hold out entire groups for retrieval.

    Raises:
        DataError: If a file cannot be read, or nothing is left to train on.
        ValueError: If an argument is not supported by this training.
    """
    why = "margin softmax reads all classes at once and generates nothing"
    refuse_idle(data_args, ["streaming", "sample_sentences"], why)
    groups, held_out = hold_out(read_groups(data_args, args), data_args, args)
    check_measured(held_out, data_args)
    train = labelled_sentences(groups, args.order_seed)
    classes = n_classes(train)
    logger.info("training: %s sentences of %s classes", f"{len(train):,}", f"{classes:,}")
    if classes < len(groups):
        folded = (fold(text) for row in groups["texts"] for text in row)
        [(shared, _)] = Counter(folded).most_common(1)
        logger.info(
            "groups merged into others, as they share sentences such as %s: %d",
            *(shorten(shared), len(groups) - classes),
        )
    if classes < 2:
        raise ValueError(
            "There is only one class; give at least two groups that share no sentences."
        )
    return train, make_evaluator(held_out, data_args, args)


def n_classes(train: FixedPairs) -> int:
    """Count the classes of labelled sentences."""
    return int(max(train.columns["label"])) + 1


def make_margin_objective(
    model: Embedder,
    classes: int,
    margin_args: MarginArguments,
    args: SimilarityTrainingArguments,
) -> tuple[MarginObjective, list[TrainerCallback]]:
    """Add the centres to the model, or make sampled ones outside it, which are a callback, too.

    Raises:
        ValueError: If they do not fit into memory, or cannot be trained with these arguments.
    """
    sampled = margin_args.sampled_classes
    world = args.world_size
    shape = (classes, margin_args.sub_centres, model.config.hidden_size)
    batch = args.per_device_train_batch_size * (1 if sampled is None else world)
    held = classes if sampled is None else -(-classes // world)
    check_memory((held, *shape[1:]), batch, sampled, args.device)
    if sampled is None:
        weight = margin_args.center_weight
        add_centres(model, shape, args.seed, center_loss=weight > 0)
        return MarginObjective(margin_args.softmax(), center_weight=weight), []
    if not args.learning_rate:
        raise ValueError(
            "--learning_rate 0 gives sampled centres no schedule to follow; to leave the encoder "
            "unchanged, give 1e-12."
        )
    if args.mixed_precision == "fp16":
        raise ValueError("fp16 scales gradients, which sampled centres do not undo; use bf16.")
    rate = args.head_learning_rate
    centres = SampledCentres(shape, sampled, args.seed, args.device, rate)
    return MarginObjective(margin_args.softmax(), centres), [centres]
