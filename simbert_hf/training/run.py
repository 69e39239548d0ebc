"""What the training scripts share: logging, data, the run itself."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list  # type: ignore[import-untyped]
from datasets import Dataset

from simbert_hf.arguments import (
    PRESETS,
    DataArguments,
    ModelArguments,
    SimilarityTrainingArguments,
    refuse_idle,
)
from simbert_hf.cards import CardArguments, record_run, write_card
from simbert_hf.data import (
    DataError,
    FixedPairs,
    PairDataset,
    PairStream,
    Triplet,
    load_groups,
    load_scored_pairs,
    load_sentences,
    load_triplets,
    split_groups,
    usual_share,
)
from simbert_hf.data.groups import is_local
from simbert_hf.data.readers import fold
from simbert_hf.data.scored import ScoredPair, check_scores
from simbert_hf.modeling.architectures import ARCHITECTURES
from simbert_hf.modeling.checkpoint import resolve_name
from simbert_hf.modeling.embedding import Embedder, hub_options
from simbert_hf.modeling.encoder import SentenceEncoder
from simbert_hf.modeling.simbert import SimBert, read_config
from simbert_hf.rows import check_texts
from simbert_hf.trainer import PARAPHRASES, SimilarityTrainer
from simbert_hf.training.first_look import check_read, some_sentences, spread, warn_of_labels
from simbert_hf.training.resuming import SameRun, checkpoint_of
from simbert_hf.training.teachers import Teacher
from simbert_hf.utils.parsing import Presets

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingData:
    """What one run trains and is measured on."""

    train: PairDataset | FixedPairs | PairStream
    validation: PairDataset | None
    sts: Sequence[tuple[str, str, float]]
    sentences: Sequence[str]


def set_up_logging(args: SimilarityTrainingArguments) -> None:
    """Log to the terminal, from the main process of each machine only."""
    level = logging.INFO if args.should_log else logging.WARNING
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("simbert_hf").setLevel(level)


def load_model(model_args: ModelArguments, max_length: int) -> SimBert:
    """Load the start of a run on pairs of sentences.

    Args:
        model_args: Where it is, and how to load it.
        max_length: Longest sentence in tokens; a row holds two.

    Raises:
        OSError: If there is none.
        ValueError: If none is named, it has too few positions for such rows, or is whitened.
    """
    model = SimBert.from_pretrained(named_start(model_args), **model_args.load_options())
    check_start(model, model_args, max_length, sentences=2)
    return model


def load_encoder(name_or_path: str, **options: Any) -> SimBert | SentenceEncoder:
    """Load a BERT or its like as :class:`SimBert`, another encoder as :class:`SentenceEncoder`.

    Arguments and errors as of their ``from_pretrained``.
    """
    name_or_path, hub = resolve_name(name_or_path), hub_options(options)
    if read_config(name_or_path, hub).get("model_type") in ARCHITECTURES:
        return SimBert.from_pretrained(name_or_path, **options)
    return SentenceEncoder.from_pretrained(name_or_path, **options)


def load_start(model_args: ModelArguments, max_length: int) -> SimBert | SentenceEncoder:
    """Load the start of a run that only embeds, one sentence a row; else as :func:`load_model`."""
    model = load_encoder(named_start(model_args), **model_args.load_options())
    check_start(model, model_args, max_length, sentences=1)
    return model


def named_start(model_args: ModelArguments) -> str:
    """Return the directory or Hub id to start from; raise a ValueError where none is named."""
    if not model_args.model_name_or_path:
        raise ValueError("Nothing to start from; give --model_name_or_path a directory or Hub id.")
    return model_args.model_name_or_path


def check_start(
    model: Embedder, model_args: ModelArguments, max_length: int, sentences: int
) -> None:
    """Refuse a model that is whitened, or has too few positions for its rows.

    Raises:
        ValueError: In these cases.
    """
    longest = model.positions // sentences
    if not 3 <= max_length <= longest:
        raise ValueError(
            f"--max_length {max_length} is out of range: it must be from 3 to {longest}, as a row "
            f"of the model's {model.positions} positions holds "
            f"{'two sentences' if sentences == 2 else 'one sentence'}."
        )
    if model.whitening is not None:
        raise ValueError(
            f"{model_args.model_name_or_path} is whitened, which training would undo: train the "
            "model it was made from, and whiten the result."
        )


def load_training_data(data_args: DataArguments, args: SimilarityTrainingArguments) -> TrainingData:
    """Read, check and split the data; report what was dropped.

    Raises:
        DataError: If a file cannot be read, or nothing is left to train on.
        ValueError: If the arguments do not go together.
    """
    if data_args.streaming:
        prepare_streaming(data_args, args)
    if data_args.sample_sentences:
        try:
            check_texts(data_args.sample_sentences)
        except ValueError as error:
            raise ValueError(f"--sample_sentences: {error}") from None
    groups = read_groups(data_args.train_file, data_args, args, streaming=data_args.streaming)
    groups, held_out = hold_out(groups, data_args, args)
    check_measured(held_out, data_args)
    seed = args.order_seed
    train: PairDataset | PairStream
    if data_args.streaming:
        processes = {"process": args.process_index, "processes": args.world_size}
        train = PairStream(groups, seed, **processes)
    else:
        train = PairDataset(groups, seed)
    if held_out is None:
        measure_nothing(args)
        return TrainingData(train, None, [], [])
    validation = PairDataset(held_out, seed)
    sts = load_sts(data_args)
    sentences = data_args.sample_sentences
    if sentences is None:
        sentences = [validation[i]["source"] for i in range(min(4, len(validation)))]
    return TrainingData(train, validation, sts, sentences)


def prepare_streaming(data_args: DataArguments, args: SimilarityTrainingArguments) -> None:
    """Replace the ends of epochs, which a stream has not: save by steps, evaluate at the end only.

    Raises:
        ValueError: If the run would not end, or is to hold out groups of its stream.
    """
    if args.max_steps <= 0:
        raise ValueError("--streaming knows no length; give --max_steps.")
    if data_args.validation_groups:
        raise ValueError("--streaming holds nothing out: give --validation_file, not a number.")
    if args.even_tokens:
        raise ValueError("--streaming has batches of as many pairs each: drop --even_tokens.")
    if args.eval_strategy == "epoch":
        logger.info("A stream has no epochs: nothing is measured before its end, unless by steps.")
        never_evaluate(args)
    if args.save_strategy == "epoch":
        logger.info("A stream has no epochs: it saves every %g steps.", args.save_steps)
        args.save_strategy, args.load_best_model_at_end = "steps", False


def measure_nothing(
    args: SimilarityTrainingArguments, wanted: str = "--validation_file with groups"
) -> None:
    """Train without evaluation, as there is nothing to evaluate on: ``wanted``."""
    if args.should_log:
        logger.warning(
            "Nothing is measured in training, and the last model is kept, not the best: give %s "
            "to choose by.",
            wanted,
        )
    never_evaluate(args)


def never_evaluate(args: SimilarityTrainingArguments) -> None:
    """Turn evaluation off, and with it what needs one."""
    args.eval_strategy, args.load_best_model_at_end = "no", False
    if args.save_strategy == "best":  # there is none, and a killed run is to go on
        args.save_strategy = "steps"


def check_measured(held_out: Dataset | None, data_args: DataArguments) -> None:
    """Refuse what would not be used: evaluations are those of held-out groups.

    Raises:
        ValueError: If ``--sts_file`` or ``--sample_sentences`` is given and no group is held out.
    """
    for name in ("sts_file", "sample_sentences"):
        if held_out is None and getattr(data_args, name):
            raise ValueError(
                f"--{name} goes with the evaluation on held-out groups, and there are none: give "
                f"--validation_file or --validation_groups, or drop --{name}."
            )


def hold_out(
    groups: Any, data_args: DataArguments, args: SimilarityTrainingArguments
) -> tuple[Any, Dataset | None]:
    """Part the groups into those to train and those to measure on, no sentence on both sides."""
    if data_args.validation_file:
        held_out = read_groups([data_args.validation_file], data_args, args, to_train=False)
        return without_sentences_of(held_out, groups), held_out
    if data_args.streaming:
        return groups, None
    wanted = data_args.validation_groups
    wanted = usual_share(groups) if wanted is None else wanted
    return split_groups(groups, wanted, seed=args.seed) if wanted else (groups, None)


def without_sentences_of(held_out: Dataset, groups: Any) -> Any:
    """Drop held-out sentences, but for case and white space, and groups with less than two others.

    Raises:
        DataError: If none is left.
    """
    seen = folded(held_out)
    touched = partial(_without, seen)
    kept = groups.map(touched, input_columns="texts").filter(_are_several, input_columns="texts")
    if isinstance(kept, Dataset):
        if not len(kept):
            raise DataError("Every training group is of sentences of the validation file.")
        logger.info("left out held-out sentences, and so %d groups", len(groups) - len(kept))
    return kept


def folded(held_out: Dataset) -> set[str]:
    """Collect held-out sentences without case and white space."""
    return {fold(text) for texts in held_out["texts"] for text in texts}


def strangers_to(held_out: Dataset | None) -> Callable[[Iterable[str]], bool]:
    """Make a test whether none of some sentences is held out, but for case and white space."""
    seen = set() if held_out is None else folded(held_out)
    return lambda texts: seen.isdisjoint(map(fold, texts))


def _without(seen: set[str], texts: list[str]) -> dict[str, list[str]]:
    return {"texts": [text for text in texts if fold(text) not in seen]}


def _are_several(texts: list[str]) -> bool:
    return len(texts) > 1


def load_unpaired(files: Sequence[str], held_out: Dataset | None, *, twice: bool) -> list[str]:
    """Read sentences, less the held-out ones.

    Args:
        files: One a line.
        held_out: Groups to be measured on, if there are any.
        twice: Keep each sentence once, as equal ones were each other's negatives. Otherwise lines 1
            and 2, 3 and 4, ... of each file go together, and stay so.

    Raises:
        DataError: If a file cannot be read, or nothing is left.
    """
    lines = [load_sentences(file) for file in files]
    size = 1 if twice else 2
    units = [unit for each in lines for unit in zip(*[iter(each)] * size, strict=False)]
    kept = list(filter(strangers_to(held_out), units))
    if twice:
        distinct: dict[str, tuple[str, ...]] = {}
        for unit in kept:
            distinct.setdefault(fold(unit[0]), unit)
        kept = list(distinct.values())
    if files and not kept:
        raise DataError(f"{', '.join(files)}: too few sentences that are not held out are left.")
    if left_out := sum(map(len, lines)) - size * len(kept):
        why = "equal" if twice else "without a partner"
        logger.info("left out %d unpaired sentences, held out or %s", left_out, why)
    return [text for unit in kept for text in unit]


def load_preferences(files: Sequence[str], held_out: Dataset | None) -> list[Triplet]:
    """Read preferences, less those with held-out sentences.

    Raises:
        DataError: If a file cannot be read, or nothing is left.
    """
    rows = [row for file in files for row in load_triplets(file)]
    kept = list(filter(strangers_to(held_out), rows))
    if rows and not kept:
        raise DataError(f"{', '.join(files)}: every preference holds a held-out sentence.")
    if len(kept) < len(rows):
        logger.info("left out %d preferences with held-out sentences", len(rows) - len(kept))
    return kept


def load_sts(data_args: DataArguments) -> list[ScoredPair]:
    """Read ``--sts_file``, if one is given; raise a DataError if nothing can correlate with it."""
    if not data_args.sts_file:
        return []
    pairs = load_scored_pairs(data_args.sts_file)
    check_scores(data_args.sts_file, pairs)
    return pairs


def read_groups(
    files: Sequence[str],
    data_args: DataArguments,
    args: SimilarityTrainingArguments,
    streaming: bool = False,
    to_train: bool = True,
) -> Any:
    """Read groups as the arguments say, the main process first; report what was dropped."""
    check_files(files)
    hub_options: dict[str, Any] = {}
    if to_train:
        hub_options = {"name": data_args.dataset_config, "split": data_args.dataset_split}
        if all(map(is_local, files)):
            idle = ["dataset_config", "dataset_split"]
            refuse_idle(data_args, idle, "--train_file names no data set on the Hub")
    with args.main_process_first(desc="reading the data"):
        groups, report = load_groups(
            files,
            form=data_args.form,  # type: ignore[arg-type]
            text_columns=data_args.pair_columns(),
            max_chars=data_args.max_chars or 4 * data_args.max_length,
            streaming=streaming,
            **hub_options,
        )
    logger.info("%s: %s", ", ".join(files), report)
    columns = data_args.pair_columns()
    if columns and data_args.form in ("auto", "pairs") and not streaming and args.should_log:
        warn_of_labels(groups, columns, files)
    return groups


def read_columns(examples: str, files: Sequence[str]) -> dict[str, Sequence[Any]]:
    """Read sentences, triplets or scored pairs as columns of :class:`FixedPairs`."""
    check_files(files)
    if examples == "sentences":
        sentences = [text for file in files for text in load_sentences(file)]
        return {"source": sentences, "target": sentences}
    load, third = (
        (load_triplets, "negative") if examples == "triplets" else (load_scored_pairs, "score")
    )
    rows: list[tuple[Any, ...]] = [row for file in files for row in load(file)]
    if examples == "scored":
        check_scores(", ".join(files), rows)  # type: ignore[arg-type]
    return dict(zip(("source", "target", third), zip(*rows, strict=True), strict=True))


def check_files(files: Sequence[str]) -> None:
    """Raise a DataError where there are none."""
    if not files:
        raise DataError("Nothing to train on; give --train_file with a file of examples.")


def load_teacher(
    names: Sequence[str],
    sentences: Sequence[str],
    data: TrainingData,
    args: SimilarityTrainingArguments,
) -> Teacher | None:
    """Load the frozen models that teach similarities; None for no names.

    Several are put on one scale by a thousand of the unpaired sentences or, where there are none,
    of the training pairs' sources.
    """
    if not names:
        return None
    strangers = sentences[:: max(1, len(sentences) // 1000)][:1000]
    if not strangers and len(names) > 1:
        if not isinstance(data.train, PairDataset):
            raise ValueError("Several teachers and --streaming need a --sentences_file.")
        strangers = [data.train[i]["source"] for i in spread(len(data.train))]
    return Teacher.load(names, strangers, args.device, args.mixed_precision == "bf16")


def run(trainer: SimilarityTrainer, *arguments: Any, presets: Presets = PRESETS) -> None:
    """Train (or go on training), then save the model, the log, the last figures and a card.

    Args:
        trainer: Knows model, data and its own arguments.
        *arguments: The run's other arguments, which the card tells.
        presets: The script's.
    """
    args, out = trainer.args, Path(str(trainer.args.output_dir))
    args.check_steps()
    model: Any = trainer.model
    files = [file for given in arguments for file in getattr(given, "train_file", ())]
    check_read(model.loaded_tokenizer(), some_sentences(trainer.train_dataset), files)
    rows = None if isinstance(trainer.train_dataset, PairStream) else len(trainer.train_dataset)
    config = getattr(model, "config", None)  # knows the pooling that no flag tells
    pooling = getattr(config, "sentence_pooling", None)
    trainer.add_callback(SameRun.of(args, *arguments, rows=rows, pooling=pooling))
    [checkpoint] = broadcast_object_list([checkpoint_of(args)])  # all fail where one lacks it
    if checkpoint is None and args.should_save:  # what a former run measured
        for name in (PARAPHRASES, "eval_results.json", "all_results.json"):
            (out / name).unlink(missing_ok=True)
    if args.process_index:  # else all would drop the same units
        torch.manual_seed(args.seed + args.process_index)
    trainer.train(resume_from_checkpoint=checkpoint)
    for name in ("training_head", "class_centres", "pair_classifier"):  # checkpoints keep them
        setattr(trainer.accelerator.unwrap_model(trainer.model), name, None)
    trainer.save_model()
    if trainer.evaluator is not None:
        trainer.save_metrics("eval", last_figures(trainer))
    trainer.save_state()  # which then holds the figures of what is saved
    if trainer.is_world_process_zero():
        name, told = Path(sys.argv[0]).name, [*arguments, args]
        record_run(out, name, rows, told, presets["modern"], args.world_size)
        try:
            write_card(CardArguments(model=str(out), repo_id=args.hub_model_id or ""))
        except ValueError as error:  # a card of somebody's own
            logger.info("%s", error)
    if args.push_to_hub:
        trainer.push_to_hub()


def last_figures(trainer: SimilarityTrainer) -> dict[str, float]:
    """Return the figures of the final weights, measured anew unless the log has them."""
    history = trainer.state.log_history
    measured = [line for line in history if any(name.startswith("eval_") for name in line)]
    known = measured and measured[-1]["step"] == trainer.state.global_step
    if known and not trainer.args.load_best_model_at_end:
        return measured[-1]
    return trainer.evaluate()
