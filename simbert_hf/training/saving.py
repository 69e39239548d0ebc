"""A Trainer whose checkpoints are complete or absent, and whose uploads are one commit each."""

from __future__ import annotations

import logging
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import CommitInfo
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import Trainer, TrainerCallback, TrainerState
from transformers.trainer import TRAINER_STATE_NAME, TRAINING_ARGS_NAME
from transformers.trainer_callback import ExportableState
from transformers.trainer_jit_checkpoint import JITCheckpointCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, HubStrategy

from simbert_hf.hub import open_repository, plan_upload, push
from simbert_hf.training.sharding import own_shards
from simbert_hf.training.stopping import StopAtStepEnd
from simbert_hf.utils.atomic import SCRATCH, put_in_place

logger = logging.getLogger(__name__)

ANEW = "the best checkpoint will be chosen among those from here on"
TRAINING_HEADS = ("training_head", "class_centres", "pair_classifier")


def checkpoints_in(directory: Path) -> dict[int, Path]:
    """Find the folders named like checkpoints, by their steps."""
    found = (
        re.fullmatch(rf"{PREFIX_CHECKPOINT_DIR}-(\d+)", each.name) for each in directory.glob("*")
    )
    return {int(name[1]): directory / name[0] for name in found if name}


def _remove(checkpoint: Path, scratch: Path) -> None:
    """Move a checkpoint away first: what a kill leaves of it might look complete in its place."""
    with suppress(OSError):
        checkpoint.rename(scratch)  # which is not there: a full disk has no room for a folder
    shutil.rmtree(scratch, ignore_errors=True)


class CheckpointPart(TrainerCallback):
    """A callback whose state is part of each checkpoint."""

    def load(self, directory: Path) -> None:
        """Load this process's part of the checkpoint that a run resumes from."""
        raise NotImplementedError

    def save(self, directory: Path) -> None:
        """Write this process's part of a checkpoint that is not in place yet."""
        raise NotImplementedError


