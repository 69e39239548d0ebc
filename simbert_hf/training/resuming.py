"""Resuming a run from its newest complete checkpoint."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

from torch.optim.lr_scheduler import LambdaLR
from transformers import TrainerState, TrainingArguments
from transformers.trainer import SCHEDULER_NAME, TRAINER_STATE_NAME
from transformers.utils import SAFE_WEIGHTS_NAME

from simbert_hf.arguments import SimilarityTrainingArguments
from simbert_hf.modeling.loading import damage
from simbert_hf.training.saving import ANEW, CheckpointPart, checkpoints_in
from simbert_hf.utils.atomic import write_json
from simbert_hf.utils.textfiles import read_json

logger = logging.getLogger(__name__)

SETTINGS = "settings.json"
MOST = 2**26  # bytes of a file that are compared
UNSAID = ("token", "cache_dir")  # a secret, and a path on this machine
NEEDED = ("config.json", TRAINER_STATE_NAME, SCHEDULER_NAME, "optimizer*", "rng_state*", "*model*")
# A checkpoint restores the optimiser's; with another seed, other groups would be held out.
KEPT = (
    "learning_rate", "head_learning_rate", "weight_decay", "adam_beta1", "adam_beta2",
    "adam_epsilon", "optim", "seed", "pooling",
)  # fmt: skip
TOLD = (
    "per_device_train_batch_size", "gradient_accumulation_steps", "data_seed", "length_window",
    "even_tokens", "dataloader_drop_last", "max_steps", "num_train_epochs", "lr_scheduler_type",
    "lr_scheduler_kwargs", "warmup_steps", "max_grad_norm", "optim_args", "neftune_noise_alpha",
    "bf16", "fp16",
)  # fmt: skip
BEST = ("metric_for_best_model", "greater_is_better")  # what selects the best checkpoint
# What does not change the metrics of an evaluation; anything else may.
UNMEASURED = (
    *TOLD, "processes", "model_name_or_path", "revision", "hidden_dropout", "attention_dropout",
    "sample_sentences",
)  # fmt: skip


@dataclass
class SameRun(CheckpointPart):
    """Saves a run's settings in its checkpoints, and only resumes from those of the same run.

    Attributes:
        settings: Values by name.
        writes: Whether this process writes them, and tells what differs.
        measures_anew: Whether the resumed run was evaluated differently.
    """

    settings: dict[str, Any]
    writes: bool = True
    measures_anew: bool = False

    @classmethod
    def of(cls, args: SimilarityTrainingArguments, *others: Any, **facts: Any) -> SameRun:
        """Collect a run's settings.

        Args:
            args: Its training arguments.
            *others: Dataclasses of other arguments, all of which count, except secrets.
            **facts: Settings that these lack, or that override them.
        """
        known = {name: getattr(args, name) for name in (*KEPT, *TOLD, *BEST) if hasattr(args, name)}
        told = (item for other in others for item in vars(other).items())
        known |= {name: value for name, value in told if name not in UNSAID}
        files = {f"{name}_crc32": some for name, some in known.items() if name.endswith("_file")}
        known |= {name: checksum(files[name] or ()) for name in files.keys() - facts.keys()}
        known |= {"processes": args.world_size} | facts
        return cls(json.loads(json.dumps(known, default=str)), args.should_save)

    def save(self, directory: Path) -> None:
        """Write the settings."""
        if self.writes:
            write_json(directory / SETTINGS, self.settings)

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        *others: Any,
        lr_scheduler: Any = None,
        **more: Any,
    ) -> None:
        """Use the current steps and learning rate, not those of the checkpoint."""
        state.compute_steps(args, state.max_steps)
        if self.measures_anew:  # the former best had another metric
            state.best_metric = state.best_global_step = state.best_model_checkpoint = None
        if isinstance(lr_scheduler, LambdaLR):  # a loaded optimizer has the former rate
            groups = lr_scheduler.optimizer.param_groups
            schedules = zip(lr_scheduler.base_lrs, lr_scheduler.lr_lambdas, strict=True)
            for group, (rate, share) in zip(groups, schedules, strict=True):
                group["lr"] = rate * share(lr_scheduler.last_epoch)
            lr_scheduler._last_lr = [group["lr"] for group in groups]  # which is logged

    def load(self, directory: Path) -> None:
        """Compare the settings with those of the checkpoint.

        Raises:
            ValueError: If one differs that would be ignored, or must not change.
        """
        place = directory / SETTINGS
        former = read_json(place) if place.exists() else self.settings
        for name, now in self.settings.items():
            then = former.get(name, now)
            if then == now:
                continue
            if name in KEPT:
                raise ValueError(
                    f"{directory} is from a run with --{name} {then}, not {now}, and can only be "
                    "resumed with that: give it, or start a new run from its weights, with "
                    f"--model_name_or_path {directory} and another --output_dir."
                )
            if self.writes:  # once, not in each process
                logger.warning(
                    "%s is from a run with another %s: %s, now %s", directory, name, then, now
                )
            self.measures_anew |= name not in UNMEASURED and file_names(then) != file_names(now)
        if self.measures_anew and self.writes:
            logger.warning(ANEW)


def checksum(files: str | Sequence[str], text: str = "") -> int:
    """Return the CRC-32 of a text and files, of each of these at most the first 64 MiB.

    Others than files are skipped.

    Example:
        >>> checksum([]), checksum("org/a-data-set")
        (0, 0)
    """
    found = crc32(text.encode(errors="replace"))
    for file in map(Path, [files] if isinstance(files, str) else files):
        if file.is_file():
            with file.open("rb") as stream:
                found = crc32(stream.read(MOST), found)
    return found


def file_names(value: Any) -> Any:
    """Reduce paths to their names, as files may have moved.

    Example:
        >>> file_names(["data/pairs.csv", 5]), file_names("dev.csv")
        (['pairs.csv', 5], 'dev.csv')
    """
    if isinstance(value, list):
        return list(map(file_names, value))
    return Path(value).name if isinstance(value, str) else value


def checkpoint_of(args: SimilarityTrainingArguments) -> str | None:
    """Return the checkpoint from which a run is to resume; None for a new run.

    Raises:
        ValueError: If the given checkpoint cannot be resumed from, or a new run would mix its
            checkpoints with those of an earlier one.
    """
    out = Path(str(args.output_dir))
    wanted = str(args.resume_from_checkpoint)  # a path, or a flag as a string or a bool
    there = checkpoints_in(out)
    if wanted.lower() in ("none", "false"):
        if there:
            raise ValueError(
                f"{there[max(there)]} is from an earlier run: give --resume_from_checkpoint true "
                "to resume it, give another --output_dir, or remove it."
            )
        if (out / SAFE_WEIGHTS_NAME).exists():
            logger.warning("%s holds a model, which the new one will replace at the end", out)
        return None
    if wanted.lower() == "true":
        checkpoint = newest_checkpoint(out)
        if there and checkpoint is None:
            fault = fault_of(there[max(there)])
            raise ValueError(
                f"No checkpoint in {out} can be resumed from: {there[max(there)].name} {fault}. "
                "Remove them to start over, or give another --output_dir."
            )
        logger.info("resuming from %s", checkpoint or "nothing: there is no checkpoint")
        return checkpoint
    if fault := fault_of(Path(wanted)):
        raise ValueError(
            f"--resume_from_checkpoint {wanted} {fault}: name a complete checkpoint-... folder, or "
            "true for the newest."
        )
    step = next((at for at, path in there.items() if path.samefile(wanted)), None)
    if step is not None and step < max(there):
        logger.warning(
            "%s is later than %s: remove it if --resume_from_checkpoint true must not use it",
            there[max(there)],
            wanted,
        )
    return wanted


def newest_checkpoint(directory: Path) -> str | None:
    """Return the newest checkpoint that is complete and can be resumed from."""
    for _, path in sorted(checkpoints_in(directory).items(), reverse=True):
        fault = fault_of(path)
        if not fault:
            return str(path)
        logger.warning("%s is skipped: it %s", path, fault)
    return None


def fault_of(checkpoint: Path) -> str:
    """Return why a run cannot resume from a checkpoint; "" if it can.

    This package's checkpoints are complete or absent. But Trainer alone writes in place, and with
    ``save_only_model`` nothing but weights; and a copy may be truncated.
    """
    if not checkpoint.is_dir():
        return "is not a folder"
    lacking = [name for name in NEEDED if not any(checkpoint.glob(name))]
    if lacking:
        return f"lacks {lacking[0]}"
    try:
        TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
    except (TypeError, ValueError) as error:  # cut short, or no object of its fields
        return f"has a damaged {TRAINER_STATE_NAME} ({error})"
    faults = ((file.name, damage(file)) for file in sorted(checkpoint.iterdir()))
    return next((f"has a damaged {name} ({fault})" for name, fault in faults if fault), "")
