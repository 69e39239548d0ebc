"""SIGTERM, by which clusters take machines back: a run ends behind a step, with a checkpoint."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import torch
from accelerate import Accelerator  # type: ignore[import-untyped]
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import SaveStrategy

LINGER = 10  # seconds that worker processes outlive SIGTERM


class StopAtStepEnd(TrainerCallback):
    """Ends a run at SIGTERM with a checkpoint, once all processes are done with the step at hand.

    transformers' own saves in the middle of a step, whose batch is then left out after a resume.
    Behind an epoch's last step it waits for one more, as what is due there would be lost.
    """

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator
        self.asked = self.waited = self.stopping = False

    def ask(self, *_: Any) -> None:
        """Stop at the next step that ends."""
        self.asked = True

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Save, if a process was asked to stop."""
        asked = self.asked
        if args.world_size > 1:
            asked = bool(self.accelerator.reduce(torch.tensor(int(asked), device=args.device)))
        if asked and state.global_step < state.max_steps:
            here = self.waited or (state.epoch or 0) % 1 > 0
            control.should_save |= here
            self.stopping = here or args.save_strategy == SaveStrategy.EPOCH
            self.waited = True

    def on_save(self, *_: Any, **__: Any) -> None:
        """Stop.

        Raises:
            KeyboardInterrupt: If the run is to stop; the checkpoint is whole.
        """
        if self.stopping:
            raise KeyboardInterrupt


def outlive_sigterm(_: int) -> None:
    """Let a worker process outlive a signal to its whole group by a step, or until another one.

    One that is just being started does not, and ends the run as an error does.
    """

    def linger(*_: Any) -> None:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        timer = threading.Timer(LINGER, os._exit, [0])
        timer.daemon = True
        timer.start()

    signal.signal(signal.SIGTERM, linger)
