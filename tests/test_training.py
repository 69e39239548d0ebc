"""The training script from end to end, on a tiny model and a few groups."""

import io
import json
import logging
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE, Popen
from types import SimpleNamespace
from typing import Any

import datasets
import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from transformers import Trainer, TrainerCallback, integrations

from scripts import train_margin_softmax, train_simcse, train_triplet
from scripts.train_simbert import main
from simbert_hf import SimBert
from simbert_hf.arguments import (
    PRESETS,
    DataArguments,
    ModelArguments,
    ObjectiveArguments,
    SimilarityTrainingArguments,
)
from simbert_hf.data import load_triplets
from simbert_hf.data.batching import LengthGroupedBatchSampler
from simbert_hf.judging.training import JudgeArguments
from simbert_hf.objectives import LossParts
from simbert_hf.trainer import SimilarityTrainer
from simbert_hf.training.data import load_unseen, read_groups, without_sentences_of
from simbert_hf.training.loss_meter import LossMeter, of_all
from simbert_hf.training.resuming import checkpoint_of
from simbert_hf.training.simbert import load_unpaired
from simbert_hf.utils.parsing import parse_arguments
from simbert_hf.utils.script import run_script
from simbert_hf.utils.textfiles import DataError
from tests.tiny import WORDS, assert_resumes, lines_with, losses_of, tiny_simbert

TYPES = (ModelArguments, DataArguments, ObjectiveArguments, SimilarityTrainingArguments)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint without LM head."""
    folder, model = tmp_path_factory.mktemp("model") / "start", tiny_simbert()
    model.has_lm_head = False
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def groups(tmp_path: Path) -> Path:
    path = tmp_path / "groups.jsonl"
    texts = [f"{a} {b} cat" for a in WORDS[:8] for b in WORDS[8:14]]
    rows = [{"text": text, "synonyms": [f"the {text}", f"{text} please"]} for text in texts]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


@pytest.fixture
def train(start: Path, groups: Path, tmp_path: Path) -> Callable[..., SimilarityTrainer]:
    """Run the script; of a flag that is given again, such as --train_file, the last counts."""

    def run(*more: str) -> SimilarityTrainer:
        return main([
            f"--model_name_or_path={start}", f"--train_file={groups}",
            f"--output_dir={tmp_path / 'out'}",
            *([] if any("validation" in flag for flag in more) else ["--validation_groups=6"]),
            "--per_device_train_batch_size=4", "--use_cpu", "--max_steps=6",
            "--eval_strategy=steps", "--eval_steps=3", "--save_strategy=steps", "--save_steps=3",
            "--logging_steps=1", "--learning_rate=5e-3", "--head_learning_rate=1e-2",
            "--report_to=none", "--disable_tqdm=true", "--max_length=24", *more,
        ])  # fmt: skip

    return run


# What is not asked about is left out: no evaluation, no writing, no checkpoint.
BRIEFLY = ("--validation_groups=0", "--eval_strategy=no", "--save_strategy=no", "--max_steps=1")


def test_trains_on_a_subset_of_the_hub(train, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load_dataset(path: str, **options: object) -> Dataset:
        asked.append((path, options))
        columns = {"anchor": [f"{a} cat" for a in WORDS], "positive": [f"the {a}" for a in WORDS]}
        return Dataset.from_dict(columns)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    train("--train_file=org/name", "--dataset_config=pair", "--dataset_split=dev", *BRIEFLY)
    assert asked == [("org/name", {"name": "pair", "split": "dev", "streaming": False})]


def test_trains_evaluates_and_saves_one_checkpoint(train, tmp_path: Path) -> None:
    out = tmp_path / "out"
    trainer = train("--mlm_weight=0.5")
    log = trainer.state.log_history
    first, last = (
        next(line for line in lines if "seq2seq" in line) for lines in (log, reversed(log))
    )
    assert last["seq2seq"] < first["seq2seq"]  # the loss of six tiny batches is noise
    for name in ("similarity", "similarity_accuracy", "mlm", "rows_per_second"):
        assert name in first
    assert first["loss"] == pytest.approx(
        first["seq2seq"] + first["similarity"] + 0.5 * first["mlm"], rel=1e-4
    )
    assert len(lines_with("eval_top1", trainer)) >= 2
    assert "## Step 3" in (out / "paraphrases.md").read_text()
    assert not list(out.rglob("training_args.bin"))
    model = SimBert.from_pretrained(out)
    assert model.has_lm_head
    vectors = SentenceTransformer(str(out), device="cpu").encode(["a cat", "the dog"])
    assert abs(vectors - model.encode(["a cat", "the dog"])).max() < 1e-5


def test_the_flags_of_batches_reach_the_sampler_and_losses_are_logged_anew_at_each_step(
    train, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    class Recorded(LengthGroupedBatchSampler):
        def __init__(self, *args, **options) -> None:
            made.append(options)
            super().__init__(*args, **options)

    monkeypatch.setattr("simbert_hf.trainer.LengthGroupedBatchSampler", Recorded)
    more = (*BRIEFLY, "--seed=7", "--length_window=3", "--dataloader_drop_last=false",
            "--max_steps=3")  # fmt: skip
    trainer = train(*more)
    assert made[0] == {
        "seed": 7, "window": 3, "drop_last": False, "process": 0, "processes": 1,
        "even_tokens": False,
    }  # fmt: skip
    lines = lines_with("loss", trainer)
    assert len(lines) == 3
    for line in lines:
        assert line["loss"] == pytest.approx(line["seq2seq"] + line["similarity"], rel=1e-4)


def test_the_clock_of_the_speed_stands_still_in_between() -> None:
    trainer = SimpleNamespace(meter=LossMeter())
    before = trainer.meter.started
    with SimilarityTrainer._clock_stopped(trainer):
        time.sleep(0.02)
    assert trainer.meter.started >= before + 0.02


def test_the_log_holds_means_and_rates_since_its_last_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    meter = LossMeter()
    assert of_all([meter.read()]) == {}
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    batch = {"input_ids": torch.zeros_like(mask), "attention_mask": mask}
    similarity = torch.tensor(1.0, requires_grad=True)
    parts = LossParts(total=torch.tensor(9.0), similarity=similarity)
    meter.add(parts, batch)
    assert not meter.sums["similarity"].requires_grad  # or it would keep each step's activations
    meter.add(replace(parts, similarity=torch.tensor(2.0)), batch)
    clock[0] += 4
    rates = {"rows_per_second": 3.0, "tokens_per_second": 6.0}  # of three processes like this one
    assert of_all([meter.read()] * 3) == {"similarity": 1.5} | rates
    meter.reset()
    meter.add(parts, batch)
    clock[0] += 1
    assert meter.read() == {"similarity": 1.0, "rows_per_second": 2, "tokens_per_second": 4}


@pytest.mark.parametrize(("more", "attention"), [((), "sdpa"), (("--bf16=true",), "eager")])
def test_the_attention_of_bfloat16_on_a_cpu_is_the_faster_one(
    train, more: tuple[str, ...], attention: str
) -> None:
    trainer = train(*BRIEFLY, *more)
    assert trainer.model.config._attn_implementation == attention


def test_what_the_launcher_was_asked_for_is_as_if_flags_had(
    train, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    monkeypatch.setenv("ACCELERATE_DYNAMO_BACKEND", "EAGER")
    monkeypatch.setenv("ACCELERATE_DYNAMO_MODE", "default")
    compiled: list[Any] = []
    monkeypatch.setattr("simbert_hf.trainer.compile_layers", lambda *given: compiled.append(given))
    trainer = train(*BRIEFLY)
    assert trainer.args.bf16
    assert trainer.model.config._attn_implementation == "eager"
    assert compiled == [(trainer.model, "eager", "default")]
    assert trainer.model_wrapped is trainer.model  # accelerate has compiled nothing
    flags: dict[str, Any] = {"torch_compile_backend": "inductor", "torch_compile_mode": "max"}
    args = SimilarityTrainingArguments("out", eval_strategy="no", **flags)  # which win
    assert {name: getattr(args, name) for name in flags} == flags


@pytest.mark.parametrize(
    "options",
    [  # the first evaluates and writes paraphrases in between, which must change nothing
        ("--mlm_weight=0.5", "--eval_steps=6"),
        pytest.param(("--even_tokens=true", "--eval_strategy=no"), marks=pytest.mark.slow),
        pytest.param(("--denoising=true", "--eval_strategy=no"), marks=pytest.mark.slow),
        pytest.param(
            (
                "--dataloader_persistent_workers=true",
                "--dataloader_num_workers=1",
                "--eval_strategy=no",
            ),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_resumed_run_equals_an_uninterrupted_one(
    train, tmp_path: Path, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(out: Path, *more: str) -> None:
        train(f"--output_dir={out}", "--load_best_model_at_end=false", "--hidden_dropout=0.2",
              *options, "--max_steps=14", *more)  # fmt: skip

    # 42 groups in batches of 4: step 3 and step 12 lie inside the first and the second epoch.
    assert_resumes(run, tmp_path, {4: 3, 13: 12}, monkeypatch)


class Rates(TrainerCallback):
    """Notes the learning rate of each step."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_step_begin(self, *_: Any, optimizer: Any, **__: Any) -> None:
        self.seen.append(optimizer.param_groups[0]["lr"])


