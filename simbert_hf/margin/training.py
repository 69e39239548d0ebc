"""What ``train_margin_softmax.py`` needs beside ``training.py``: arguments, encoder, classes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from transformers import TrainerCallback

from simbert_hf.arguments import (
    DataArguments,
    ModelArguments,
    Presets,
    SimilarityTrainingArguments,
)
from simbert_hf.data import FixedPairs
from simbert_hf.embedding import Embedder
from simbert_hf.gru import CharGru
from simbert_hf.margin.centres import CentreCallback, SampledCentres, check_memory
from simbert_hf.margin.classes import (
    MarginObjective,
    RetrievalEvaluator,
    add_centres,
    labelled_sentences,
)
from simbert_hf.margin.softmax import KINDS, MarginSoftmax
from simbert_hf.training import (
    check_measured,
    check_start,
    hold_out,
    load_start,
    load_sts,
    read_groups,
)

logger = logging.getLogger(__name__)

ENCODERS = ("bert", "gru")
GRU = (5, 128, True)  # defaults of --min_count, --gru_size and --mask_padding

# ``original`` is the article's program, https://github.com/bojone/margin-softmax; its AM-Softmax
# wants 25 epochs, the other losses 20.
_MODERN: dict[str, Any] = {"metric_for_best_model": "eval_top1"}
_GRU = _MODERN | {"encoder": "gru", "learning_rate": 1e-3, "per_device_train_batch_size": 100}
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
    """Margin softmax: the encoder, the loss and its classes."""

    encoder: str = field(
        default="bert",
        metadata={
            "help": "bert (or its like), from --model_name_or_path; or gru over characters, a new "
            "one unless --model_name_or_path names one.",
            "choices": ENCODERS,
        },
    )
    loss: str = field(default="am", metadata={"help": "The softmax.", "choices": KINDS})
    scale: float = field(default=30.0, metadata={"help": "Inverse temperature of the cosines."})
    margin: float | None = field(
        default=None,
        metadata={"help": "0.35 (am), 0.5 radians (arc), 4 (sphere, simpler_a) if not given."},
    )
    sub_centres: int = field(
        default=1, metadata={"help": "Centres a class; the nearest one counts."}
    )
    sampled_classes: int | None = field(
        default=None,
        metadata={
            "help": "Score this many random classes a step beside the batch's own, and keep the "
            "centres out of the optimiser; for 100,000 classes or more."
        },
    )
    center_weight: float = field(
        default=0.0,
        metadata={"help": "Weight of the center loss (Wen et al. 2016) beside it; 0 for none."},
    )
    min_count: int = field(default=GRU[0], metadata={"help": "GRU: rarer characters are unknown."})
    gru_size: int = field(
        default=GRU[1], metadata={"help": "GRU: dimension of embedding and state."}
    )
    mask_padding: bool = field(
        default=GRU[2], metadata={"help": "GRU: stop at a sentence's end, not at --max_length."}
    )

    def __post_init__(self) -> None:
        if self.sub_centres < 1 or (self.sub_centres > 1 and self.loss == "softmax"):
            raise ValueError(
                f"--sub_centres {self.sub_centres}: give 1 or more, and 1 with --loss softmax."
            )
        if self.sampled_classes is not None and self.sampled_classes < 1:
            raise ValueError(f"--sampled_classes {self.sampled_classes}: give at least 1.")
        if self.center_weight < 0 or (self.center_weight and self.sampled_classes):
            raise ValueError(
                f"--center_weight {self.center_weight}: give at least 0, and 0 with "
                "--sampled_classes."
            )
        if self.min_count < 1 or self.gru_size < 1:
            raise ValueError("--min_count and --gru_size must be at least 1.")
        if self.encoder == "bert" and (self.min_count, self.gru_size, self.mask_padding) != GRU:
            raise ValueError(
                "--min_count, --gru_size and --mask_padding shape a GRU; give them with --encoder "
                "gru."
            )
        self.softmax()

    def softmax(self) -> MarginSoftmax:
        """Return the loss that the arguments name, checked."""
        return MarginSoftmax(self.loss, self.scale, self.margin)  # type: ignore[arg-type]


def load_class_data(
    data_args: DataArguments, args: SimilarityTrainingArguments
) -> tuple[FixedPairs, RetrievalEvaluator | None]:
    """Read groups as classes, and hold some out whole, to be found by retrieval.

    Raises:
        DataError: If a file cannot be read, or nothing is left to train on.
        ValueError: If an argument asks for what this training does not do.
    """
    if data_args.streaming or data_args.sample_sentences:
        raise ValueError(
            "Margin softmax must know its classes and writes nothing: drop --streaming and "
            "--sample_sentences."
        )
    groups, held_out = hold_out(read_groups(data_args.train_file, data_args, args), data_args, args)
    check_measured(held_out, data_args)
    train = labelled_sentences(groups, args.order_seed)
    classes = n_classes(train)
    logger.info("training: %s sentences of %s classes", f"{len(train):,}", f"{classes:,}")
    if classes < len(groups):
        logger.info("%d groups share sentences with others: one class", len(groups) - classes)
    if classes < 2:
        raise ValueError("There is one class only; give groups that share no sentence.")
    sts = load_sts(data_args)
    if held_out is None:
        logger.info("No groups are held out, so nothing is measured while training.")
        args.eval_strategy, args.load_best_model_at_end = "no", False
        return train, None
    return train, RetrievalEvaluator(held_out, sts)


def n_classes(train: FixedPairs) -> int:
    """Count the classes of labelled sentences."""
    return int(max(train.columns["label"])) + 1


def load_margin_encoder(
    model_args: ModelArguments, margin_args: MarginArguments, max_length: int, texts: Sequence[str]
) -> Embedder:
    """Load the start of a run, or make a GRU with the characters of its texts.

    Raises:
        OSError: If there is no such checkpoint.
        ValueError: If arguments do not go together, or the model has too few positions.
    """
    if margin_args.encoder == "bert":
        encoder = load_start(model_args, max_length)
        encoder.freeze_idle()
        return encoder
    if model_args.pooling or model_args.hidden_dropout or model_args.attention_dropout:
        raise ValueError("--pooling and the dropouts are BERT's; drop them with --encoder gru.")
    if model_args.model_name_or_path:
        options = {k: v for k, v in model_args.load_options().items() if k != "pooling"}
        known = CharGru.from_pretrained(model_args.model_name_or_path, **options)
        check_start(known, model_args, max_length, sentences=1)
        return known
    size = margin_args.gru_size
    gru = CharGru.for_texts(
        texts,
        min_count=margin_args.min_count,
        embedding_size=size,
        hidden_size=size,
        max_length=max_length,
        mask_padding=margin_args.mask_padding,
    )
    logger.info("the GRU knows %s characters", f"{gru.config.vocab_size - 2:,}")
    return gru


def make_margin_objective(
    model: Embedder,
    classes: int,
    margin_args: MarginArguments,
    args: SimilarityTrainingArguments,
) -> tuple[MarginObjective, list[TrainerCallback]]:
    """Put the centres into the model, or make sampled ones beside it with what trains them.

    Raises:
        ValueError: If they do not fit the memory, or fp16 would scale their gradients.
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
    if args.fp16:
        raise ValueError("--fp16 scales gradients, which sampled centres do not undo; take --bf16.")
    centres = SampledCentres(shape, sampled, args.seed, args.device)
    callback = CentreCallback(centres, args.head_learning_rate)
    return MarginObjective(margin_args.softmax(), centres), [callback]
