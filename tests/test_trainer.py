"""The trainer as a user of Python has it: own optimisers, what is saved, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from safetensors.torch import load_file
from transformers import EarlyStoppingCallback, SchedulerType
from transformers.trainer_utils import SaveStrategy

from simbert_hf.arguments import SimilarityTrainingArguments
from simbert_hf.collators import PairCollator, SimCseCollator
from simbert_hf.data import PairDataset, Triplet
from simbert_hf.objectives import ScoredPairObjective, SimBertObjective, SimCseObjective
from simbert_hf.rows import RowBuilder
from simbert_hf.trainer import SimilarityTrainer
from simbert_hf.triplet.members import MemberDataset
from simbert_hf.triplet.objective import TripletObjective
from tests.tiny import WORDS, lines_with, tiny_simbert, wordpiece_tokenizer

ROWS = RowBuilder(wordpiece_tokenizer())
PAIR = {"source": "a cat", "target": "the cat", "group": 0, "seed": 1}


class Moded(torch.optim.SGD):
    """Knows whether it was asked for the weights to end with, as schedule-free ones are."""

    asked = False

    def train(self) -> None:
        self.asked = False

    def eval(self) -> None:
        self.asked = True


class Recorder:
    """An evaluator that sees what the optimiser was told."""

    names = ("seen",)
    trainer: Any = None

    def __call__(self, model: Any) -> dict[str, float]:
        return {"seen": float(getattr(self.trainer.optimizer.optimizer, "asked", 0))}


def trainer(
    out: Path, evaluator: Any = None, gradcache_batch_size: int = 0, **given: Any
) -> SimilarityTrainer:
    model = tiny_simbert()
    model.add_training_head()
    texts = [[f"{word} cat", f"the {word} dog"] for word in WORDS[:8]]
    groups = datasets.Dataset.from_dict({"texts": texts, "group": range(8)})
    args = SimilarityTrainingArguments(
        str(out), use_cpu=True, max_steps=2, report_to="none", per_device_train_batch_size=4,
        eval_strategy="no" if evaluator is None else "steps", eval_steps=1, save_strategy="no",
        disable_tqdm=True, load_best_model_at_end=False, metric_for_best_model="seen",
        gradcache_batch_size=gradcache_batch_size,
    )  # fmt: skip
    return SimilarityTrainer(
        args=args, objective=SimCseObjective(), evaluator=evaluator,
        data_collator=SimCseCollator(model.rows), train_dataset=PairDataset(groups),
        **{"model": model} | given,
    )  # fmt: skip


def test_a_given_optimizer_is_the_one_that_trains(tmp_path: Path) -> None:
    found = trainer(tmp_path, optimizer_cls_and_kwargs=(torch.optim.SGD, {"lr": 7.0}))
    optimizer = found.create_optimizer()
    assert isinstance(optimizer, torch.optim.SGD)
    assert {group["lr"] for group in optimizer.param_groups} == {7.0}


def test_a_model_made_for_each_training_computes_as_the_arguments_say(tmp_path: Path) -> None:
    sizes: list[int] = []

    def make() -> Any:
        model = tiny_simbert()
        model.bert.embeddings.register_forward_pre_hook(
            lambda _, __, given: sizes.append(len(given["input_ids"])), with_kwargs=True
        )
        return model

    found = trainer(tmp_path, model=None, model_init=make, gradcache_batch_size=2)
    found.objective = None  # as a search for hyperparameters sets it
    found.train()
    assert set(sizes) == {2}


def test_an_objective_without_a_total_is_named(tmp_path: Path) -> None:
    found = trainer(tmp_path)
    found.loss_parts = lambda model, batch: torch.zeros(())
    with pytest.raises(TypeError, match="objective returns a Tensor: it must return a"):
        found.train()


def test_nothing_is_predicted(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="use the model's `encode`"):
        trainer(tmp_path).predict([])


def test_a_schedule_that_follows_the_metric_knows_what_is_better(tmp_path: Path) -> None:
    for kind, given, mode in (("greedy", None, "max"), ("reduce_lr_on_plateau", "min", "min")):
        found = trainer(tmp_path, seen := Recorder())
        seen.trainer = found
        found.args.lr_scheduler_type = SchedulerType(kind)
        found.args.lr_scheduler_kwargs = {"mode": given} if given else None
        found.train()
        schedule = found.lr_scheduler
        assert getattr(schedule, "scheduler", schedule).mode == mode


def test_a_callback_that_the_former_run_lacked_is_saved_too(tmp_path: Path) -> None:
    for callbacks in ([], [EarlyStoppingCallback(5)]):
        found = trainer(tmp_path, seen := Recorder(), callbacks=callbacks)
        seen.trainer = found
        found.args.save_strategy, found.args.save_steps = SaveStrategy.STEPS, 1
        found.args.max_steps += len(callbacks)
        found.train(resume_from_checkpoint=bool(callbacks))
    assert found.state.global_step == 3
    saved = json.loads((tmp_path / "checkpoint-3" / "trainer_state.json").read_text())
    assert "EarlyStoppingCallback" in saved["stateful_callbacks"]


def test_the_speed_is_that_of_the_training_and_parts_are_its_own(tmp_path: Path) -> None:
    found = trainer(tmp_path)
    found.meter.started -= 1e6
    found.meter.sums = {"former": torch.zeros(())}
    found.args.logging_steps = 1
    found.train()
    line = lines_with("loss", found)[0]
    assert line["rows_per_second"] > 0.1
    assert "former" not in line


def test_an_optimizer_made_again_has_the_same_groups(tmp_path: Path) -> None:
    found = trainer(tmp_path)
    groups = len(found.create_optimizer().param_groups)
    found.optimizer = None
    assert len(found.create_optimizer().param_groups) == groups > 1


@pytest.mark.parametrize(("everything", "decays"), [(False, {0.0, 0.1}), (True, {0.1})])
def test_biases_and_norms_decay_only_if_all_parameters_do(
    tmp_path: Path, everything: bool, decays: set[float]
) -> None:
    found = trainer(tmp_path)
    found.args.weight_decay, found.args.decay_all_parameters = 0.1, everything
    groups = found.create_optimizer().param_groups
    assert {group["weight_decay"] for group in groups} == decays


def test_weights_of_schedule_free_optimizers_are_measured_and_saved_at_rest(tmp_path: Path) -> None:
    recorder = Recorder()
    given = (Moded, {"lr": 0.1})
    recorder.trainer = trainer(tmp_path, recorder, optimizer_cls_and_kwargs=given)
    recorder.trainer.train()
    measured = [
        line["eval_seen"] for line in recorder.trainer.state.log_history if "eval_seen" in line
    ]
    assert measured == [1.0, 1.0]
    optimizer = recorder.trainer.optimizer.optimizer
    optimizer.train()
    recorder.trainer.save_model()
    assert optimizer.asked


def test_heads_of_the_training_are_not_saved_and_go_on_training(tmp_path: Path) -> None:
    found = trainer(tmp_path)
    found.args.set_save(strategy="steps", steps=2)
    found.train()
    saved = load_file(tmp_path / "checkpoint-2" / "model.safetensors")
    assert [name for name in saved if "head" in name]
    found.save_model()
    found.save_model(str(tmp_path / "named"))
    for folder in (tmp_path, tmp_path / "named"):
        names = load_file(folder / "model.safetensors").keys()
        assert names
        assert not [name for name in names if "head" in name]
    assert found.model.training_head is not None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 0.0])
def test_weights_that_are_not_finite_are_not_saved(
    tmp_path: Path, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Be it in the shard of another process."""
    found = trainer(tmp_path)
    found.model.get_input_embeddings().weight.data[0, 0] = value
    if value == 0:
        monkeypatch.setattr(found.accelerator, "reduce", lambda here: here + 1)
    with pytest.raises(ValueError, match="diverged: at step 0 weights are infinite or NaN"):
        found.save_model()
    assert not (tmp_path / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: PairCollator(ROWS.tokenizer), TypeError, "give a model's `rows`"),
        (lambda: PairCollator(ROWS, 2), ValueError, "max_length=2 leaves no token: give 3"),
        (
            lambda: PairCollator(ROWS, preferences=[dict.fromkeys(Triplet._fields, "a")]),
            TypeError, r"preferences holds \{.* give tuples \(sentence, chosen, rejected\)",
        ),
        (
            lambda: PairCollator(ROWS, one_way=[("a", "b", "c")]),
            TypeError, r"give tuples \(source, target\)",
        ),
        (lambda: PairCollator(ROWS, sentences="a cat"), TypeError, "sentences is the string 'a"),
        (lambda: SimBertObjective(scale=0), ValueError, "scale 0: .* above 0"),
        (lambda: SimCseObjective(scale=-1), ValueError, "scale -1: .* above 0"),
        (lambda: ScoredPairObjective(scale=0), ValueError, "scale 0: .* above 0"),
        (lambda: TripletObjective("unanchord"), ValueError, "choose one of triplet, unanchored"),
        (lambda: TripletObjective(mining="hardest"), ValueError, "choose one of random, all, hard"),
        (lambda: TripletObjective(distance="l2"), ValueError, "choose one of squared, cosine"),
        (lambda: PairDataset([["a", "b"]]), TypeError, "groups is a list without columns `texts`"),
        (lambda: MemberDataset("a.jsonl"), TypeError, "groups is a str without columns `texts`"),
        (
            lambda: SimBertObjective()(tiny_simbert(), SimCseCollator(ROWS)([PAIR])),
            ValueError, "no targets to generate: make it with a PairCollator",
        ),
    ],
)  # fmt: skip
def test_what_would_train_something_else_is_refused(make, kind, message) -> None:
    with pytest.raises(kind, match=message):
        make()