def test_a_run_that_is_prolonged_takes_no_step_at_the_rate_of_then(
    train, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates, build = Rates(), SimilarityTrainer.__init__
    monkeypatch.setattr(
        SimilarityTrainer, "__init__", lambda self, **kw: build(self, callbacks=[rates], **kw)
    )
    more = ("--lr_scheduler_type=linear", "--warmup_steps=0", "--learning_rate=0.008",
            "--validation_groups=0", "--eval_strategy=no")  # fmt: skip
    for steps in ("4", "8"):
        given = (
            *more,
            f"--max_steps={steps}",
            f"--save_steps={steps}",
            "--load_best_model_at_end=false",
        )
        trainer = train(*given, "--resume_from_checkpoint=true")
    logged = [line["learning_rate"] for line in lines_with("loss", trainer)]
    assert logged == pytest.approx(rates.seen)
    assert rates.seen == pytest.approx([0.008, 0.006, 0.004, 0.002, 0.004, 0.003, 0.002, 0.001])


def test_data_too_small_for_the_processes_is_named(train, monkeypatch: pytest.MonkeyPatch) -> None:
    more = ["--save_strategy=no", "--eval_strategy=no", "--max_steps=1", "--seq2seq_weight=0"]
    trainer = train(*more)
    monkeypatch.setattr(SimilarityTrainingArguments, "world_size", 11)
    with pytest.raises(DataError, match="42 examples cannot fill a batch of 4 for each of 11"):
        trainer.get_train_dataloader()


def test_streaming_trains(train, groups: Path, tmp_path: Path) -> None:
    """By steps alone, as a stream has no epochs; the validation file is measured at the end."""
    held_out = tmp_path / "held_out.jsonl"
    held_out.write_text("\n".join(groups.read_text().splitlines()[:6]))
    usual = ("--eval_strategy=epoch", "--save_strategy=epoch")
    trainer = train(*usual, "--streaming=true", "--max_steps=14", f"--validation_file={held_out}")
    assert (tmp_path / "out" / "checkpoint-12").is_dir()
    assert [line["step"] for line in lines_with("eval_top1", trainer)] == [14]
    losses = losses_of(trainer)
    assert len(losses) == 14
    assert sum(losses[-3:]) < sum(losses[:3])


def test_vectors_alone_train_without_an_lm_head(train, tmp_path: Path) -> None:
    trainer = train("--seq2seq_weight=0")
    evaluated = lines_with("eval_top1", trainer)
    assert [line["step"] for line in evaluated[:2]] == [3, 6]
    assert "eval_seq2seq" not in evaluated[0]
    assert "eval_perplexity" not in evaluated[0]
    assert not (tmp_path / "out" / "paraphrases.md").exists()
    assert not SimBert.from_pretrained(tmp_path / "out").has_lm_head


def test_an_lm_head_without_a_loss_stays_as_it_is(train, tmp_path: Path) -> None:
    model = tiny_simbert()
    model.save_pretrained(tmp_path / "writes")
    more = (*BRIEFLY, "--seq2seq_weight=0", "--weight_decay=0.5", "--max_steps=3")
    train(f"--model_name_or_path={tmp_path / 'writes'}", *more)
    found = SimBert.from_pretrained(tmp_path / "out")
    assert found.has_lm_head
    head, trained = model.cls.predictions, found.cls.predictions
    assert torch.equal(trained.bias, head.bias)
    assert torch.equal(trained.transform.dense.weight, head.transform.dense.weight)
    assert not torch.equal(found.bert.encoder.layer[0].output.dense.weight,
                           model.bert.encoder.layer[0].output.dense.weight)  # fmt: skip


@pytest.mark.parametrize(
    ("save_steps", "eval_steps", "kept"),
    [
        (4, 2, True),
        (3, 2, False),
        (4, None, True),
        (0.3, 0.3, True),
        (0.3, 0.1, False),
        (500, 0.1, False),
    ],
)
def test_the_best_is_kept_where_each_checkpoint_is_measured(
    tmp_path: Path, save_steps: float, eval_steps: float | None, kept: bool
) -> None:
    args = SimilarityTrainingArguments(
        str(tmp_path), eval_strategy="steps", save_strategy="steps", use_cpu=True,
        save_steps=save_steps, eval_steps=eval_steps, logging_steps=2,
    )  # fmt: skip
    assert args.load_best_model_at_end is kept


def test_a_best_checkpoint_that_nothing_measures_is_saved_as_others(train, tmp_path: Path) -> None:
    more = ("--validation_groups=0", "--save_strategy=best", "--eval_strategy=epoch")
    train(*more)
    assert (tmp_path / "out" / "checkpoint-6").is_dir()


def test_every_process_writes_and_the_first_shows(
    train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where layers are sharded, one process alone would wait for the others for ever."""
    trainer = train("--max_steps=1")
    shown = (tmp_path / "out" / "paraphrases.md").read_text()
    written = []
    paraphrases = trainer.evaluator.paraphrases
    monkeypatch.setattr(
        trainer.evaluator, "paraphrases", lambda model: written.append(paraphrases(model))
    )
    monkeypatch.setattr(trainer, "is_world_process_zero", lambda: False)
    trainer.evaluate()
    assert len(written) == 1
    assert (tmp_path / "out" / "paraphrases.md").read_text() == shown


def test_what_was_shown_before_a_kill_is_shown_once(train, tmp_path: Path) -> None:
    trainer = train("--max_steps=1")
    place = tmp_path / "out" / "paraphrases.md"
    shown = place.read_text()
    assert shown.startswith("## Step 1\n")
    place.write_text(f"{shown}## Step 2\n\n- a killed run's\n\n")
    trainer.evaluate()
    assert place.read_text() == shown


def checkpoint_in(folder: Path) -> Path:
    """Make what looks like a whole checkpoint."""
    folder.mkdir(parents=True)
    for name in ("config.json", "trainer_state.json"):
        (folder / name).write_text("{}")
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        torch.save({}, folder / name)
    save_file({"a": torch.ones(1)}, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize(
    ("given", "expected"),
    [(True, "checkpoint-10"), ("true", "checkpoint-10"), ("there/checkpoint-3",) * 2],
)
def test_what_is_resumed(
    tmp_path: Path, given: object, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flags give strings, Python gives a bool too."""
    names = ("checkpoint-7", "checkpoint-10", "checkpoint-best", "checkpoint-11-keep")
    for folder in (*names, "there/checkpoint-3"):
        checkpoint_in(tmp_path / folder)
    monkeypatch.chdir(tmp_path)
    args = SimilarityTrainingArguments(
        output_dir=".", report_to="none", resume_from_checkpoint=given
    )
    assert checkpoint_of(args) == expected


@pytest.mark.parametrize("given", [None, False, "False"])
def test_a_new_run_goes_where_no_other_was(
    tmp_path: Path, given: object, caplog: pytest.LogCaptureFixture
) -> None:
    args = SimilarityTrainingArguments(
        str(tmp_path), report_to="none", resume_from_checkpoint=given
    )
    assert checkpoint_of(args) is None
    assert "holds a model" not in caplog.text
    (tmp_path / "model.safetensors").touch()
    assert checkpoint_of(args) is None
    assert f"{tmp_path} holds a model, which the new one will replace" in caplog.text
    (tmp_path / "checkpoint-7").mkdir()
    with pytest.raises(ValueError, match="checkpoint-7 is from an earlier run"):
        checkpoint_of(args)


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("scheduler.pt", None, "lacks scheduler.pt"),  # as by --save_only_model
        ("optimizer.pt", None, r"lacks optimizer\*"),
        ("rng_state.pth", None, r"lacks rng_state\*"),
        ("trainer_state.json", None, "lacks trainer_state.json"),
        ("model.safetensors", None, r"lacks \*model\*"),
        ("optimizer.pt", b"PK", r"has a damaged optimizer.pt \(it is truncated\)"),
        ("model.safetensors", b"", r"has a damaged model.safetensors \("),
        ("trainer_state.json", b"{", r"has a damaged trainer_state.json \("),
        ("trainer_state.json", b"[]", r"has a damaged trainer_state.json \("),
    ],
)
def test_what_cannot_be_resumed_is_named(
    tmp_path: Path, name: str, content: bytes | None, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    last = checkpoint_in(tmp_path / "checkpoint-7")
    (last / name).unlink()
    if content is not None:
        (last / name).write_bytes(content)

    def asked(given: str) -> str | None:
        return checkpoint_of(
            SimilarityTrainingArguments(
                str(tmp_path), report_to="none", resume_from_checkpoint=given
            )
        )

    with pytest.raises(ValueError, match=f"checkpoint-7 {fault}"):
        asked(str(last))
    with pytest.raises(ValueError, match=f"can be resumed from: checkpoint-7 {fault}"):
        asked("true")
    with pytest.raises(ValueError, match="nowhere is not a folder"):
        asked(str(tmp_path / "nowhere"))
    before = checkpoint_in(tmp_path / "checkpoint-5")
    assert asked("true") == str(before)
    assert "checkpoint-7 is skipped" in caplog.text
    assert asked(str(before)) == str(before)
    assert "checkpoint-7 is later than" in caplog.text


def test_a_diverged_run_leaves_the_checkpoint_before(
    train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = SimilarityTrainer.training_step

    def diverge(self, model, *args, **kwargs):
        loss = step(self, model, *args, **kwargs)
        if self.state.global_step == 4:
            next(model.parameters()).data.fill_(math.nan)
        return loss

    monkeypatch.setattr(SimilarityTrainer, "training_step", diverge)
    out = tmp_path / "out"
    more = ("--eval_strategy=no", "--logging_steps=100")  # seen where it would be saved
    with pytest.raises(ValueError, match="diverged: at step 6 weights are infinite or NaN"):
        train(*more)
    assert [path.name for path in out.iterdir() if path.is_dir()] == ["checkpoint-3"]
    assert all(
        w.isfinite().all() for w in load_file(out / "checkpoint-3/model.safetensors").values()
    )


def test_the_best_of_losses_that_are_not_measured(train) -> None:
    more = ("--seq2seq_weight=0", "--similarity_weight=0", "--mlm_weight=1", "--max_steps=3")
    trainer = train(*more)
    assert trainer.args.metric_for_best_model == "eval_top1"
    assert trainer.state.best_metric > 0
    assert not any("eval_loss" in line for line in trainer.state.log_history)


def test_the_value_of_a_flag_is_none() -> None:
    _, _, _, args = parse_arguments(TYPES, ["--run_name", "do_train"], PRESETS)
    assert args.run_name == "do_train"


def test_a_best_figure_reached_again_is_told_and_its_epoch_is_the_models(
    train, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING")
    more = ("--metric_for_best_model=eval_top10", "--greater_is_better=true", "--eval_steps=2",
            "--save_steps=2", "--learning_rate=1e-9")  # fmt: skip
    trainer = train(*more)
    assert "The model is that of step 2: eval_top10 was" in caplog.text
    assert "and again at step 4, 6. Hold out more" in caplog.text
    lines = lines_with("eval_top10", trainer)
    told = json.loads((tmp_path / "out" / "eval_results.json").read_text())
    assert told["epoch"] == lines[0]["epoch"] < lines[1]["epoch"]


def test_each_process_drops_units_of_its_own(train, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = []
    monkeypatch.setattr(
        Trainer, "_prepare_for_training", lambda *_: seeds.append(torch.initial_seed())
    )
    monkeypatch.setattr(Trainer, "train", lambda *_, **__: None)
    trainer = train(*BRIEFLY, "--seed=7")
    for process in (0, 1):
        monkeypatch.setattr(SimilarityTrainingArguments, "process_index", process)
        torch.manual_seed(7)  # as Trainer does before it makes a model
        trainer._prepare_for_training(1)
    assert seeds == [7, 8]


def test_a_fault_in_a_process_that_loads_is_told_in_one_sentence() -> None:
    def fail() -> None:
        raise DataError(
            "Caught DataError in worker 0.\nTraceback\n  line\nDataError: a.tsv:3: bad\nline\n"
        )

    with pytest.raises(SystemExit, match=r"^DataError: a\.tsv:3: bad\nline$"):
        run_script(fail)


def test_a_script_prints_chinese_to_a_pipe_of_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="cp1252"))
    run_script(lambda: sys.stdout.write("今天\n"))
    assert raw.getvalue().decode("utf-8").split() == ["今天"]


def test_a_script_prints_a_file_s_name_that_is_not_utf8(monkeypatch: pytest.MonkeyPatch) -> None:
    """As without it where no locale is set, as in containers."""
    raw = io.BytesIO()
    stdout = io.TextIOWrapper(raw, encoding="utf-8", errors="surrogateescape")
    monkeypatch.setattr(sys, "stdout", stdout)
    run_script(lambda: sys.stdout.write(os.fsdecode(b"\xff.jsonl\n")))
    assert raw.getvalue().split() == [b"\xff.jsonl"]


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("print('line')", 1),
        ("print(*['line'] * 100_000)", 1),
        ("script_parser('').parse_args()", 0),
    ],
)
def test_a_script_that_nobody_reads_on_ends_quietly(call: str, code: int) -> None:
    command = (
        "import sys; from simbert_hf.utils.script import run_script, script_parser; "
        f"sys.stdin.read(); sys.argv = ['a.py', '--help']; run_script(lambda: {call})"
    )
    run = {"env": os.environ | {"PYTHONUNBUFFERED": ""}, "stdin": PIPE, "stdout": PIPE}
    with Popen([sys.executable, "-c", command], stderr=PIPE, **run) as script:
        script.stdout.close()
        assert script.communicate()[1] == b""
    assert script.returncode == code  # 1 as what it was to do may not be done


