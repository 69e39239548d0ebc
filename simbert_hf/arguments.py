"""The flags of the training scripts, and the defaults that their presets change."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from importlib.util import find_spec
from math import inf
from typing import Any, get_args

import torch
from transformers import TrainingArguments

from simbert_hf.data.readers import DataFormat
from simbert_hf.objectives import LossArguments
from simbert_hf.pooling import POOLINGS
from simbert_hf.utils.checks import check_scale, check_weights
from simbert_hf.utils.parsing import Presets, flag

# What each preset changes of the defaults below. ``original`` is SimBERT's released recipe.
PRESETS: Presets = {
    "modern": {},
    "original": {
        "pooling": "linear_pooler",
        "attention_dropout": 0.0,
        "max_length": 32,
        "max_chars": 30,
        "mask_false_negatives": False,
        "learning_rate": 2e-6,
        "head_learning_rate": 2e-6,
        "lr_scheduler_type": "constant",
        "warmup_steps": 0,
        "weight_decay": 0.01,
        "decay_all_parameters": True,
        "max_grad_norm": 0.0,
        "length_window": 1,
        "per_device_train_batch_size": 64,
    },
}

# Metrics for which lower is better.
LOSSES = ("loss", "seq2seq", "similarity", "perplexity", "mean_cosine")
# Schedules that follow the evaluated metric.
FOLLOWING = ("reduce_lr_on_plateau", "greedy")
# Flags of transformers that have no effect here, or a harmful one: a smaller batch than was asked
# for changes the loss.
IDLE = (
    "auto_find_batch_size",
    "average_tokens_across_devices",
    "batch_eval_metrics",
    "bf16_full_eval",
    "ddp_find_unused_parameters",
    "do_predict",
    "eval_accumulation_steps",
    "eval_do_concat_batches",
    "eval_use_gather_object",
    "fp16_full_eval",
    "label_names",
    "label_smoothing_factor",
    "length_column_name",
    "per_device_eval_batch_size",
    "prediction_loss_only",
    "remove_unused_columns",
    "save_on_each_node",
    "train_sampling_strategy",
    "use_cache",
)


@dataclass
class ModelArguments:
    """The base model: the one that training starts from."""

    model_name_or_path: str = flag(
        "", "Directory or Hub id of the base model: a BERT for SimBERT, else any encoder."
    )
    revision: str = flag("main", "Branch, tag or commit on the Hub.")
    token: str | None = flag(
        None, "Hub token for a private base model; HF_TOKEN serves data and teachers too."
    )
    cache_dir: str | None = flag(None, "Cache for the base model; HF_HOME moves all downloads.")
    pooling: str | None = flag(None, "Pooling; by default the checkpoint's, else mean.", POOLINGS)
    hidden_dropout: float | None = flag(
        None, "Dropout of hidden states; by default the checkpoint's."
    )
    attention_dropout: float | None = flag(
        None, "Dropout of attention; by default the checkpoint's."
    )

    def __post_init__(self) -> None:
        for name in ("hidden_dropout", "attention_dropout"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ValueError(f"--{name} {value}: it must be in [0, 1).")

    def load_options(self) -> dict[str, Any]:
        """Return the keyword arguments for ``from_pretrained``, without those that are None."""
        options = {
            "revision": self.revision,
            "token": self.token,
            "cache_dir": self.cache_dir,
            "pooling": self.pooling,
            "hidden_dropout_prob": self.hidden_dropout,
            "attention_probs_dropout_prob": self.attention_dropout,
        }
        return {name: value for name, value in options.items() if value is not None}


@dataclass
class DataArguments:
    """The data to train and evaluate on."""

    train_file: list[str] = flag(
        [], "Files of groups or pairs (jsonl, csv, tsv, txt, parquet), or a Hub id."
    )
    dataset_config: str | None = flag(None, "Subset of a Hub data set.")
    dataset_split: str = flag("train", "Split of a Hub data set.")
    data_format: str = flag(
        "auto",
        "What the rows hold, if the file does not make that clear.",
        get_args(DataFormat),
    )
    text_columns: list[str] | None = flag(None, "The columns that hold the sentences of a pair.")
    streaming: bool = flag(False, "Do not load all rows at once; needs --max_steps.")
    validation_file: str | None = flag(None, "Groups to evaluate on, instead of held-out ones.")
    validation_groups: int | None = flag(
        None, "Groups held out from training; by default about a tenth, at most 500."
    )
    sts_file: str | None = flag(None, "Scored sentence pairs for a Spearman correlation.")
    sample_sentences: list[str] | None = flag(
        None, "Sentences paraphrased at each evaluation; the card shows them."
    )
    max_length: int = flag(64, "Maximum tokens of a sentence, with special tokens.")
    max_chars: int | None = flag(None, "Cut sentences at punctuation to this many characters.")

    def __post_init__(self) -> None:
        if self.validation_file and self.validation_groups:
            refuse_idle(self, ["validation_groups"], "--validation_file holds the groups")
        if self.max_chars is not None and self.max_chars < 1:
            raise ValueError(f"--max_chars {self.max_chars}: give at least 1.")


@dataclass(frozen=True)
class ObjectiveArguments(LossArguments):
    """SimBERT's loss, and the data that it takes besides pairs."""

    # Off, unlike the objective's: that one weighs masks if a batch has any, this one adds them.
    mlm_weight: float = flag(0.0, "Weight of an MLM loss on the source; 0 masks nothing.")
    denoising: bool = flag(False, "Corrupt half of the sources (RoFormer-Sim).")
    teacher_name_or_path: list[str] = flag(
        [],
        "Sentence-transformers models whose mean cosines between the batch's sentences are "
        "distilled; one named twice counts twice. The base model as teacher preserves an "
        "encoder's general quality on narrow data.",
    )
    sentences_file: list[str] = flag(
        [],
        "Unpaired sentences, one per line, for SimCSE and the teacher; for the latter, lines 1 "
        "and 2, 3 and 4, ... should be related (mine_pairs.py writes such a .txt).",
    )
    preferences_file: list[str] = flag(
        [],
        "Files with columns prompt, chosen and rejected: a sentence, a good paraphrase and a bad "
        "one to make less likely (SimPO); one is drawn per pair.",
    )

    one_way_file: list[str] = flag(
        [],
        "Files with columns source and target: pairs of which only the target is generated, such "
        "as human sentences from a model's paraphrases of them (back-translation); two are drawn "
        "per pair.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        weights = [self.seq2seq_weight, self.similarity_weight, self.mlm_weight]
        if self.teacher_name_or_path:
            weights.append(self.distillation_weight)
            self._check_distillation()
        else:
            idle = ["distillation_weight", "unrelated_weight", "unrelated_cosine"]
            refuse_idle(self, idle, "there is no --teacher_name_or_path")
        if self.sentences_file:
            weights.append(self.simcse_weight)
        else:
            refuse_idle(self, ["simcse_weight", "simcse_scale"], "there is no --sentences_file")
        if self.preferences_file:
            weights.append(self.preference_weight)
            self._check_preferences()
        else:
            names = ["preference_weight", "preference_scale", "preference_margin"]
            refuse_idle(self, names, "there is no --preferences_file")
        if self.one_way_file and not self.seq2seq_weight:
            raise ValueError("--one_way_file is for the seq2seq loss: drop --seq2seq_weight 0.")
        if self.mlm_weight:
            refuse_idle(self, ["denoising"], "--mlm_weight masks the sources")
        check_weights(weights)
        if self.sentences_file and not (self.simcse_weight or self.teacher_name_or_path):
            raise ValueError("--sentences_file with --simcse_weight 0 needs a teacher.")

    def _check_distillation(self) -> None:
        if not self.distillation_weight:
            raise ValueError("--distillation_weight 0: drop --teacher_name_or_path instead.")
        if len(self.teacher_name_or_path) == 1 and self.unrelated_cosine:
            raise ValueError(
                "--unrelated_cosine would narrow a single teacher's cosines, which are distilled "
                "unchanged: drop it, or give several teachers."
            )

    def _check_preferences(self) -> None:
        if not self.preference_weight:
            raise ValueError("--preference_weight 0: drop --preferences_file instead.")
        check_scale(self.preference_scale, "preference_scale")
        if not 0 <= self.preference_margin < inf:
            raise ValueError(f"--preference_margin {self.preference_margin}: give 0 or more.")

    @property
    def writes(self) -> bool:
        """Whether the LM head is trained."""
        return bool(self.seq2seq_weight or self.mlm_weight or self.preferences_file)


def refuse_idle(arguments: Any, names: Iterable[str], why: str, remedy: str = "drop it") -> None:
    """Raise a ValueError if a flag is given that would have no effect.

    Example:
        >>> refuse_idle(ObjectiveArguments(denoising=True), ["denoising"], "nothing is masked")
        Traceback (most recent call last):
            ...
        ValueError: --denoising True would change nothing, as nothing is masked: drop it.
    """
    for known in fields(arguments):
        value = getattr(arguments, known.name)
        if known.name in names and value != known.default:
            value = getattr(value, "value", value)  # of an enum
            raise ValueError(f"--{known.name} {value} would change nothing, as {why}: {remedy}.")


@dataclass
class SimilarityTrainingArguments(TrainingArguments):
    """transformers' ``TrainingArguments`` with defaults for sentence pairs."""

    per_device_train_batch_size: int = flag(64, "Pairs, sentences or triplets per device and step.")
    learning_rate: float = flag(1e-4, "Peak learning rate.")
    head_learning_rate: float = flag(1e-3, "Peak rate of an untrained LM head or class centres.")
    warmup_steps: float = flag(0.06, "Warm-up steps or, if below 1, share of all steps.")
    lr_scheduler_type: str = flag("cosine", "Learning-rate schedule.")
    weight_decay: float = flag(0.01, "AdamW's weight decay.")
    decay_all_parameters: bool = flag(False, "Apply weight decay to biases and norms too.")
    logging_nan_inf_filter: bool = flag(
        False, "Log the mean of past losses instead of NaN; reads the loss at every step."
    )
    length_window: int = flag(
        50,
        "Batches per process within which similar lengths are grouped (in a stream, its whole "
        "buffer); 1: no grouping.",
    )
    even_tokens: bool = flag(
        False,
        "Fill batches by tokens instead of pairs, to even out time and memory; "
        "--per_device_train_batch_size is then an average.",
    )
    gradcache_batch_size: int = flag(
        0,
        "Rows per forward pass, for batches far larger than fit in memory (GradCache; each row is "
        "computed twice); 0: all rows at once.",
    )
    packing: bool = flag(False, "Run BERT's and ELECTRA's layers without padding.")
    logging_steps: float = flag(50, "Steps between log lines.")
    eval_strategy: str = flag("epoch", "no, steps or epoch.")
    save_strategy: str = flag("epoch", "no, steps, epoch or best.")
    save_total_limit: int | None = flag(2, "Checkpoints to keep.")
    load_best_model_at_end: bool | None = flag(  # type: ignore[assignment]
        None, "Restore the best checkpoint at the end; by default, if all are evaluated."
    )
    metric_for_best_model: str | None = flag(
        "eval_loss", "eval_loss, eval_top1, eval_sts_spearman, ..."
    )
    ddp_find_unused_parameters: bool | None = flag(False, "Must stay false.")
    dataloader_drop_last: bool = flag(True, "Drop an incomplete last batch.")
    dataloader_num_workers: int = flag(
        -1, "Processes that prepare batches ahead; -1: 2 with a GPU, else none."
    )
    remove_unused_columns: bool = flag(False, "Must stay false.")
    hub_strategy: str = flag("end", "With --push_to_hub: push at the end, or at every_save too.")
    report_to: str = field(
        default_factory=lambda: "tensorboard" if find_spec("tensorboard") else "none",
        metadata={"help": "Loggers; by default TensorBoard, if installed."},
    )

    def __post_init__(self) -> None:
        self._heed_launcher()
        self._heed_metric()
        if self.load_best_model_at_end is None:
            self.load_best_model_at_end = self._saves_in_step()
        if self.eval_strategy == "no" and self.save_strategy == "best":
            raise ValueError("--save_strategy best needs an --eval_strategy; give steps or epoch.")
        if self.hub_strategy not in ("end", "every_save"):
            raise ValueError(
                f"--hub_strategy {self.hub_strategy} would upload the optimizer's state, a pickle; "
                "choose end or every_save."
            )
        if self.gradcache_batch_size < 0:
            raise ValueError(
                f"--gradcache_batch_size {self.gradcache_batch_size}: give a number of rows, or 0."
            )
        self.use_cpu = self.use_cpu or not torch.accelerator.is_available()  # bf16 asks for it
        if self.length_window < 1:
            raise ValueError(f"--length_window {self.length_window}: give at least 1.")
        if self.dataloader_num_workers == -1:
            self.dataloader_num_workers = 0 if self.use_cpu else 2
        if self.dataloader_persistent_workers and not self.dataloader_num_workers:
            raise ValueError(
                "--dataloader_persistent_workers true: there are no workers; give "
                "--dataloader_num_workers 2."
            )
        super().__post_init__()
        if self.packing and self.neftune_noise_alpha:
            raise ValueError("--neftune_noise_alpha needs each row's length: drop --packing.")
        self._refuse_others_batches()

    def _heed_launcher(self) -> None:
        """Take the precision and compilation that `accelerate launch` was given as flags.

        accelerate alone would compute in 16 bits without our kernels, and compile the whole model
        anew for each length.
        """
        precision = os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
        if precision in ("bf16", "fp16") and not (self.bf16 or self.fp16):
            setattr(self, precision, True)
        backend = os.environ.get("ACCELERATE_DYNAMO_BACKEND", "no").lower()
        if backend != "no" and not self.torch_compile:
            mode, self.torch_compile = os.environ.get("ACCELERATE_DYNAMO_MODE"), True
            self.torch_compile_backend = self.torch_compile_backend or backend
            self.torch_compile_mode = self.torch_compile_mode or mode

    def _heed_metric(self) -> None:
        """Take the lowest loss, or the greatest of another metric, for the best."""
        self.metric_for_best_model = metric = self.metric_for_best_model or None
        if metric is None:
            return
        is_loss = metric.removeprefix("eval_") in LOSSES
        if self.greater_is_better is None:
            self.greater_is_better = not is_loss
        if self.greater_is_better and is_loss:
            raise ValueError(f"--greater_is_better true: a lower {metric} is better; drop it.")

    def _refuse_others_batches(self) -> None:
        for name in ("split_batches", "dispatch_batches"):
            if getattr(self.accelerator_config, name, False):
                raise ValueError(
                    f"--accelerator_config with {name} has no effect, as each process draws its "
                    "own batches; drop it."
                )

    def _saves_in_step(self) -> bool:
        """Return whether every checkpoint is evaluated, so that the best one can be kept."""
        if self.eval_strategy == "no":
            return False
        if self.save_strategy == self.eval_strategy == "steps":
            often = self.eval_steps or self.logging_steps
            if min(self.save_steps, often) < 1:  # shares of all steps, which are rounded
                return self.save_steps == often
            return not self.save_steps % often
        return self.save_strategy in (self.eval_strategy, "best")

    def check_steps(self) -> None:
        """Raise a ValueError if steps are given although the strategy is epoch."""
        for what in ("eval", "save"):
            if getattr(self, f"{what}_strategy") == "epoch":
                why = f"--{what}_strategy is epoch, not steps"
                remedy = f"give --{what}_strategy steps, or drop it"
                refuse_idle(self, [f"{what}_steps"], why, remedy)

    @property
    def order_seed(self) -> int:
        """Seed of pairs and their order: ``data_seed``, or ``seed`` if that is None."""
        return self.seed if self.data_seed is None else self.data_seed
