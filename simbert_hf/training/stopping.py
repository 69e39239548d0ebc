"""SIGTERM, with which clusters reclaim machines: a run ends after a step, with a checkpoint."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import torch
from accelerate import Accelerator
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import SaveStrategy

LINGER = 10  # seconds that worker processes outlive SIGTERM


class StopAtStepEnd(TrainerCallback):
    """Ends a run at SIGTERM with a checkpoint, once all processes have finished the current step.

    transformers' own callback saves in the middle of a step, whose batch a resume then skips.
    After an epoch's last step it waits for one more, as what is due at its end would be lost.
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
        """Save if a process was asked to stop."""
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
            KeyboardInterrupt: If the run is to stop; the checkpoint is complete.
        """
        if self.stopping:
            raise KeyboardInterrupt


def outlive_sigterm(_: int) -> None:
    """Let a worker process outlive a signal to its process group by a step, or until the next one.

    A worker that is just starting does not, and ends the run with an error.
    """

    def linger(*_: Any) -> None:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        timer = threading.Timer(LINGER, os._exit, [0])
        timer.daemon = True
        timer.start()

    signal.signal(signal.SIGTERM, linger)