def test_a_pipe_that_breaks_elsewhere_is_told() -> None:
    def fail() -> None:
        raise BrokenPipeError("of a worker")

    with pytest.raises(SystemExit, match="BrokenPipeError: of a worker"):
        run_script(fail)


@pytest.mark.parametrize("spelling", [["--preset", "original"], ["--preset=original"]])
def test_the_original_preset(spelling: list[str]) -> None:
    model, data, objective, args = parse_arguments(TYPES, spelling, PRESETS)
    for name, value in PRESETS["original"].items():
        found = next(getattr(part, name) for part in (model, data, objective, args)
                     if hasattr(part, name))  # fmt: skip
        assert found == value, name
    assert (args.weight_decay, args.warmup_steps, args.length_window) == (0.01, 0, 1)
    assert model.pooling == "linear_pooler"
    assert model.load_options()["attention_probs_dropout_prob"] == 0
    assert (data.max_length, data.max_chars) == (32, 30)
    assert objective.scale == 30
    assert not objective.mask_false_negatives
    assert args.learning_rate == args.head_learning_rate == 2e-6
    assert args.max_grad_norm == 0
    assert args.lr_scheduler_type == "constant"
    assert args.per_device_train_batch_size == 64


def test_a_value_that_is_none_takes_one_line(capsys) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse_arguments([SimilarityTrainingArguments], ["--learning_rate=fast"])
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.endswith("invalid float value: 'fast'; see --help.\n")


