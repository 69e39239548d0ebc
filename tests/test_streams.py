"""Streams: each row once an epoch over all readers, a resume as if nothing had happened."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from transformers import IntervalStrategy, TrainingArguments

from scripts.train_simbert import main
from simbert_hf.arguments import SimilarityTrainingArguments
from simbert_hf.collators import PairCollator
from simbert_hf.data import DataError, PairDataset, PairStream
from simbert_hf.data.streams import Position, stream_loader
from simbert_hf.objectives import SimBertObjective
from simbert_hf.trainer import SimilarityTrainer
from tests.processes import run_processes
from tests.tiny import WORDS, lines_with, save_tiny_simbert, tiny_simbert

SIZES = (7, 0, 31, 1, 20, 44)  # rows of each shard
N = sum(SIZES)
opened: list[int] = []  # shards, in this process


def rows_of(shards: list[int]):
    for shard in shards:
        opened.append(shard)
        for i in range(sum(SIZES[:shard]), sum(SIZES[: shard + 1])):
            yield {"texts": [f"{i} {c}" for c in "abcde"[: 2 + i % 4]], "group": i}


def lengths(pairs: Sequence) -> np.ndarray:
    """A length that no row has for long."""
    return np.array([pair["group"] * 7 % 31 for pair in pairs])


def make_stream(shards: int = 6, grouped: bool = False, **options) -> PairStream:
    numbers = {"shards": list(range(shards))}
    groups = datasets.IterableDataset.from_generator(rows_of, gen_kwargs=numbers)
    stream = PairStream(groups, **{"seed": 3, "buffer_size": 20} | options)
    if grouped:
        stream.group_by_length(8, lengths)
    return stream


def collate(pairs):
    return {"pairs": [{k: v for k, v in pair.items() if k != "position"} for pair in pairs]}


def loader(stream: PairStream, workers: int = 0):
    method = "fork" if workers else None
    return stream_loader(stream, 8, collate, num_workers=workers, multiprocessing_context=method)


# Each row once an epoch --------------------------------------------------------------------------


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("processes", [1, 2, 3, 4])
@pytest.mark.parametrize("shards", [6, 5, 1])
def test_each_row_is_read_once_an_epoch(shards, processes, workers, grouped) -> None:
    streams = [
        make_stream(shards, grouped, process=i, processes=processes) for i in range(processes)
    ]
    orders = []
    for epoch in range(3):
        drawn = [
            pair["group"]
            for stream in streams
            for worker in range(workers)
            for pair in stream.epoch(epoch, worker, workers)
        ]
        assert sorted(drawn) == list(range(sum(SIZES[:shards])))
        orders.append(drawn)
    assert all(a != b for a, b in itertools.combinations([*orders, sorted(orders[0])], 2))


@pytest.mark.parametrize("processes", [2, 3])
def test_shards_are_read_by_one_process_and_dealt_anew(processes: int) -> None:
    own = []
    for epoch, process in itertools.product(range(4), range(processes)):
        opened.clear()
        list(make_stream(process=process, processes=processes).epoch(epoch))
        own.append(frozenset(opened))
        assert len(opened) == len(own[-1]) == 6 // processes
    assert all(len(frozenset().union(*own[i : i + processes])) == 6
               for i in range(0, len(own), processes))  # fmt: skip
    assert len(set(own[::processes])) > 1


def test_another_seed_reads_the_shards_in_another_order() -> None:
    orders = []
    for seed in range(3):
        opened.clear()
        list(make_stream(seed=seed, buffer_size=1).epoch(0))
        orders.append(tuple(opened))
    assert len(set(orders)) == 3


def test_the_sharing_is_told() -> None:
    assert make_stream(processes=3).sharing(2) == "6 shards, 6 readers: each reads 1 of its own"
    said = make_stream(processes=4).sharing()
    assert said.startswith("6 shards, 4 readers (workers of all processes): 2 read the same 3 ")
    assert ": 2 read the same 5 " in make_stream(5, processes=2).sharing()


def test_windows_mix_the_shards_and_draws_are_those_of_a_data_set() -> None:
    drawn = list(make_stream().epoch(1))
    begin = Counter(sum(pair["group"] >= total for total in (7, 38, 39, 59)) for pair in drawn[:20])
    assert len(begin) >= 4
    pairs = PairDataset(datasets.Dataset.from_generator(rows_of, gen_kwargs={"shards": [0, 2]}), 3)
    pairs.set_epoch(1)
    by_row = {pair["group"]: pair for pair in collate(drawn)["pairs"]}
    assert [by_row[i] for i in range(38)] == pairs.__getitems__(range(38))


def test_epochs_follow_each_other_and_none_ends_a_process() -> None:
    for process in range(2):  # of which one has the large shards
        stream = make_stream(process=process, processes=2)
        taken = [pair["group"] for pair in itertools.islice(stream, 3 * N)]
        expected = itertools.chain.from_iterable(stream.epoch(i) for i in itertools.count())
        assert taken == [pair["group"] for pair in itertools.islice(expected, 3 * N)]


def test_batches_are_of_like_length_window_after_window_and_epoch_after_epoch() -> None:
    def padding(grouped: bool) -> list[float]:
        batches = itertools.islice(loader(make_stream(grouped=grouped, buffer_size=43)), 65)
        found = [lengths(batch["pairs"]) for batch in batches]  # 5 epochs: 15 windows of 31 to 44
        return [float(x.max() - x.mean()) for x in found]

    grouped, random = padding(True), padding(False)
    assert np.median(grouped) < np.median(random) / 3
    assert np.mean(np.array(grouped) < 6) > 0.6  # those across two windows are random
    assert abs(np.corrcoef(grouped, range(65))[0, 1]) < 0.3  # and it does not get worse


def test_batches_of_a_window_do_not_go_from_short_to_long() -> None:
    batches = itertools.islice(loader(make_stream(grouped=True, buffer_size=N)), N // 8)
    means = [float(lengths(batch["pairs"]).mean()) for batch in batches]
    assert abs(np.corrcoef(means, range(N // 8))[0, 1]) < 0.6


def test_a_reader_whose_shards_are_empty_waits_for_its_turn() -> None:
    first = {row["group"] for row in rows_of([0])}
    for process in range(6):
        stream = make_stream(6, process=process, processes=6)
        stream.groups = stream.groups.filter(lambda row: row["group"] in first)
        assert next(iter(stream))["group"] in first


def test_a_stream_without_a_row_ends_with_an_error() -> None:
    stream = PairStream(make_stream().groups.filter(lambda row: False))
    with pytest.raises(DataError, match="contains no group"):
        next(iter(stream))


# Resume ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize(("process", "processes"), [(0, 1), (0, 2), (2, 3), (3, 4)])
def test_a_resumed_stream_goes_on_as_if_nothing_had_happened(
    process, processes, grouped, tmp_path
) -> None:
    options = {"process": process, "processes": processes, "grouped": grouped}
    whole = list(itertools.islice(loader(make_stream(**options)), 30))
    for used in (1, 2, 3, 7, 12, 19):
        stopped = make_stream(**options)
        stopped.took(whole[used - 1]["position"])
        stopped.save(tmp_path)
        resumed = make_stream(**options)
        resumed.load(tmp_path)
        assert list(itertools.islice(loader(resumed), 30 - used)) == whole[used:]


def test_a_resumed_stream_opens_no_shard_that_is_done() -> None:
    numbers = {"shards": [2] * 40}
    groups = datasets.IterableDataset.from_generator(rows_of, gen_kwargs=numbers)
    stream = PairStream(groups, buffer_size=100)
    *_, last = itertools.islice(stream, 40 * SIZES[2] - 150)
    stream.took(last["position"])
    opened.clear()
    list(itertools.islice(stream, 150))
    assert len(opened) < 20


@pytest.mark.multiproc
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on one core
@pytest.mark.parametrize(("workers", "grouped"), [(2, False), (3, False), (2, True)])
def test_a_resume_with_workers(workers: int, grouped: bool, tmp_path: Path) -> None:
    whole = list(itertools.islice(loader(make_stream(grouped=grouped), workers), 40))
    first = [pair["group"] for batch in whole[: 2 * workers] for pair in batch["pairs"]]
    assert len(first) == len(set(first)) == 16 * workers
    stopped = make_stream(grouped=grouped)
    for used, batch in enumerate(whole[:24], start=1):
        stopped.took(batch["position"])
        if used in (1, 2, 13, 24):
            stopped.save(tmp_path)
            resumed = make_stream(grouped=grouped)
            resumed.load(tmp_path, workers)
            after = list(itertools.islice(loader(resumed, workers), 8))
            assert collate_all(after) == collate_all(whole[used : used + 8])
            with pytest.raises(ValueError, match=f"with workers {workers}, this one has 1: resume"):
                resumed.load(tmp_path)


def collate_all(batches):
    """Leave out the positions, which name workers by their place in one run."""
    return [batch["pairs"] for batch in batches]


def test_a_checkpoint_names_the_worker_of_the_newest_pair_last(tmp_path: Path) -> None:
    stream = make_stream()
    for worker in (0, 1, 0):
        stream.took(Position(worker, 2))
    stream.save(tmp_path)
    given = json.loads((tmp_path / "stream-0.json").read_text())["given"]
    assert [worker for worker, *_ in given] == [1, 0]


def test_a_resume_forgets_what_was_read_after_the_checkpoint(tmp_path: Path) -> None:
    stream = make_stream()
    stream.took(Position(0, 2))
    stream.save(tmp_path)
    saved = (tmp_path / "stream-0.json").read_text()
    stream.took(Position(1, 2))
    stream.load(tmp_path, 2)
    stream.save(tmp_path)
    assert (tmp_path / "stream-0.json").read_text() == saved


def test_a_checkpoint_of_another_stream_is_refused(tmp_path: Path) -> None:
    stream = make_stream()
    stream.took(next(iter(stream))["position"])
    stream.save(tmp_path)
    with pytest.raises(
        ValueError, match="with shards 6, this one has 5: resume with the same files"
    ):
        make_stream(5).load(tmp_path)
    with pytest.raises(ValueError, match="with processes 1, this one has 2"):
        make_stream(processes=2).load(tmp_path)
    with pytest.raises(ValueError, match=r"is missing: .* has fewer processes"):
        make_stream(process=1, processes=2).load(tmp_path)
    for name, then, now in (("seed", 3, 4), ("buffer_size", 20, 21)):
        with pytest.raises(ValueError, match=f"with {name} {then}, this one has {now}"):
            make_stream(**{name: now}).load(tmp_path)
    stream.group_by_length(1, lengths)
    stream.save(tmp_path)
    with pytest.raises(ValueError, match="with grouped True, this one has False"):
        make_stream().load(tmp_path)
    with pytest.raises(ValueError, match="with batch_size 1, this one has 8"):
        make_stream(grouped=True).load(tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_text(file.read_text().replace('"seed"', '"other"'))
    with pytest.raises(ValueError, match="with seed None, this one has 3"):
        stream.load(tmp_path)


def test_a_resume_where_rows_have_other_lengths_is_refused(tmp_path: Path) -> None:
    stream = make_stream(grouped=True)
    stream.took(next(iter(stream))["position"])
    stream.save(tmp_path)
    other = make_stream()
    other.group_by_length(8, lambda pairs: -lengths(pairs))
    other.load(tmp_path)
    with pytest.raises(DataError, match="are not where the checkpoint left them: resume with"):
        next(iter(other))


def test_the_part_of_another_process_is_refused() -> None:
    make_stream(process=1, processes=2).check_process(1, 2)
    with pytest.raises(ValueError, match="is for process 0 of 1, but this is process 0 of 2"):
        make_stream().check_process(0, 2)


def test_a_trainer_refuses_what_it_cannot_train_with(tmp_path: Path) -> None:
    model = tiny_simbert()
    args = SimilarityTrainingArguments(
        str(tmp_path), use_cpu=True, max_steps=1, report_to="none", eval_strategy="no",
        save_strategy="no",
    )  # fmt: skip
    given = {
        "model": model, "args": args, "objective": SimBertObjective(),
        "data_collator": PairCollator(model.rows, 24), "train_dataset": make_stream(),
    }  # fmt: skip
    plain = TrainingArguments(str(tmp_path), use_cpu=True, report_to="none")
    refused: dict[str, tuple[Any, type[Exception], str]] = {
        "train_dataset": (make_stream(processes=2), ValueError, "is for process 0 of 2"),
        "args": (plain, TypeError, "args=TrainingArguments: give SimilarityTrainingArguments"),
        "data_collator": (None, TypeError, "data_collator is a NoneType: give a PairCollator"),
        "eval_dataset": ([], ValueError, "eval_dataset is not supported"),
        "compute_loss_func": (print, ValueError, "compute_loss_func is not supported"),
        "evaluator": (print, TypeError, "evaluator is a builtin_function_or_method: give a StsEv"),
    }
    for name, (value, kind, message) in refused.items():
        with pytest.raises(kind, match=message):
            SimilarityTrainer(**given | {name: value})
    with pytest.raises(TypeError, match="train_dataset is a list: wrap it in a PairDataset"):
        SimilarityTrainer(**given | {"train_dataset": [{"texts": ["a", "b"], "group": 0}]})
    longer = {"data_collator": PairCollator(model.rows, model.positions // 2 + 1)}
    with pytest.raises(ValueError, match=r"max_length 33 .* 64 positions leave at most 32"):
        SimilarityTrainer(**given | longer)
    args.eval_strategy = IntervalStrategy.EPOCH
    with pytest.raises(ValueError, match="no evaluator: pass one, or eval_strategy='no'"):
        SimilarityTrainer(**given)


# Training ----------------------------------------------------------------------------------------


def train(folder: Path, out: Path, *more: str) -> dict[str, torch.Tensor]:
    files = [str(path) for path in sorted(folder.glob("*.jsonl"))]
    trainer = main(
        [f"--model_name_or_path={folder / 'start'}", "--train_file", *files,
         f"--output_dir={out}", "--streaming=true", "--per_device_train_batch_size=4",
         "--max_steps=9", "--eval_strategy=no", "--save_strategy=steps", "--save_steps=5",
         "--use_cpu", "--report_to=none", "--disable_tqdm=true", "--max_length=24",
         "--hidden_dropout=0.2", "--learning_rate=1e-2", "--lr_scheduler_type=constant",
         "--warmup_steps=0", "--logging_steps=1", *more]
    )  # fmt: skip
    assert trainer.state.global_step == 9
    assert [line["epoch"] for line in lines_with("loss", trainer)] == [
        pytest.approx(step / 9) for step in range(1, 10)
    ]
    return trainer.accelerator.unwrap_model(trainer.model).state_dict()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A start, and two shards of very different sizes."""
    save_tiny_simbert(tmp_path / "start")
    for name, words in (("few", WORDS[:3]), ("many", WORDS[3:30])):
        rows = [{"text": f"{word} cat", "synonyms": [f"the {word} dog"]} for word in words]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def interrupt_and_resume(folder: Path, rank: int = 0, more: Sequence[str] = ()) -> None:
    torch.set_num_threads(1)
    out = folder / "out"
    whole = train(folder, out, *more)
    resumed = train(folder, out, f"--resume_from_checkpoint={out / 'checkpoint-5'}", *more)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    torch.save(whole, folder / f"{rank}.pt")


def test_a_resumed_run_ends_as_an_uninterrupted_one(folder: Path) -> None:
    interrupt_and_resume(folder)


@pytest.mark.multiproc
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on one core
def test_a_resumed_run_with_workers_and_accumulation(folder: Path) -> None:
    flags = ["--gradient_accumulation_steps=3", "--dataloader_num_workers=2"]
    interrupt_and_resume(folder, more=flags)


def work(rank: int, folder: Path) -> None:
    interrupt_and_resume(folder, rank)


@pytest.mark.multiproc
def test_processes_with_unequal_shards_do_not_wait_for_each_other(folder: Path) -> None:
    run_processes(work, 2, folder, seconds=150)
    first, second = (torch.load(folder / f"{rank}.pt") for rank in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
