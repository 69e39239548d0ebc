"""Several gloo processes, with and without accumulation, against one process on the same rows."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from filelock import FileLock

from scripts import train_margin_softmax, train_simbert, train_simcse, train_triplet
from simbert_hf.training.run import LOCK
from tests.processes import run_processes
from tests.tiny import WORDS, save_tiny_simbert, tiny_simbert

Weights = dict[str, torch.Tensor]
Line = dict[str, float]  # of the log

# The learning rate is 1 and the optimiser SGD, so that weights change by their gradients.
FLAGS = (
    "--max_steps=1 --save_strategy=no --eval_strategy=no --use_cpu --report_to=none --optim=sgd "
    "--disable_tqdm=true --length_window=1 --weight_decay=0 --max_grad_norm=0 --warmup_steps=0 "
    "--learning_rate=1 --head_learning_rate=1 --lr_scheduler_type=constant --hidden_dropout=0 "
    "--attention_dropout=0 --logging_steps=1 --max_length=24"
).split()

# Runs, and how many pairs a step of all processes (and of one micro-batch of all) has.
RUNS: dict[str, list[str]] = {
    "taught": ["--teacher_name_or_path=teacher", "--validation_groups=0"],
    "joint": ["--mlm_weight=0.5", "--validation_groups=0"],
    "cached": ["--mlm_weight=0.5", "--validation_groups=0", "--gradcache_batch_size=3"],
    "tokens": ["--similarity_weight=0", "--mlm_weight=0.5", "--validation_groups=0"],
    "triplet": ["--margin=2", "--validation_groups=0"],
    "simcse": ["--examples=pairs", "--mlm_weight=0.5"],
    "one-way": ["--examples=pairs", "--loss=one_way"],
    "margin": ["--validation_groups=0", "--loss=arc", "--center_weight=0.1"],
}
SCRIPTS = {
    "simcse": train_simcse,
    "one-way": train_simcse,
    "triplet": train_triplet,
    "margin": train_margin_softmax,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A start and groups of very different lengths."""
    folder = tmp_path_factory.mktemp("setting")
    save_tiny_simbert(folder / "start")
    save_tiny_simbert(folder / "teacher", "cls")
    rows = [
        {"text": " ".join(WORDS[i : i + 1 + i % 5]), "synonyms": [" ".join(WORDS[i : i + 9])]}
        for i in range(16)
    ]
    (folder / "groups.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def train(folder: Path, run: str, pairs: int, accumulation: int) -> tuple[Weights, Line]:
    flags = [flag.replace("=teacher", f"={folder / 'teacher'}") for flag in RUNS[run]]
    main: Callable = SCRIPTS.get(run, train_simbert).main
    trainer = main(
        [f"--model_name_or_path={folder / 'start'}", f"--train_file={folder / 'groups.jsonl'}",
         f"--output_dir={folder / 'out'}", f"--per_device_train_batch_size={pairs}",
         f"--gradient_accumulation_steps={accumulation}", *FLAGS, *flags]
    )  # fmt: skip
    weights = trainer.accelerator.unwrap_model(trainer.model).state_dict()
    speed = ("rows_per_second", "tokens_per_second", "grad_norm")
    line = trainer.state.log_history[0]
    return weights, {name: value for name, value in line.items() if name not in speed}


def work(rank: int, world: int, folder: Path) -> None:
    for run, accumulation in itertools.product(RUNS, (1, 2)):
        found = train(folder, run, 8 // world // accumulation, accumulation)
        torch.save(found, folder / f"{run}-{accumulation}-{rank}.pt")


@pytest.mark.multiproc
@pytest.mark.parametrize("world", [2, 4])
def test_processes_train_as_one(folder: Path, world: int) -> None:
    start = tiny_simbert().state_dict()
    run_processes(work, world, world, folder)
    for run, accumulation in itertools.product(RUNS, (1, 2)):
        # A similarity loss sees one micro-batch of all processes; token losses see the whole step.
        alone = 1 if run == "tokens" else accumulation
        plain = "joint" if run == "cached" else run
        wanted, line = train(folder, plain, 8 // alone, alone)
        if alone < accumulation:  # other negatives, though they weigh nothing
            line = {name: value for name, value in line.items() if "similarity" not in name}
        moved = max((wanted[name] - start[name]).abs().max() for name in start)
        assert moved > 0.1
        for rank in range(world):
            found, logged = torch.load(folder / f"{run}-{accumulation}-{rank}.pt")
            for name, value in line.items():  # the loss, and its parts
                assert logged[name] == pytest.approx(value, abs=1e-4), name  # the log rounds
            for name in wanted:
                torch.testing.assert_close(found[name], wanted[name], rtol=0, atol=1e-5)


def refused(rank: int, folder: Path) -> None:
    with pytest.raises(ValueError, match="is in use by another process"):
        train(folder, "joint", 4, 1)


@pytest.mark.multiproc
def test_every_process_learns_that_the_folder_is_taken(folder: Path) -> None:
    (folder / "out").mkdir(exist_ok=True)
    with FileLock(folder / "out" / LOCK):
        run_processes(refused, 2, folder, seconds=60)


def test_accumulated_token_losses_are_those_of_one_batch(folder: Path) -> None:
    whole, line = train(folder, "tokens", 8, 1)
    for accumulation in (2, 8):
        parts, logged = train(folder, "tokens", 8 // accumulation, accumulation)
        for name in ("loss", "seq2seq", "mlm"):
            assert logged[name] == pytest.approx(line[name], abs=1e-4)
        for name in whole:
            torch.testing.assert_close(parts[name], whole[name], rtol=0, atol=1e-5)