def test_a_flag_beats_the_file_and_the_file_beats_the_preset(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(
        "preset: original\nscale: 20\nlearning_rate: 1e-5\ntrain_file: a.jsonl\n"
        "resume_from_checkpoint: true\neval_strategy: no\nsample_sentences: [a cat, a dog]\n"
        "lr_scheduler_kwargs: {min_lr: 1e-6}\n"
    )
    _, data, objective, args = parse_arguments(
        TYPES, [str(path), "--learning_rate", "0.5"], PRESETS
    )
    assert data.train_file == ["a.jsonl"]
    assert objective.scale == 20
    assert args.learning_rate == 0.5
    assert data.sample_sentences == ["a cat", "a dog"]
    assert args.resume_from_checkpoint == "True"
    assert args.decay_all_parameters
    assert args.eval_strategy == "no"
    assert args.lr_scheduler_kwargs == {"min_lr": 1e-6}


def test_a_fresh_head_and_norms_have_their_own_settings(train) -> None:
    trainer = train(*BRIEFLY, "--weight_decay=0.1")
    model = trainer.model
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    seen = {}
    for group in trainer.optimizer.param_groups:
        for parameter in group["params"]:
            seen[names[id(parameter)]] = (group["initial_lr"], group["weight_decay"])
    assert seen["bert.embeddings.word_embeddings.weight"] == (5e-3, 0.1)
    assert seen["bert.encoder.layer.0.output.LayerNorm.weight"] == (5e-3, 0.0)
    assert seen["cls.predictions.transform.dense.weight"] == (1e-2, 0.1)
    assert seen["cls.predictions.bias"] == (1e-2, 0.0)
    assert not any("pooler" in name for name in seen)
    assert set(seen) == {n for n, p in model.named_parameters() if p.requires_grad}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--train_file=nowhere.jsonl"], r"nowhere\.jsonl.*is neither a file nor a Hub id"),
        (["--scale=0"], r"--scale 0.0: .*above 0"),
        (["--scale=nan"], r"--scale nan: .*above 0"),
        (["--seq2seq_weight=nan"], "nan, 1.0, 0.0. must be at least 0"),
        (["--distillation_weight=3"], "--distillation_weight 3.0 would change nothing, as there"),
        (
            ["--teacher_name_or_path=x", "--distillation_weight=0"],
            "drop --teacher_name_or_path instead",
        ),
        (
            ["--unrelated_weight=0", "--teacher_name_or_path", "a"],
            r"--unrelated_weight 0.0: it must be in \(0, 1\]",
        ),
        (
            ["--unrelated_cosine=1", "--teacher_name_or_path", "a"],
            r"--unrelated_cosine 1.0: it must be in \[0, 1\)",
        ),
        (
            ["--unrelated_cosine=0.4", "--teacher_name_or_path", "a"],
            "--unrelated_cosine would narrow a single teacher's cosines, .* give several teachers",
        ),
        (
            ["--dataset_config=pair"],
            "--dataset_config pair would change nothing, as --train_file names",
        ),
        (["--simcse_scale=0"], "--simcse_scale 0.0: give a finite inverse temperature"),
        (["--mlm_weight=1", "--denoising=true"], "--denoising True would change nothing"),
        (["--preference_scale=3"], "--preference_scale 3.0 would change nothing, as there is no"),
        (
            ["--preferences_file=a", "--preference_scale=0"],
            "--preference_scale 0.0: give .* above 0",
        ),
        (["--preferences_file=a", "--preference_margin=-1"], "--preference_margin -1.0: give 0 or"),
        (["--preferences_file=a", "--preference_weight=0"], "drop --preferences_file instead"),
        (["--preferences_file=nowhere.csv"], "nowhere.csv"),
        (["--one_way_file=nowhere.jsonl"], "nowhere.jsonl"),
        (
            ["--one_way_file=a", "--seq2seq_weight=0"],
            "is for the seq2seq loss: drop",
        ),
        (["--label_smoothing_factor=0.1"], "--label_smoothing_factor 0.1 would change nothing"),
        (["--auto_find_batch_size=true"], "--auto_find_batch_size True would change nothing"),
        (["--length_window=0"], "--length_window 0: give at least 1"),
        (["--save_strategy=epoch"], "--save_steps 3.* would change nothing, as --save_strategy is"),
        (["--seq2seq_weight=0", "--similarity_weight=0"], "not all of them 0"),
        (["--model_name_or_path=nowhere/at/all"], "nowhere/at/all"),
        (["--text_columns", "left", "right"], "left"),
        (
            ["--validation_groups=48"],
            "48 of 48 groups cannot be held out, .*: choose a number from 2 to 47",
        ),
        (["--model_name_or_path="], "give --model_name_or_path"),
        (["--max_length=64"], r"--max_length 64 is out of range.* 3 to 32"),
        (["--max_length=2"], "--max_length 2 is out of range"),
        (["--sample_sentences", "a cat", ""], "--sample_sentences: text 1 is empty"),
        (["--streaming=true", "--max_steps=-1"], "give --max_steps"),
        (["--streaming=true"], "--streaming cannot hold out groups: give --validation_file"),
        (
            ["--validation_groups=0", "--sample_sentences", "a cat"],
            "--sample_sentences belongs to the evaluation on held-out groups",
        ),
        (
            ["--seq2seq_weight=0", "--sample_sentences", "a cat"],
            "need a trained LM head: drop --seq2seq_weight 0",
        ),
        (
            ["--validation_groups=0", "--streaming=true", "--even_tokens=true"],
            "drop --even_tokens",
        ),
        (["--length_window=1", "--even_tokens=true"], "give a length window above 1"),
        (["--ddp_find_unused_parameters=true"], "--ddp_find_unused_parameters True would change"),
        (["--do_predict=true"], "--do_predict True would change nothing"),
        (["--save_on_each_node=true"], "--save_on_each_node True would change nothing"),
        (["--average_tokens_across_devices=false"], "--average_tokens_across_devices False would"),
        (
            ["--dataloader_persistent_workers=true"],
            "there are no workers; give --dataloader_num_workers 2",
        ),
        (
            ["--lr_scheduler_type=reduce_lr_on_plateau", "--validation_groups=0"],
            "--lr_scheduler_type reduce_lr_on_plateau follows a metric, but nothing would be",
        ),
        (["--max_chars=0"], "--max_chars 0: give at least 1"),
        (
            ["--validation_file=a.tsv", "--validation_groups=6"],
            "--validation_groups 6 would change",
        ),
        (["--remove_unused_columns=true"], "--remove_unused_columns True would change nothing"),
        (["--eval_strategy=no", "--save_strategy=best"], "best needs an --eval_strategy"),
        (
            ["--learning_rate=1e20", "--head_learning_rate=1e20"],
            "diverged: at step",
        ),
        (["--metric_for_best_model=eval_top2"], "top2 is not measured; choose one of eval_"),
    ],
)
def test_bad_arguments_are_named_before_training(
    train, tmp_path: Path, more: list[str], message: str
) -> None:
    with pytest.raises((ValueError, OSError), match=message):
        train(*more)
    assert not (tmp_path / "out" / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("given", "due"),
    [
        ("--gradient_accumulation_steps=0", "at least 1"),
        ("--per_device_train_batch_size=0", "at least 1"),
        *(
            (f"--num_train_epochs={value}", "a finite number above 0")
            for value in ("inf", "nan", 0)
        ),
        *((f"--max_steps={n}", "at least 1, or drop it") for n in (0, -2)),
        ("--save_steps=0", "a finite number above 0"),
        ("--eval_steps=-2", "a finite number above 0"),
        ("--logging_steps=nan", "a finite number above 0"),
        ("--head_learning_rate=-1", "a finite number, 0 or more"),
        ("--learning_rate=inf", "a finite number, 0 or more"),
        ("--weight_decay=nan", "a finite number, 0 or more"),
        ("--max_grad_norm=nan", "a finite number, 0 or more"),
        ("--warmup_steps=nan", "a finite number, 0 or more"),
        ("--hidden_dropout=nan", r"must be in \[0, 1\)"),
        ("--attention_dropout=1", r"must be in \[0, 1\)"),
        ("--data_seed=-1", "0 to 4294967295"),
        ("--fp16=true", "needs a GPU; give --bf16 true"),
        ("--do_train=false", "this script only trains"),
        ("--do_eval=false", "false: give --eval_strategy no"),
        ("--report_to=wandb", "wandb is not installed .pip install wandb"),
        ("--report_to=paper", "choose none, or from azure_ml"),
        ("--torch_compile_backend=tv", "choose one of .*inductor"),
        ("--torch_compile_mode=tv", "choose one of default, "),
        ("--lr_scheduler_type=warmup_stable_decay", "decay: .*'num_decay_steps'"),
    ],
)
def test_what_trains_nothing_or_fails_late_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, given: str, due: str
) -> None:
    monkeypatch.setattr(integrations, "get_available_reporting_integrations", list)
    flag = given.partition("=")[0]
    with pytest.raises(ValueError, match=f"^{flag} .*{due}"):
        parse_arguments(TYPES, ["--use_cpu", "--report_to=none", given], PRESETS)


