"""What a run reads and looks at first, how it is stopped and what it measures last."""

import logging
import os
from contextlib import nullcontext
from signal import SIGTERM
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import TrainerControl, TrainerState
from transformers.trainer_utils import SaveStrategy

from simbert_hf.arguments import DataArguments, ObjectiveArguments
from simbert_hf.data import DataError, PairDataset, PairStream, Triplet, split_groups
from simbert_hf.evaluation.evaluators import RetrievalEvaluator
from simbert_hf.training import data as training_data
from simbert_hf.training import run, simbert
from simbert_hf.training.data import (
    hold_out,
    load_sts,
    load_unseen,
    make_evaluator,
    measure_nothing,
    read_groups,
)
from simbert_hf.training.first_look import check_read, warn_of_few_negatives, warn_of_labels
from simbert_hf.training.run import last_figures, tell_of_ties
from simbert_hf.training.simbert import (
    TrainingData,
    load_training_data,
    make_simbert_collator,
    prepare_simbert,
)
from simbert_hf.training.stopping import StopAtStepEnd, outlive_sigterm
from tests.tiny import tiny_simbert, wordpiece_tokenizer


def groups_of(texts: list[list[str]], numbers: list[int] | None = None) -> Dataset:
    return Dataset.from_dict({"texts": texts, "group": numbers or list(range(len(texts)))})


# The first look ----------------------------------------------------------------------------------


def test_half_of_a_sample_must_be_readable() -> None:
    tokenizer = wordpiece_tokenizer()
    check_read(tokenizer, ["a cat", "a dog", "\u4f60\u597d"], ["a.txt"])
    with pytest.raises(DataError, match=r"a\.txt, b\.txt: 50% of the sentences are mostly unknown"):
        check_read(tokenizer, ["a cat"] * 2000 + ["\u4f60\u597d"] * 2000, ["a.txt", "b.txt"])