class SavingTrainer(Trainer):
    """transformers' Trainer, made safe against kills, full disks and diverged weights."""

    _saving = False

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if callback := self.pop_callback(JITCheckpointCallback):
            callback.on_train_end(self.args, self.state, self.control)  # it has taken SIGTERM

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train as transformers does; with ``enable_jit_checkpoint``, stop at SIGTERM.

        Raises:
            KeyboardInterrupt: At SIGTERM, after saving a checkpoint.
        """
        if not self.args.enable_jit_checkpoint:
            return super().train(*args, **kwargs)
        stop = StopAtStepEnd(self.accelerator)
        self.add_callback(stop)
        former = signal.signal(signal.SIGTERM, stop.ask)
        try:
            return super().train(*args, **kwargs)
        except KeyboardInterrupt:
            pass  # dropping its traceback ends worker processes
        finally:
            signal.signal(signal.SIGTERM, former)
            self.remove_callback(stop)
        raise KeyboardInterrupt

    def _init_training_state(
        self, steps: int, updates: int, epochs: int, checkpoint: str | None, trial: Any
    ) -> Any:
        """Look for a resumed run's best checkpoint in its folder, which may have been moved.

        If it was not copied, forget its figure too, which later ones would have to beat. Callbacks
        that the former run lacked are given a state, without which they could not be saved.
        """
        found = super()._init_training_state(steps, updates, epochs, checkpoint, trial)
        place, state = Path(checkpoint or "", TRAINER_STATE_NAME), self.state
        saved: Any = state.stateful_callbacks
        for callback in (*self.callback_handler.callbacks, self.control):
            if isinstance(callback, ExportableState):
                saved.setdefault(type(callback).__name__, callback.state())
        if checkpoint is None or not place.is_file():
            return found
        best = TrainerState.load_from_json(str(place)).best_model_checkpoint
        own = Path(str(self.args.output_dir), Path(best or "").name)
        if best and own.is_dir():
            state.best_model_checkpoint = str(own)
            logger.info("the best checkpoint so far is %s", own)
        elif best and state.best_model_checkpoint is None and self.args.load_best_model_at_end:
            logger.warning("%s is missing: %s", Path(best).name, ANEW)
            state.best_metric = state.best_global_step = None
        return found

    def _finalize_training(self, *args: Any, **kwargs: Any) -> Any:
        """Keep the last checkpoint beside the best: no model is saved yet."""
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        try:
            return super()._finalize_training(*args, **kwargs)
        finally:
            self.args.save_total_limit = limit

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        try:
            super()._load_from_checkpoint(resume_from_checkpoint, model)
        except RuntimeError as error:
            if "loading state_dict" not in str(error):
                raise
            raise ValueError(
                f"{resume_from_checkpoint} is from another model: resume with the same data and "
                f"arguments. {error}"
            ) from error

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        try:
            super()._load_optimizer_and_scheduler(checkpoint)
        except (KeyError, ValueError) as error:
            raise ValueError(
                f"{checkpoint} is from another model or loss: resume with the same arguments. "
                f"{error!r}"
            ) from error
        if checkpoint is not None:
            self._load_parts(Path(checkpoint))

    def _load_parts(self, folder: Path) -> None:
        """Read what :meth:`_save_parts` wrote."""
        for part in self._parts():
            part.load(folder)

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """Do not report what checkpoints leave out, such as an untrained LM head."""
        model: Any = self.model
        weights, missing = model.state_dict(), load_result.missing_keys
        saved = model.weights_to_save({name: weights[name] for name in missing})
        missing[:] = [name for name in missing if name in saved]
        super()._issue_warnings_after_load(load_result)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Write a checkpoint to a scratch folder and move it into place once it is complete.

        Trainer writes in place, so that a kill or a full disk would leave a partial checkpoint,
        and deletes older ones before the new one is on the disk.

        Raises:
            OSError: If it cannot be written; earlier checkpoints are left intact.
        """
        out = Path(super()._get_output_dir(trial))
        name = f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        with self._scratch_folder(out) as scratch:
            self._saving = True
            try:
                super()._save_checkpoint(model, trial)
            finally:
                self._saving = False
            self._save_parts(scratch / name)
            best = out / f"{PREFIX_CHECKPOINT_DIR}-{self.state.best_global_step}"
            if best == out / name or best.exists():  # Trainer looks in the scratch folder
                self.state.best_model_checkpoint = str(best)
            if self.args.should_save:
                self.state.save_to_json(str(scratch / name / TRAINER_STATE_NAME))
            self.accelerator.wait_for_everyone()  # each process writes its random state
            if self.is_world_process_zero():
                put_in_place(scratch / name, out / name)
            self.accelerator.wait_for_everyone()
        if self.args.should_save:
            self._remove_spare(out)
        if self.args.push_to_hub and self.args.hub_strategy == HubStrategy.EVERY_SAVE:
            self._push_checkpoint(out / name)

    def _remove_spare(self, out: Path) -> None:
        """Keep ``save_total_limit`` checkpoints: the new one, the best, and the latest others.

        Later steps, which a run resumed from an earlier checkpoint has left behind, go first. Times
        say nothing of age, as Trainer assumes: clocks are set back, and folders are copied.
        """
        now, there = self.state.global_step, checkpoints_in(out)
        # The best step itself has none, if it was evaluated but not saved
        best = Path(self.state.best_model_checkpoint or "")
        kept = {step for step, path in there.items() if step == now or path == best}
        others = sorted(there.keys() - kept, key=lambda step: (step < now, step))
        if limit := max(self.args.save_total_limit or 0, 0):
            for step in others[: max(len(there) - max(limit, len(kept)), 0)]:
                _remove(there[step], out / SCRATCH)

    def _save_parts(self, folder: Path) -> None:
        """Write to a checkpoint what Trainer does not save."""
        folder.mkdir(parents=True, exist_ok=True)  # another process may not have made it yet
        for part in self._parts():
            part.save(folder)

    def _parts(self) -> list[CheckpointPart]:
        callbacks = self.callback_handler.callbacks
        return [callback for callback in callbacks if isinstance(callback, CheckpointPart)]

    def _check_finite(self) -> None:
        """Raise a ValueError if weights are infinite or NaN, as after a run has diverged."""
        weights = own_shards(self.accelerator.unwrap_model(self.model))
        finite = torch.stack([weight.isfinite().all() for weight in weights]).all()
        if self.accelerator.reduce((~finite).int()):  # each may hold a shard
            raise ValueError(
                f"The run diverged: at step {self.state.global_step} weights are infinite or NaN. "
                "Earlier checkpoints are intact: start over, or from the weights of one of them "
                "(--model_name_or_path), with a lower --learning_rate or lower loss weights."
            )

    def _get_output_dir(self, trial: Any) -> str:
        out = super()._get_output_dir(trial)
        return str(Path(out, SCRATCH)) if self._saving else out

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Do nothing: Trainer would push a pickle, and an incomplete model."""

    @contextmanager
    def _scratch_folder(self, out: Path) -> Iterator[Path]:
        """Yield a folder for what is not complete yet; it is removed afterwards."""
        scratch = out / SCRATCH
        if self.is_local_process_zero():
            shutil.rmtree(scratch, ignore_errors=True)  # a killed run's
        self.accelerator.wait_for_everyone()
        try:
            yield scratch
        except (OSError, SafetensorError, RuntimeError) as error:  # the last is torch's
            raise OSError(
                f"Saving in {out} at step {self.state.global_step} failed: {error}. Earlier "
                "checkpoints are intact; fix the cause (a full disk?) and resume with "
                "--resume_from_checkpoint true."
            ) from error
        finally:
            if self.is_local_process_zero():
                shutil.rmtree(scratch, ignore_errors=True)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save the model; files of an earlier one in ``args.output_dir`` are replaced atomically.

        Heads that only training uses are saved in checkpoints only.

        Raises:
            OSError: If it cannot be written; an earlier model is left intact.
            ValueError: If weights are infinite or NaN; likewise.
        """
        self._check_finite()
        self._end_steps()
        if output_dir is not None:
            with nullcontext() if self._saving else self._heads_left_out():
                super().save_model(output_dir, _internal_call=_internal_call)
            return
        out = Path(str(self.args.output_dir))
        with self._scratch_folder(out) as scratch, self._heads_left_out():
            super().save_model(str(scratch), _internal_call=True)
            if self.args.should_save:
                for path in list(scratch.iterdir()):
                    put_in_place(path, out / path.name)
            self.accelerator.wait_for_everyone()

    def _end_steps(self) -> None:
        """Let a schedule-free optimizer, which trains other weights, restore the model's."""
        optimizer: Any = self.optimizer
        if hasattr(optimizer, "eval"):
            optimizer.eval()

    @contextmanager
    def _heads_left_out(self) -> Iterator[None]:
        model = self.accelerator.unwrap_model(self.model)
        heads = {name: getattr(model, name) for name in TRAINING_HEADS if hasattr(model, name)}
        for name in heads:
            setattr(model, name, None)
        try:
            yield
        finally:
            for name, head in heads.items():
                setattr(model, name, head)

    def init_hf_repo(self, token: str | None = None, private: bool | None = None) -> None:
        """Open the repository before the run, so that a wrong name or token loses no work."""
        if self.is_world_process_zero():
            self.hub_model_id = open_repository(  # type: ignore[assignment]
                self.args.hub_model_id or Path(str(self.args.output_dir)).resolve().name,
                private=self.args.hub_private_repo if private is None else private,
                revision=self.args.hub_revision,
                token=token or self.args.hub_token,
            )

    def push_to_hub(  # type: ignore[override]
        self, commit_message: str = "End of training", **kwargs: Any
    ) -> CommitInfo | None:
        """Save the model and upload ``args.output_dir`` in one commit, see :mod:`simbert_hf.hub`.

        Args:
            commit_message: First line of the commit's message.
            **kwargs: ``private``, ``revision``, ``token``, to override those in ``args``.

        Returns:
            The commit, in the main process; None in others.

        Raises:
            OSError: If the upload fails; the saved model is complete.
        """
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        self.save_model(_internal_call=True)
        if not self.is_world_process_zero():
            return None
        if self.hub_model_id is None:
            self.init_hf_repo(kwargs.get("token"), kwargs.get("private"))
        return self._push(Path(str(self.args.output_dir)), commit_message, **kwargs)

    def _push(self, folder: Path, commit_message: str, **kwargs: Any) -> CommitInfo:
        args = self.args
        options = {"private": args.hub_private_repo, "revision": args.hub_revision}
        options |= {"token": args.hub_token, "commit_message": commit_message}
        found = push(plan_upload(folder), str(self.hub_model_id), **options | kwargs)
        logger.info("pushed %s to %s", folder, found.commit_url)
        return found

    def _push_checkpoint(self, folder: Path) -> None:
        """Push a checkpoint's model; if that fails, the run continues."""
        if self.is_world_process_zero():
            try:
                self._push(folder, f"Training in progress, step {self.state.global_step}")
            except (OSError, ValueError) as error:
                logger.warning("%s The run continues.", error)

    def _save(
        self, output_dir: str | None = None, state_dict: dict[str, Tensor] | None = None
    ) -> None:
        super()._save(output_dir, state_dict)
        pickled = Path(output_dir or str(self.args.output_dir), TRAINING_ARGS_NAME)
        if self.args.should_save:
            pickled.unlink(missing_ok=True)  # a pickle, which nobody should have to load