def test_a_run_needs_a_folder_of_its_own(train, start: Path, tmp_path: Path) -> None:
    teacher = tmp_path / "teacher"
    teacher.mkdir()
    (file := tmp_path / "file").touch()
    for place, message in {
        "": "nowhere to save the model; give --output_dir",
        file: "file is a file: name a folder",
        file / "out": "file is a file, so .*out cannot be in it",
        start: "start is also an input",
        teacher: "teacher is also an input",
    }.items():
        with pytest.raises((ValueError, OSError), match=message):
            train(f"--output_dir={place}", f"--teacher_name_or_path={teacher}")
    for script in (train_simcse, train_triplet, train_margin_softmax):
        with pytest.raises(ValueError, match="start is also an input"):
            script.main([f"--model_name_or_path={start}", f"--output_dir={start}"])


def test_text_that_the_start_cannot_read_is_refused(train, tmp_path: Path) -> None:
    words = ("שלום", "מה שלומך", "a cat")
    rows = "".join(f"{i}\t{word} {i}\n" for i in range(20) for word in words)
    (path := tmp_path / "hebrew.tsv").write_text(rows, encoding="utf-8")
    given = (f"--train_file={path}", "--data_format=groups")
    with pytest.raises(DataError, match=r"hebrew\.tsv: [67].% of the sentences are mostly unknown"):
        train(*given)
    with pytest.raises(DataError, match=r"hebrew\.tsv: .* of the sentences are mostly unknown"):
        train(*given, "--streaming=true", "--max_steps=1", "--validation_groups=0")


