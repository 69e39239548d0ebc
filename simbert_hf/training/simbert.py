"""The parts specific to train_simbert.py: its data, teachers and objective."""

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
    disjoint_from,
    hold_out,
    load_sts,
    load_unseen,
    measure_nothing,
    never_evaluate,
    read_groups,
)
from simbert_hf.training.first_look import spread
from simbert_hf.training.simcse import check_dropout
from simbert_hf.training.teachers import Teacher
from simbert_hf.utils.text import fold
from simbert_hf.utils.textfiles import fault, read_lines

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingData:
    """What one run trains and is evaluated on.

    Attributes:
        train: Pairs drawn from groups.
        validation: Held-out pairs.
        sts: Scored pairs to evaluate on.
        samples: Sentences that evaluations paraphrase.
        unpaired: Sentences for similarity only.
        preferences: A text, a good paraphrase and a bad one.
        one_way: A text and the target to be generated from it.
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
        ValueError: If arguments contradict each other.
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
    """Save by steps and evaluate only at the end, as a stream has no epochs.

    Raises:
        ValueError: If the run would not end, or would hold out groups of its stream.
    """
    if args.max_steps <= 0:
        raise ValueError("A stream has no known length; give --max_steps.")
    if data_args.validation_groups:
        raise ValueError("--streaming cannot hold out groups: give --validation_file instead.")
    if args.even_tokens:
        raise ValueError("Streams cannot be batched by tokens: drop --even_tokens.")
    if args.eval_strategy == "epoch":
        logger.info("A stream has no epochs: it is evaluated at its end, or give steps.")
        never_evaluate(args)
    if args.save_strategy == "epoch":
        logger.info("A stream has no epochs: it saves every %g steps.", args.save_steps)
        args.save_strategy, args.load_best_model_at_end = "steps", False


def load_unpaired(files: Sequence[str], held_out: Dataset | None, *, twice: bool) -> list[str]:
    """Read sentences, except held-out ones.

    Args:
        files: Text files with one sentence per line.
        held_out: Groups to evaluate on, if there are any.
        twice: Keep each sentence once, as equal ones would be each other's negatives. Otherwise
            lines 1 and 2, 3 and 4, ... of each file belong together, and stay so.

    Raises:
        DataError: If a file cannot be read, or nothing is left.
    """
    lines = [load_sentences(file) for file in files]
    for file in () if twice else files:
        check_partners(file)
    size = 1 if twice else 2
    units = [unit for each in lines for unit in zip(*[iter(each)] * size, strict=False)]
    kept = list(filter(disjoint_from(held_out), units))
    if twice:
        distinct: dict[str, tuple[str, ...]] = {}
        for unit in kept:
            distinct.setdefault(fold(unit[0]), unit)
        kept = list(distinct.values())
    if files and not kept:
        raise DataError(f"{', '.join(files)}: too few sentences are left that are not held out.")
    if left_out := sum(map(len, lines)) - size * len(kept):
        why = "equal" if twice else "without a partner"
        logger.info("left out %d unpaired sentences, held out or %s", left_out, why)
    return [text for unit in kept for text in unit]


def check_partners(path: str) -> None:
    """Raise a DataError if a blank line separates a pair of lines."""
    waits, blank = False, 0  # whether a sentence waits for its partner; the last blank line
    for line, text in enumerate(read_lines(path), start=1):
        if not text.strip():
            blank = line
        elif waits and blank:
            remedy = "Write a sentence's partner on the line below it, or drop both"
            raise fault(path, blank, "is blank, but pairs of lines belong together", remedy)
        else:
            waits, blank = not waits, 0


def load_teacher(
    names: Sequence[str], data: TrainingData, args: SimilarityTrainingArguments
) -> Teacher | None:
    """Load the frozen models that teach similarities; return None for no names.

    Several are put on a common scale by a thousand of the unpaired sentences or, if there are
    none, of the training pairs' sources.
    """
    if not names:
        return None
    unrelated = [data.unpaired[i] for i in spread(len(data.unpaired))]
    if not unrelated and len(names) > 1:
        if not isinstance(data.train, PairDataset):
            raise ValueError("Several teachers with --streaming need a --sentences_file.")
        unrelated = [data.train[i]["source"] for i in spread(len(data.train))]
    return Teacher.load(names, unrelated, args.device, args.mixed_precision == "bf16")


def prepare_simbert(
    model: SimBert, data: TrainingData, objective_args: ObjectiveArguments, data_args: DataArguments
) -> str | None:
    """Add the parts to a model that its objective needs, and freeze those that it does not.

    Returns:
        The prefix of the names of an untrained head's weights; None without one.

    Raises:
        ValueError: If the model cannot do what the arguments ask for.
    """
    fresh = objective_args.writes and not model.has_lm_head
    model.has_lm_head |= objective_args.writes
    if fresh:
        logger.info("The base model has no LM head: a new one is trained.")
    if not objective_args.writes:
        model.freeze_idle()
    if data_args.sample_sentences and not model.has_lm_head:
        raise ValueError("--sample_sentences need a trained LM head: drop --seq2seq_weight 0.")
    if data.unpaired and objective_args.simcse_weight:
        check_dropout(model)
    return model.head_prefix if fresh else None


def make_simbert_objective(
    objective_args: ObjectiveArguments, data: TrainingData, args: SimilarityTrainingArguments
) -> SimBertObjective:
    """Build the objective that the arguments name, with its teachers.

    Raises:
        ValueError: If arguments contradict each other.
    """
    if data.preferences and args.gradcache_batch_size:
        raise ValueError("Preferences need whole batches: drop --gradcache_batch_size.")
    teacher = load_teacher(objective_args.teacher_name_or_path, data, args)
    weights = {each.name: getattr(objective_args, each.name) for each in fields(LossArguments)}
    return SimBertObjective(**weights, teacher=teacher)


def make_simbert_collator(
    model: SimBert, data: TrainingData, objective_args: ObjectiveArguments, data_args: DataArguments
) -> PairCollator:
    """Make the collator that turns pairs, and the other texts, into batches."""
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
