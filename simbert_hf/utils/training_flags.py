"""Checks of training flags that refuse what cannot work, before any data are read."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from math import inf

import torch
from accelerate.utils import DynamoBackend
from torch._inductor import list_mode_options
from torch.compiler import list_backends
from torch.optim import SGD
from transformers import SchedulerType, TrainingArguments, get_scheduler

FROM_0 = ("learning_rate", "head_learning_rate", "weight_decay", "max_grad_norm", "warmup_steps")
ABOVE_0 = ("num_train_epochs", "logging_steps", "eval_steps", "save_steps")
COUNTS = ("per_device_train_batch_size", "gradient_accumulation_steps")
SEEDS = ("seed", "data_seed")
PACKAGES = {"azure_ml": "azureml-core", "flyte": "flytekit"}  # whose names are not the logger's


def check_training(args: TrainingArguments, given: Collection[str]) -> None:
    """Refuse numbers, loggers and the like that would make training fail late, or do nothing.

    Args:
        args: Arguments of a training script.
        given: Names of the flags that were given, except by a preset.

    Raises:
        ValueError: If a flag is refused.
    """
    _check_numbers(args)
    if args.max_steps < 1 and args.max_steps != -1:
        raise ValueError(
            f"--max_steps {args.max_steps}: give at least 1, or drop it for --num_train_epochs."
        )
    if "do_train" in given and not args.do_train:
        raise ValueError("--do_train false: this script only trains; drop it.")
    if args.fp16 and args.device.type == "cpu":
        raise ValueError("--fp16 true needs a GPU; give --bf16 true.")
    _check_schedule(args)
    _check_compilation(args.torch_compile_backend, args.torch_compile_mode)
    if args.report_to:
        _check_loggers(args.report_to)


def _check_numbers(args: TrainingArguments) -> None:
    for name in (*FROM_0, *ABOVE_0, *COUNTS, *SEEDS):
        value = getattr(args, name, None)
        if value is None or (name == "num_train_epochs" and args.max_steps > 0):
            continue
        fits, due = 0 <= value < inf, "a finite number, 0 or more"  # NaN is in no range
        if name in ABOVE_0:
            fits, due = 0 < value < inf, "a finite number above 0"
        elif name in COUNTS:
            fits, due = value >= 1, "at least 1"
        elif name in SEEDS:
            fits, due = 0 <= value < 2**32, "0 to 4294967295"
        if not fits:
            raise ValueError(f"--{name} {value}: give {due}.")


def _check_schedule(args: TrainingArguments) -> None:
    kwargs, weight = args.lr_scheduler_kwargs, torch.zeros(1, requires_grad=True)
    optimizer = SGD([weight], lr=args.learning_rate)
    try:
        get_scheduler(args.lr_scheduler_type, optimizer, 1, 2, kwargs)  # type: ignore[arg-type]
    except (AttributeError, TypeError, ValueError) as error:
        kind = SchedulerType(args.lr_scheduler_type).value
        given = f" --lr_scheduler_kwargs {json.dumps(kwargs)}" if kwargs else ""
        raise ValueError(f"--lr_scheduler_type {kind}{given}: {error}") from error


def _check_compilation(name: str | None, mode: str | None) -> None:
    if mode:
        modes = list_mode_options()
        if mode not in modes:
            raise ValueError(f"--torch_compile_mode {mode}: choose one of {', '.join(modes)}.")
    name = name.lower() if name else None
    if name and name != "inductor":  # listing them takes seconds
        accelerates = {each.value for each in DynamoBackend}
        known = [each for each in list_backends(exclude_tags=()) if each.upper() in accelerates]
        if name not in known:
            raise ValueError(f"--torch_compile_backend {name}: choose one of {', '.join(known)}.")


def _check_loggers(names: Iterable[str]) -> None:
    from transformers import integrations  # slow to import

    known = integrations.integration_utils.INTEGRATION_TO_CALLBACK
    left_out = {"azure_ml", "flyte"}  # may be missing from the list though installed
    ready = left_out.union(integrations.get_available_reporting_integrations())
    for name in names:
        if name not in known:
            raise ValueError(f"--report_to {name}: choose none, or from {', '.join(known)}.")
        if name not in ready:
            package = PACKAGES.get(name, name)
            raise ValueError(
                f"--report_to {name}: {package} is not installed (pip install {package}), or "
                "disabled by its environment variable; give --report_to none."
            )
