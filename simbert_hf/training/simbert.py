"""What train_simbert.py has to itself: its data, teachers and objective."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, fields

from datasets import Dataset

from simbert_hf.arguments import DataArguments, ObjectiveArguments, SimilarityTrainingArguments
from simbert_hf.collators import PairCollator
from simbert_hf.data import (
    DataError,
    PairDataset,
    PairStream,
    Triplet,
    load_one_way_pairs,
    load_sentences,
    load_triplets,
)
from simbert_hf.data.scored import ScoredPair
from simbert_hf.modeling.simbert import SimBert
from simbert_hf.objectives import LossArguments, SimBertObjective
from simbert_hf.rows import check_texts
from simbert_hf.training.data import (
    check_measured,
    hold_out,
    load_sts,
    load_unseen,
    measure_nothing,
    never_evaluate,
    read_groups,
    strangers_to,
)
from simbert_hf.training.first_look import spread
from simbert_hf.training.simcse import check_dropout
from simbert_hf.training.teachers import Teacher
from simbert_hf.utils.text import fold
from simbert_hf.utils.textfiles import fault, read_lines

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingData:
    """What one run trains and is measured on.

    Attributes:
        train: Groups, of which pairs are drawn.
        validation: Groups held out.
        sts: Scored pairs to measure on.
        samples: Sentences that evaluations paraphrase.
        unpaired: Sentences for similarity alone.
        preferences: A text, a good paraphrase and a bad one.
        one_way: A text and what is to be written of it.
    """

    train: PairDataset | PairStream
    validation: PairDataset | None = None
    sts: Sequence[ScoredPair] = ()
    samples: Sequence[str] = ()
    unpaired: Sequence[str] = ()
    preferences: Sequence[Triplet] = ()
    one_way: Sequence[tuple[str, str]] = ()


def load_training_data(
    objective_args: ObjectiveArguments, data_args: DataArguments, args: SimilarityTrainingArguments
) -> TrainingData:
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
    groups, held_out = hold_out(read_groups(data_args, args), data_args, args)
    check_measured(held_out, data_args)
    seed = args.order_seed
    train: PairDataset | PairStream
    if data_args.streaming:
        train = PairStream(groups, seed, process=args.process_index, processes=args.world_size)
    else:
        train = PairDataset(groups, seed)
    validation, samples = None, data_args.sample_sentences or []
    if held_out is None:
        measure_nothing(args)
    else:
        validation = PairDataset(held_out, seed)
        if data_args.sample_sentences is None:
            samples = [validation[i]["source"] for i in range(min(4, len(validation)))]
    more, sts = objective_args, load_sts(data_args)
    unpaired = load_unpaired(more.sentences_file, held_out, twice=more.simcse_weight > 0)
    preferences = load_unseen(load_triplets, more.preferences_file, held_out, "preference")
    one_way = load_unseen(load_one_way_pairs, more.one_way_file, held_out, "one-way pair")
    return TrainingData(train, validation, sts, samples, unpaired, preferences, one_way)


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
    for file in () if twice else files:
        check_partners(file)
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


def check_partners(path: str) -> None:
    """Raise a DataError if a blank line stands inside a pair of lines."""
    waits, blank = False, 0  # a sentence for its partner; since this line
    for line, text in enumerate(read_lines(path), start=1):
        if not text.strip():
            blank = line
        elif waits and blank:
            remedy = "Write a sentence's partner on the line below it, or drop both"
            raise fault(path, blank, "is blank, though two lines at a time go together", remedy)
        else:
            waits, blank = not waits, 0


def load_teacher(
    names: Sequence[str], data: TrainingData, args: SimilarityTrainingArguments
) -> Teacher | None:
    """Load the frozen models that teach similarities; None for no names.

    Several are put on one scale by a thousand of the unpaired sentences or, where there are none,
    of the training pairs' sources.
    """
    if not names:
        return None
    strangers = [data.unpaired[i] for i in spread(len(data.unpaired))]
    if not strangers and len(names) > 1:
        if not isinstance(data.train, PairDataset):
            raise ValueError("Several teachers and --streaming need a --sentences_file.")
        strangers = [data.train[i]["source"] for i in spread(len(data.train))]
    return Teacher.load(names, strangers, args.device, args.mixed_precision == "bf16")


def prepare_simbert(
    model: SimBert, data: TrainingData, objective_args: ObjectiveArguments, data_args: DataArguments
) -> str | None:
    """Give a model the parts that its objective needs, and freeze those that it does not.

    Returns:
        What the names of a head's weights begin with, if it is a fresh one.

    Raises:
        ValueError: If the model cannot do what the arguments ask for.
    """
    fresh = objective_args.writes and not model.has_lm_head
    model.has_lm_head |= objective_args.writes
    if fresh:
        logger.info("The start has no LM head: a fresh one learns to write.")
    if not objective_args.writes:
        model.freeze_idle()
    if data_args.sample_sentences and not model.has_lm_head:
        raise ValueError("--sample_sentences are written by an LM head; drop --seq2seq_weight 0.")
    if data.unpaired and objective_args.simcse_weight:
        check_dropout(model)
    return model.head_prefix if fresh else None


def make_simbert_objective(
    objective_args: ObjectiveArguments, data: TrainingData, args: SimilarityTrainingArguments
) -> SimBertObjective:
    """Build the objective that the arguments name, with its teachers.

    Raises:
        ValueError: If the arguments do not go together.
    """
    if data.preferences and args.gradcache_batch_size:
        raise ValueError("Preferences are compared in whole batches: drop --gradcache_batch_size.")
    teacher = load_teacher(objective_args.teacher_name_or_path, data, args)
    weights = {each.name: getattr(objective_args, each.name) for each in fields(LossArguments)}
    return SimBertObjective(**weights, teacher=teacher)


def make_simbert_collator(
    model: SimBert, data: TrainingData, objective_args: ObjectiveArguments, data_args: DataArguments
) -> PairCollator:
    """Make what turns pairs, and the other texts, into batches."""
    return PairCollator(
        model.rows,
        max_length=data_args.max_length,
        max_chars=data_args.max_chars,
        mlm=objective_args.mlm_weight > 0,
        denoising=objective_args.denoising,
        texts=bool(objective_args.teacher_name_or_path),
        sentences=data.unpaired,
        twice=objective_args.simcse_weight > 0,
        targets=objective_args.seq2seq_weight > 0,
        preferences=data.preferences,
        one_way=data.one_way,
    )