@pytest.mark.parametrize(("labels", "warned"), [(29, True), (31, False)])
def test_labels_named_as_sentences_are_told(
    train, tmp_path: Path, caplog: pytest.LogCaptureFixture, labels: int, warned: bool
) -> None:
    rows = "".join(f"{i % labels} kind,cat {i}\n" for i in range(600))
    (path := tmp_path / "intents.csv").write_text(f"kind,text\n{rows}")
    with pytest.raises(ValueError, match="cannot be held out"):
        train(f"--train_file={path}", "--text_columns", "text", "kind")
    told = "intents.csv has 29 different values of kind in 600 rows, such as '0 kind': they are"
    assert (told in caplog.text) == warned
    assert ("give --data_format groups --text_columns kind text" in caplog.text) == warned


def test_what_changes_little_is_said(
    train, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Groups joined by sentences they share are no negatives; without a new head its rate idles."""
    (path := tmp_path / "chain.tsv").write_text(
        "".join(f"the cat {i}\tthe cat {i + 1}\n" for i in range(20))
    )
    more = ("--data_format=pairs", "--validation_groups=0", "--seq2seq_weight=0", "--max_steps=1")
    with caplog.at_level(logging.INFO, logger="simbert_hf"):
        train(f"--train_file={path}", "--save_strategy=no", *more)
    assert "The groups form 1 sets that share no sentence, fewer than the 4 pairs" in caplog.text
    assert "--head_learning_rate 0.01 has no effect" in caplog.text


@pytest.mark.parametrize(
    ("content", "message"),
    [("scal: 3\n1: 2", "unknown arguments: 1, scal"), ("- 3", "must be a mapping"),
     ("epochs: 1", "Is it num_train_epochs"),
     ("a: [", "cannot be read as"), ("scale: 3\nscale: 4", r"scale is given twice\n.* line 2"),
     ("scale: 3\nseed: [1, 2]", r"run\.yaml:2: seed is a list\. Give one value"),
     ("sample_sentences:\n- note: a cat", r"run\.yaml:2: .* holds {'note': 'a cat'}, .* in quotes"),
     ("sample_sentences: [a cat, null]", "holds None, which is not a text"),
     ("preset: old", "Unknown preset 'old'"),
     ("scale: null", "scale cannot be null"),
     (None, r"There is no file .*run\.yaml")],
)  # fmt: skip
def test_bad_yaml_is_named(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "run.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ValueError, match=message):
        parse_arguments(TYPES, [str(path)], PRESETS)


def test_yaml_is_read_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("revision: 1.10\nseed: 010\nsample_sentences: [no, 12:30, 1e3, '- a']\n")
    model, data, _, args = parse_arguments(TYPES, [str(path)], PRESETS)
    assert (model.revision, args.seed) == ("1.10", 10)
    assert data.sample_sentences == ["no", "12:30", "1e3", "- a"]


def test_a_text_in_yaml_is_no_flag(tmp_path: Path) -> None:
    path, texts = tmp_path / "run.yaml", ["a cat", "-x", "--seed", "-5", "--scale=3", "--preset"]
    path.write_text(f"preset: original\nseed: 7\nsample_sentences: {json.dumps(texts)}\n")
    _, data, objective, args = parse_arguments(TYPES, [str(path)], PRESETS)
    assert (data.sample_sentences, args.seed) == (texts, 7)
    assert objective.scale == ObjectiveArguments().scale
    _, data, *_ = parse_arguments(TYPES, [str(path), "--sample_sentences", "a dog"], PRESETS)
    assert data.sample_sentences == ["a dog"]
    path.write_text('model_name_or_path: m\ntrain_file: ["-a"]\ndev_file: b\ntest_file: c\n')
    [given] = parse_arguments([JudgeArguments], [str(path)])  # where it is required
    assert given.train_file == ["-a"]


def test_a_flag_of_another_kind_is_not_suggested() -> None:
    with pytest.raises(ValueError, match=r"no --group_by_length; see --help\.$"):
        parse_arguments(TYPES, ["--group_by_length"], PRESETS)
    with pytest.raises(ValueError, match=r"see --help\. Is it --eval_strategy\?$"):
        parse_arguments(TYPES, ["--evaluation_strategy=no"], PRESETS)


def test_null_undoes_what_a_preset_gives(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("preset: original\nmax_chars: null\noutput_dir: out\nsave_total_limit: null\n")
    parsed = {
        k: v for one in parse_arguments(TYPES, [str(path)], PRESETS) for k, v in vars(one).items()
    }
    assert parsed["max_chars"] is None
    assert parsed["save_total_limit"] is None


def test_null_is_no_place_to_save_in(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("output_dir: null\n")
    [args] = parse_arguments([SimilarityTrainingArguments], [str(path)])
    assert args.output_dir == ""  # not transformers' trainer_output


def test_yaml_that_is_no_utf_8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes("model_name_or_path: caf\xe9".encode("latin-1"))
    with pytest.raises(ValueError, match=r"run\.yaml cannot be read as YAML"):
        parse_arguments(TYPES, [str(path)], PRESETS)


def test_a_teacher_is_loaded_and_logged(train, start: Path) -> None:
    more = ("--max_steps=3", "--hidden_dropout=0", "--attention_dropout=0", "--warmup_steps=0")
    trainer = train(*BRIEFLY, *more, f"--teacher_name_or_path={start}")
    logged = [line["distillation"] for line in lines_with("distillation", trainer)]
    assert logged[0] == pytest.approx(0, abs=1e-6)  # the start is its own teacher
    assert logged[-1] > 1e-4


def test_a_pair_alone_is_refused(train, tmp_path: Path) -> None:
    alone = (*BRIEFLY, "--per_device_train_batch_size=1")
    with pytest.raises(ValueError, match="a single pair has no negatives"):
        train(*alone)
    writes = (*alone, "--similarity_weight=0")
    (tmp_path / "sentences.txt").write_text("a cat ran\na dog sat\n")
    sentences = f"--sentences_file={tmp_path / 'sentences.txt'}"  # of which one stands twice
    with pytest.raises(ValueError, match="a single pair has no negatives"):
        train(*writes, sentences)
    train(*writes)


def test_figures_of_which_less_is_better() -> None:
    for name, greater in (("eval_perplexity", False), ("eval_top1", True), ("loss", False)):
        _, _, _, args = parse_arguments(TYPES, [f"--metric_for_best_model={name}"], PRESETS)
        assert args.greater_is_better is greater
    _, _, _, args = parse_arguments(TYPES, ["--eval_strategy=no"], PRESETS)
    assert not args.load_best_model_at_end
    _, _, _, args = parse_arguments(TYPES, ["--metric_for_best_model="], PRESETS)
    assert args.metric_for_best_model == "loss"  # the default of transformers
    given = ["--metric_for_best_model=eval_perplexity", "--greater_is_better=true"]
    with pytest.raises(ValueError, match="a lower eval_perplexity is better; drop it"):
        parse_arguments(TYPES, given, PRESETS)


def test_what_accelerate_alone_would_do_to_batches_is_refused() -> None:
    for name in ("split_batches", "dispatch_batches"):
        given = [f'--accelerator_config={{"{name}": true}}']
        with pytest.raises(ValueError, match=f"{name} has no effect, as each process draws"):
            parse_arguments(TYPES, given, PRESETS)


def test_no_training_data_are_named(tmp_path: Path) -> None:
    args = SimilarityTrainingArguments(str(tmp_path), report_to="none")
    with pytest.raises(DataError, match="no training data; give --train_file"):
        read_groups(DataArguments(), args)


def test_validation_sentences_leave_the_training_groups(
    train, groups: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    held_out = tmp_path / "held_out.jsonl"
    held_out.write_text("\n".join(groups.read_text().replace("how", "HOW").splitlines()[:5]))
    more = (*BRIEFLY[1:], "--seq2seq_weight=0", f"--validation_file={held_out}")
    with caplog.at_level(logging.INFO, "simbert_hf"):
        trainer = train(*more)
    assert "left out held-out sentences, and with them 5 groups" in caplog.text
    assert len(trainer.train_dataset) == 43
    one = tmp_path / "one.tsv"
    one.write_text("sentence1\tsentence2\nA\tB\nB\tC\n")
    with pytest.raises(DataError, match=r"one\.tsv: has all sentences in one group"):
        train(f"--validation_file={one}")
    with pytest.raises(
        ValueError, match="No training group is left without sentences of the validation"
    ):
        train(f"--train_file={held_out}", f"--validation_file={held_out}")


def test_a_held_out_sentence_costs_its_group_no_other() -> None:
    rows = {"texts": [["a", "b", "c"], ["d", "e"], ["f", "g"]], "group": [0, 1, 2]}
    held_out = Dataset.from_dict({"texts": [["A ", "z"], ["d", "z"]], "group": [0, 1]})
    for groups in (Dataset.from_dict(rows), Dataset.from_dict(rows).to_iterable_dataset()):
        kept = list(without_sentences_of(held_out, groups))
        assert kept == [{"texts": ["b", "c"], "group": 0}, {"texts": ["f", "g"], "group": 2}]


def test_unpaired_sentences_are_not_held_out_and_keep_their_partners(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = tmp_path / "one.txt", tmp_path / "two.txt"
    one.write_text("a cat\na dog\nodd\n")
    two.write_text("go\ngoing\nHeld out\nits partner\na  CAT\nlast\n")
    held_out = Dataset.from_dict({"texts": [["held out", "z"]], "group": [0]})
    files = [str(one), str(two)]
    couples = ["a cat", "a dog", "go", "going", "a  CAT", "last"]
    caplog.set_level("INFO")
    assert load_unpaired(files, held_out, twice=False) == couples
    assert "left out 3 unpaired sentences, held out or without a partner" in caplog.text
    each = ["a cat", "a dog", "odd", "go", "going", "its partner", "last"]
    assert load_unpaired(files, held_out, twice=True) == each
    assert "left out 2 unpaired sentences, held out or equal" in caplog.text
    assert load_unpaired([], held_out, twice=True) == []
    one.write_text("held out\n")
    with pytest.raises(
        DataError, match=r"one\.txt: too few sentences are left that are not held out"
    ):
        load_unpaired([str(one)], held_out, twice=True)


def test_a_blank_line_parts_no_unpaired_sentences_that_go_together(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("a cat\na dog\n\n\ngo\ngoing\n\n")
    assert load_unpaired([str(path)], None, twice=False) == ["a cat", "a dog", "go", "going"]
    path.write_text("a cat\na dog\ngo\n\ncome\ncoming\n")
    assert len(load_unpaired([str(path)], None, twice=True)) == 5
    with pytest.raises(DataError, match=r"a\.txt:4: is blank, but pairs of lines belong"):
        load_unpaired([str(path)], None, twice=False)


def test_preferences_are_not_held_out(tmp_path: Path) -> None:
    path = tmp_path / "preferences.csv"
    path.write_text("prompt,chosen,rejected\na,b,c\nd,held out,e\n")
    held_out = Dataset.from_dict({"texts": [["Held out", "z"]], "group": [0]})
    assert load_unseen(load_triplets, [str(path)], held_out, "preference") == [("a", "b", "c")]
    with pytest.raises(DataError, match="every preference holds a held-out sentence"):
        load_unseen(
            load_triplets, [str(path)], Dataset.from_dict({"texts": [["a", "d"]]}), "preference"
        )
