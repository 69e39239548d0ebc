"""What the training scripts share: logging, and the run itself."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from accelerate.utils import broadcast_object_list
from transformers import set_seed

from simbert_hf.arguments import PRESETS, SimilarityTrainingArguments
from simbert_hf.cards import CardArguments, write_card
from simbert_hf.data import PairStream
from simbert_hf.run_record import record_run
from simbert_hf.trainer import PARAPHRASES, SimilarityTrainer
from simbert_hf.training.first_look import check_read, some_sentences
from simbert_hf.training.resuming import SameRun, checkpoint_of, checksum, newest_checkpoint
from simbert_hf.utils.locks import alone
from simbert_hf.utils.parsing import Presets
from simbert_hf.utils.script import check_output

logger = logging.getLogger(__name__)

LOCK = "training.lock"  # an empty file in the folder of a run while it is active


def begin(args: SimilarityTrainingArguments, inputs: Sequence[str]) -> None:
    """Check where to save, log from the main process of each machine only, and set the seed.

    Args:
        args: They give the output folder, the process and the seed.
        inputs: Folders or Hub ids of the models that are inputs, for :func:`check_output`.
    """
    check_output(args.output_dir or "", inputs)
    level = logging.INFO if args.should_log else logging.WARNING
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("simbert_hf").setLevel(level)
    set_seed(args.seed)


def run(trainer: SimilarityTrainer, *arguments: Any, presets: Presets = PRESETS) -> None:
    """Train (or resume training), then save the model, the log, the final metrics and a card."""
    args, out = trainer.args, Path(str(trainer.args.output_dir))
    args.check_steps()
    model: Any = trainer.model
    files = [file for given in arguments for file in getattr(given, "train_file", ())]
    sample = some_sentences(trainer.train_dataset)
    check_read(model.loaded_tokenizer(), sample, files)
    rows = None if isinstance(trainer.train_dataset, PairStream) else trainer.train_dataset.rows
    pooling = getattr(model.config, "sentence_pooling", None)  # a GRU's config has none
    read = checksum(files, "\n".join(sample))  # of a data set on the Hub too
    facts = {"rows": rows, "train_file_crc32": read, "pooling": pooling}
    trainer.add_callback(SameRun.of(args, *arguments, **facts))
    with sole_run(args):
        train(trainer)
        save(trainer)
        logger.info("The model is saved in %s.", out)
        if trainer.is_world_process_zero():
            name, told = Path(sys.argv[0]).name, [*arguments, args]
            record_run(out, name, rows, told, presets["modern"], args.world_size)
            try:
                write_card(CardArguments(model=str(out), repo_id=args.hub_model_id or ""))
            except ValueError as error:  # a hand-written card
                logger.info("%s", error)
        if args.push_to_hub:
            trainer.push_to_hub()


@contextmanager
def sole_run(args: SimilarityTrainingArguments) -> Iterator[None]:
    """Lock the output folder for the block, and say how to resume if it is stopped.

    Raises:
        ValueError: In every process, if another run is using the folder.
    """
    out = Path(str(args.output_dir))
    with nullcontext(True) if args.process_index else alone(out / LOCK, out) as free:
        [free] = broadcast_object_list([free])
        if not free:
            raise ValueError(
                f"--output_dir {out} is in use by another process: wait for it, or name another "
                f"folder. (If no process on any machine is using it, remove {LOCK} in it.)"
            )
        try:
            yield
        except KeyboardInterrupt:
            checkpoint = newest_checkpoint(out)
            raise KeyboardInterrupt(
                f"{checkpoint} is complete: resume from it with --resume_from_checkpoint true."
                if checkpoint
                else f"There is no checkpoint in {out} to resume from."
            ) from None


def train(trainer: SimilarityTrainer) -> None:
    """Train from the beginning, or from the checkpoint that the arguments ask for."""
    args, out = trainer.args, Path(str(trainer.args.output_dir))
    [checkpoint] = broadcast_object_list([checkpoint_of(args)])  # all fail if one lacks it
    if checkpoint is None and args.should_save:  # results of an earlier run
        for name in (PARAPHRASES, "eval_results.json", "all_results.json"):
            (out / name).unlink(missing_ok=True)
    trainer.train(resume_from_checkpoint=checkpoint)


def save(trainer: SimilarityTrainer) -> None:
    """Save the model, its final metrics and the log."""
    tell_of_ties(trainer)
    trainer.save_model()
    if trainer.evaluator is not None:
        trainer.save_metrics("eval", last_figures(trainer))
    trainer.save_state()  # which then includes the metrics of the saved model


def last_figures(trainer: SimilarityTrainer) -> dict[str, float]:
    """Return the metrics of the final weights, from the log or a new evaluation."""
    history = trainer.state.log_history
    measured = [line for line in history if any(name.startswith("eval_") for name in line)]
    known = measured and measured[-1]["step"] == trainer.state.global_step
    if known and not trainer.args.load_best_model_at_end:
        return measured[-1]
    figures, best = trainer.evaluate(), best_step(trainer)
    for line in measured:
        if line["step"] == best:
            figures["epoch"] = line["epoch"]  # Trainer's is that of the last step
    return figures


def best_step(trainer: SimilarityTrainer) -> int | None:
    """Return the step of the best checkpoint, if the model is that one."""
    best = trainer.state.best_model_checkpoint
    if best is None or not trainer.args.load_best_model_at_end:
        return None
    return int(best.rpartition("-")[2])


def tell_of_ties(trainer: SimilarityTrainer) -> None:
    """Warn if the metric by which the best checkpoint was chosen was reached again later."""
    best, state = best_step(trainer), trainer.state
    if best is None or not trainer.is_world_process_zero():
        return
    name = f"eval_{str(trainer.args.metric_for_best_model).removeprefix('eval_')}"
    lines = [line for line in state.log_history if name in line and line["step"] > best]
    steps = dict.fromkeys(line["step"] for line in lines if line[name] == state.best_metric)
    if steps:
        logger.warning(
            "The model is that of step %s: %s was %g there, and again at step %s. Hold out more "
            "(--validation_groups), or choose another --metric_for_best_model.",
            f"{best:,}",
            name,
            state.best_metric,
            ", ".join(f"{step:,}" for step in steps),
        )