@pytest.mark.parametrize(
    ("rows", "different", "told"),
    [(200, 9, True), (200, 10, False), (101, 1, True), (100, 1, False)],
)
def test_few_values_in_many_rows_are_labels(
    rows: int, different: int, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    pairs = groups_of([[f"text {i}", f"label {i % different}"] for i in range(rows)])
    warn_of_labels(pairs, ["text", "category"], ["a.csv"])
    assert (f"a.csv has {different} different values of category" in caplog.text) is told


def test_as_many_sets_as_pairs_of_a_batch_are_enough(caplog: pytest.LogCaptureFixture) -> None:
    pairs = PairDataset(groups_of([["a", "b"], ["c", "d"], ["b", "e"]], [0, 1, 0]))
    warn_of_few_negatives(pairs, 2)
    assert not caplog.text
    warn_of_few_negatives(pairs, 3)
    assert "form 2 sets that share no sentence, fewer than the 3 pairs" in caplog.text


# Data --------------------------------------------------------------------------------------------


def test_the_seed_holds_out_groups_and_a_third_is_not_too_much(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    groups = groups_of([[f"a{i}", f"b{i}"] for i in range(9)])
    args: Any = SimpleNamespace(seed=7)
    _, held_out = hold_out(groups, DataArguments(validation_groups=3), args)
    assert held_out["texts"] == split_groups(groups, 3, seed=7)[1]["texts"]
    assert held_out["texts"] != split_groups(groups, 3, seed=0)[1]["texts"]
    assert "held out for evaluation: 3 of 9 groups" in caplog.text
    assert "More than a third" not in caplog.text
    hold_out(groups, DataArguments(validation_groups=4), args)
    assert "More than a third" in caplog.text


def test_groups_are_read_as_the_arguments_say(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = []
    found = groups_of([["a", "b"], ["b", "c"]], [5, 5])
    monkeypatch.setattr(
        training_data, "load_groups", lambda files, **given: told.append(given) or (found, "")
    )
    args: Any = SimpleNamespace(main_process_first=lambda desc: nullcontext(), should_log=False)
    given = DataArguments(train_file=["a.tsv"], max_length=16, streaming=True, validation_file="v")
    read_groups(given, args)
    with pytest.raises(DataError, match="v: has all sentences in one group"):
        read_groups(given, args, held_out=True)  # two rows that share a sentence
    assert [(each["max_chars"], each["streaming"]) for each in told] == [(64, True), (64, False)]


def test_all_files_are_read_and_scores_must_differ(tmp_path) -> None:
    rows = {"a": [("x", "y")], "b": [("z", "w")]}
    assert load_unseen(rows.__getitem__, ["a", "b"], None, "pair") == rows["a"] + rows["b"]
    (file := tmp_path / "sts.tsv").write_text("a\tb\t1\nc\td\t1\n")
    with pytest.raises(DataError, match=r"sts\.tsv"):
        load_sts(DataArguments(sts_file=str(file)))


def test_held_out_groups_and_scored_pairs_are_measured_together(tmp_path) -> None:
    (file := tmp_path / "sts.tsv").write_text("a\tb\t1\nc\td\t2\n")
    told: Any = SimpleNamespace()
    evaluator = make_evaluator(groups_of([["a", "b"]]), DataArguments(sts_file=str(file)), told)
    assert isinstance(evaluator, RetrievalEvaluator)
    assert [tuple(pair) for pair in evaluator.sts] == [("a", "b", 1.0), ("c", "d", 2.0)]


def test_where_nothing_is_measured_no_measure_is_begun_or_chosen_by() -> None:
    args: Any = SimpleNamespace(
        should_log=False, eval_on_start=True, eval_strategy="steps", save_strategy="best",
        load_best_model_at_end=True, lr_scheduler_type="linear",
    )  # fmt: skip
    measure_nothing(args)
    found = args.eval_on_start, args.eval_strategy, args.save_strategy, args.load_best_model_at_end
    assert found == (False, "no", "steps", False)


# SimBERT's parts ---------------------------------------------------------------------------------


def settings(**more: Any) -> Any:
    given = {"order_seed": 7, "process_index": 1, "world_size": 2, "should_log": False}
    given |= {"max_steps": 5, "even_tokens": False, "eval_strategy": "no", "save_strategy": "epoch"}
    given |= {"lr_scheduler_type": "linear"}
    return SimpleNamespace(**given, save_steps=5, load_best_model_at_end=True, **more)


@pytest.mark.parametrize("streaming", [False, True])
def test_the_pairs_of_a_run_are_drawn_by_its_seed(
    streaming: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups, held_out = (groups_of([[f"{c}{i}", f"{c}{c}{i}"] for i in range(6)]) for c in "ab")
    train = groups.to_iterable_dataset() if streaming else groups
    monkeypatch.setattr(simbert, "read_groups", lambda *_: train)
    monkeypatch.setattr(simbert, "hold_out", lambda *_: (train, held_out))
    args = settings()
    found = load_training_data(ObjectiveArguments(), DataArguments(streaming=streaming), args)
    assert found.train.seed == 7
    if isinstance(found.train, PairStream):
        assert (found.train.process, found.train.processes) == (1, 2)
        assert (args.save_strategy, args.load_best_model_at_end) == ("steps", False)
        return
    assert found.validation is not None
    assert found.validation.seed == 7
    assert list(found.samples) == [found.validation[i]["source"] for i in range(4)]


def test_every_argument_of_a_batch_reaches_the_collator() -> None:
    model, limits = tiny_simbert(), DataArguments(max_length=9, max_chars=5)
    data = TrainingData(
        PairDataset(groups_of([["a", "b"]])), unpaired=["c", "d"], one_way=[("e", "f")],
        preferences=[Triplet("g", "h", "i")],
    )  # fmt: skip
    for told, wanted in (
        ({"denoising": True}, {"denoising": True, "mlm": False, "targets": True, "texts": False}),
        (
            {"mlm_weight": 0.1, "seq2seq_weight": 0.0, "teacher_name_or_path": ["t"],
             "simcse_weight": 0.0, "sentences_file": ["s"]},
            {"denoising": False, "mlm": True, "targets": False, "texts": True, "twice": False},
        ),
        ({"sentences_file": ["s"]}, {"twice": True}),
    ):  # fmt: skip
        found = make_simbert_collator(model, data, ObjectiveArguments(**told), limits)
        assert {name: getattr(found, name) for name in wanted} == wanted
        assert (found.max_length, found.max_chars) == (9, 5)
        assert list(found.sentences) == ["c", "d"]
        assert (found.one_way, found.preferences) == (data.one_way, data.preferences)


def test_a_head_without_a_loss_stays_and_is_frozen() -> None:
    model, data = tiny_simbert(), TrainingData(PairDataset(groups_of([["a", "b"]])))
    told = ObjectiveArguments(seq2seq_weight=0.0)
    assert prepare_simbert(model, data, told, DataArguments()) is None
    assert model.has_lm_head
    head = [p for name, p in model.named_parameters() if name.startswith(model.head_prefix)]
    assert head
    assert not any(parameter.requires_grad for parameter in head)


def test_only_views_by_dropout_need_dropout() -> None:
    still = tiny_simbert(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    data = TrainingData(PairDataset(groups_of([["a", "b"]])), unpaired=["c", "d"])
    taught = ObjectiveArguments(sentences_file=["s"], simcse_weight=0.0, teacher_name_or_path=["t"])
    assert prepare_simbert(still, data, taught, DataArguments()) is None
    with pytest.raises(ValueError, match="two views of a sentence by dropout"):
        prepare_simbert(still, data, ObjectiveArguments(sentences_file=["s"]), DataArguments())


def test_one_teacher_needs_no_scale_and_embeds_as_training_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(simbert.Teacher, "load", lambda *given: given)
    data = TrainingData(PairDataset(groups_of([["a", "b"]])))
    for precision in ("bf16", "no"):
        args = SimpleNamespace(device="cpu", mixed_precision=precision)
        found: Any = simbert.load_teacher(["t"], data, args)  # type: ignore[arg-type]
        assert found == (["t"], [], "cpu", precision == "bf16")


# The last figures --------------------------------------------------------------------------------


def trained(step: int, best: bool) -> Any:
    """A trainer at a step of a run whose metric was highest at steps 2, 4 and 6."""
    log = [{"step": 2 * i, "epoch": i, "eval_top1": 0.5 + 0.1 * (i > 0)} for i in range(4)]
    state = SimpleNamespace(
        log_history=[*log, {"step": 6, "loss": 1.0}], global_step=step,
        best_model_checkpoint="out/checkpoint-4", best_metric=0.6,
    )  # fmt: skip
    return SimpleNamespace(
        state=state,
        args=SimpleNamespace(load_best_model_at_end=best, metric_for_best_model="top1"),
        evaluate=lambda: {"eval_top1": 0.9, "epoch": 9},
        is_world_process_zero=lambda: True,
    )


def test_the_last_figures_are_those_of_the_saved_weights() -> None:
    logged = {"step": 6, "epoch": 3, "eval_top1": 0.6}
    assert last_figures(trained(6, best=False)) == logged
    assert last_figures(trained(7, best=False)) == {"eval_top1": 0.9, "epoch": 9}
    assert last_figures(trained(6, best=True)) == {"eval_top1": 0.9, "epoch": 2}


def test_a_best_figure_is_a_tie_with_later_steps_only(caplog: pytest.LogCaptureFixture) -> None:
    tell_of_ties(trained(6, best=False))
    assert not caplog.text  # the last model is kept
    tell_of_ties(trained(6, best=True))
    assert "that of step 4: eval_top1 was 0.6 there, and again at step 6. " in caplog.text


@pytest.mark.parametrize(
    ("checkpoint", "writes", "left"), [(None, True, False), (None, False, True), ("c", True, True)]
)
def test_a_new_run_leaves_no_results_of_an_earlier_one(
    tmp_path, monkeypatch: pytest.MonkeyPatch, checkpoint: str | None, writes: bool, left: bool
) -> None:
    monkeypatch.setattr(run, "checkpoint_of", lambda args: checkpoint)
    told: list[Any] = []
    args = SimpleNamespace(output_dir=str(tmp_path), should_save=writes)
    trainer: Any = SimpleNamespace(args=args, train=lambda **given: told.append(given))
    names = ["paraphrases.md", "eval_results.json", "all_results.json"]
    for name in (*names, "README.md"):
        (tmp_path / name).touch()
    run.train(trainer)
    assert told == [{"resume_from_checkpoint": checkpoint}]
    assert {path.name for path in tmp_path.iterdir()} == {"README.md", *(names if left else ())}


def test_only_the_main_process_says_what_it_does(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(run, "set_seed", seeds.append)
    logger = logging.getLogger("simbert_hf")
    monkeypatch.setattr(logger, "level", logger.level)  # so that it is put back
    for logs, level in ((True, logging.INFO), (False, logging.WARNING)):
        args: Any = SimpleNamespace(output_dir=str(tmp_path), should_log=logs, seed=7)
        run.begin(args, [])
        assert logger.level == level
    assert seeds == [7, 7]


# SIGTERM -----------------------------------------------------------------------------------------


class Reduced:
    """Stands for an accelerator whose other process was asked to stop."""

    def reduce(self, asked: torch.Tensor) -> torch.Tensor:
        return asked + 1


def after_step(
    callback: StopAtStepEnd, step: int, epoch: float, *, due: bool = False, by: str = "steps"
) -> tuple[bool, bool]:
    """Whether a step's end saves, and whether saving then ends the run."""
    control = TrainerControl(should_save=due)
    world = 1 if callback.accelerator is None else 2
    args: Any = SimpleNamespace(world_size=world, device="cpu", save_strategy=SaveStrategy(by))
    state = TrainerState(global_step=step, max_steps=9, epoch=epoch)
    callback.on_step_end(args, state, control)
    try:
        callback.on_save()
    except KeyboardInterrupt:
        return control.should_save, True
    return control.should_save, False


def test_sigterm_saves_within_an_epoch_and_waits_at_its_end() -> None:
    none: Any = None
    callback = StopAtStepEnd(none)
    assert after_step(callback, 1, 0.5) == (False, False)
    assert after_step(callback, 2, 0.6, due=True) == (True, False)
    callback.ask()
    assert after_step(callback, 9, 2.5) == (False, False)  # the last step ends the run anyway
    assert after_step(callback, 4, 1.0, due=True) == (True, False)  # more is due at an epoch's end
    assert after_step(callback, 5, 1.2) == (True, True)
    (callback := StopAtStepEnd(none)).ask()
    assert after_step(callback, 4, 1.0, by="epoch") == (False, True)  # which saves by itself
    (callback := StopAtStepEnd(none)).ask()
    assert after_step(callback, 1, 1.0) == (False, False)
    assert after_step(callback, 2, 2.0) == (True, True)  # epochs of one step
    assert after_step(StopAtStepEnd(Reduced()), 1, 0.5) == (True, True)


def test_a_worker_outlives_sigterm_by_no_more_than_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handlers: dict[int, Any] = {}
    monkeypatch.setattr("signal.signal", lambda number, handler: handlers.update({number: handler}))
    timers: list[Any] = []
    monkeypatch.setattr("threading.Timer.start", lambda timer: timers.append(timer))
    outlive_sigterm(0)
    handlers[SIGTERM](SIGTERM, None)
    (timer,) = timers
    assert (timer.interval, timer.daemon, timer.function) == (10, True, os._exit)
