"""Kills and full disks while saving: what was whole stays whole, and the run can go on."""

import errno
import json
import logging
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers.trainer_utils import get_last_checkpoint

from scripts.train_simbert import main
from simbert_hf import SimBert
from simbert_hf.arguments import ModelArguments, SimilarityTrainingArguments
from simbert_hf.evaluation.evaluators import SimBertEvaluator
from simbert_hf.trainer import SimilarityTrainer
from simbert_hf.training.resuming import SameRun, newest_checkpoint
from simbert_hf.training.run import LOCK, sole_run
from simbert_hf.training.saving import ANEW
from simbert_hf.utils import atomic
from simbert_hf.utils.atomic import filled, put_in_place, write_text
from simbert_hf.utils.script import run_script
from tests.tiny import WORDS, save_tiny_simbert, tiny_simbert

resource = pytest.importorskip("resource", reason="file size limits stand for a full disk")


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[str]]:
    """Flags of a run that saves at steps 3 and 6, and keeps one checkpoint."""
    folder = tmp_path_factory.mktemp("setting")
    save_tiny_simbert(folder / "start")
    rows = [{"text": f"{a} cat", "synonyms": [f"the {a} dog"]} for a in WORDS[:16]]
    (folder / "groups.jsonl").write_text("\n".join(map(json.dumps, rows)))

    def flags(out: Path, *more: str) -> list[str]:
        return [
            f"--model_name_or_path={folder / 'start'}", f"--train_file={folder / 'groups.jsonl'}",
            f"--output_dir={out}", "--validation_groups=0", "--per_device_train_batch_size=4",
            "--max_steps=6", "--save_strategy=steps", "--save_steps=3", "--save_total_limit=1",
            "--use_cpu", "--report_to=none", "--disable_tqdm=true", "--max_length=24",
            "--hidden_dropout=0.2", "--learning_rate=1e-2", "--lr_scheduler_type=constant",
            "--warmup_steps=0", *more,
        ]  # fmt: skip

    return flags


@pytest.fixture(autouse=True)
def _wordless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let evaluations write no paraphrases, which take most of a run's time."""
    monkeypatch.setattr(SimBertEvaluator, "paraphrases", lambda *_: {})


def waiting(write: Callable[[], None], place: Path, caplog) -> threading.Thread:
    """Write in a thread, and return once it waits for its turn, or has ended without."""
    other = threading.Thread(target=write)
    other.start()
    told = f"Another process writes {place}: waiting for it to end"
    end = time.monotonic() + 60
    while other.is_alive() and told not in caplog.text and time.monotonic() < end:
        other.join(0.01)
    assert told in caplog.text
    return other


def test_processes_that_write_one_file_take_turns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place, begun = tmp_path / "groups.jsonl", []

    def second() -> None:
        with atomic.whole(place) as part:
            begun.append(part)
            part.write_text("second")

    with atomic.whole(place) as part:
        part.write_text("first, ")
        other = waiting(second, place, caplog)
        assert not begun
        part.write_text("first, and longer than the second")
    other.join(60)
    assert place.read_text() == "second"
    assert [*tmp_path.iterdir()] == [place]


def test_what_lies_where_a_file_begins_is_not_written_to(tmp_path: Path) -> None:
    """In a folder for everybody, such as /tmp, it may be a link to a file of ours."""
    (tmp_path / "ours.txt").write_text("ours")
    (tmp_path / "out.txt.part").symlink_to(tmp_path / "ours.txt")
    write_text(tmp_path / "out.txt", "new")
    assert not (tmp_path / "out.txt").is_symlink()
    assert [(tmp_path / name).read_text() for name in ("ours.txt", "out.txt")] == ["ours", "new"]


def test_processes_that_fill_one_folder_take_turns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out, begun = tmp_path / "out", []

    def second() -> None:
        with filled(out) as made:
            begun.append(made)
            (made / "config.json").write_text("second")
            (made / "model.safetensors").write_text("second")

    with filled(out) as made:
        (made / "config.json").write_text("first")
        other = waiting(second, out, caplog)
        assert not begun
        (made / "model.safetensors").write_text("first")
    other.join(60)
    assert {path.name: path.read_text() for path in out.iterdir()} == {
        "config.json": "second", "model.safetensors": "second",
    }  # fmt: skip


def test_weights_that_do_not_fit_are_told_with_their_place(tmp_path: Path) -> None:
    told = pytest.raises(SafetensorError, match=r"No space left on device: '.*out'")
    with told, filled(tmp_path / "out"):
        raise SafetensorError("No space left on device")


def test_where_nothing_can_be_locked_files_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", flock)
    write_text(tmp_path / "a", "b")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["b"]


def test_what_is_locked_is_not_what_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On SMB shares, only the handle that locks a file can write to it."""
    locked = []
    monkeypatch.setattr("fcntl.flock", lambda handle, _: locked.append(os.fstat(handle)))
    with atomic.whole(tmp_path / "a") as part:
        part.touch()
        assert len(locked) == 1
        assert not os.path.samestat(locked[0], part.stat())


def test_a_file_system_that_syncs_no_folders_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fsync

    def fsync(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        sync(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    write_text(tmp_path / "a", "b")
    assert (tmp_path / "a").read_text() == "b"


@pytest.mark.parametrize(
    ("kind", "number"), [(stat.S_ISDIR, errno.EIO), (stat.S_ISREG, errno.EINVAL)]
)
def test_a_disk_that_fails_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Callable[[int], bool], number: int
) -> None:
    def fsync(handle: int) -> None:
        if kind(os.fstat(handle).st_mode):
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match=os.strerror(number)):
        write_text(tmp_path / "a", "b")
    assert not (tmp_path / "a.part").exists()


def test_all_is_on_the_disk_before_it_is_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, place = tmp_path / "made", tmp_path / "place"
    (made / "inner").mkdir(parents=True)
    (made / "inner" / "file").write_text("new")
    names = {path.stat().st_ino: path.name for path in (tmp_path, *tmp_path.rglob("*"))}
    synced: list[tuple[str, bool]] = []

    def fsync(handle: int) -> None:
        synced.append((names[os.fstat(handle).st_ino], place.exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    put_in_place(made, place)
    before = [(name, False) for name in ("file", "inner", "made")]
    assert synced == [*before, (tmp_path.name, True)]


def test_checkpoints_and_models_are_put_in_place_when_all_have_written(
    setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process writes its random state and the parts of its own."""
    events: list[str] = []
    save = SimilarityTrainer._save_parts

    def put(made: Path, place: Path) -> None:
        events.append(place.name)
        put_in_place(made, place)

    def save_parts(self, folder: Path) -> None:
        events.append("parts")
        save(self, folder)

    monkeypatch.setattr("simbert_hf.training.saving.put_in_place", put)
    monkeypatch.setattr(SimilarityTrainer, "_save_parts", save_parts)
    monkeypatch.setattr(Accelerator, "wait_for_everyone", lambda _: events.append("wait"))
    main(setting(tmp_path))
    for name in ("checkpoint-3", "checkpoint-6"):
        at = events.index(name)
        assert events[at - 2 : at + 2] == ["parts", "wait", name, "wait"]
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(events[at:])


@pytest.fixture(scope="module")
def whole(setting, tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """Weights of an uninterrupted run."""
    out = tmp_path_factory.mktemp("whole")
    torch.set_num_threads(1)
    main(setting(out))
    assert [path.name for path in out.glob("checkpoint-*")] == ["checkpoint-6"]
    assert not (out / "_saving").exists()
    return load_file(out / "model.safetensors")


def assert_goes_on(flags: list[str], out: Path, whole: dict[str, torch.Tensor]) -> None:
    """The newest checkpoint is whole, and a run resumed from it ends as an uninterrupted one."""
    main([*flags, "--resume_from_checkpoint=true"])
    found = load_file(out / "model.safetensors")
    assert all(torch.equal(found[name], whole[name]) for name in whole)
    assert not (out / "_saving").exists()


@pytest.mark.parametrize("head", [True, False])
def test_a_run_that_goes_on_misses_no_weights(
    setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: bool
) -> None:
    """Tied weights, and an untrained head, are not in a checkpoint."""
    told, model = [], tiny_simbert()
    model.has_lm_head = head
    model.save_pretrained(tmp_path / "start")
    monkeypatch.setattr("transformers.trainer.logger.warning", lambda text, *_: told.append(text))
    more = [f"--model_name_or_path={tmp_path / 'start'}", f"--seq2seq_weight={int(head)}"]
    for last in (3, 6):
        resume = ["--resume_from_checkpoint=true", f"--max_steps={last}"]
        main(setting(tmp_path / "run", *resume, *more))
    assert not [text for text in told if "missing keys" in text]


def test_a_run_goes_on_with_the_settings_that_it_began_with(
    setting, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A checkpoint brings back its learning rate; with another seed, other groups are held out."""
    more = ["--save_total_limit=5", "--resume_from_checkpoint=true"]
    main(setting(tmp_path, "--max_steps=3"))
    for flag, other in (
        ("--learning_rate=1e-3", "learning_rate 0.01, not 0.001"),
        ("--seed=7", "seed 42, not 7"),
        ("--optim=sgd", "optim adamw_torch_fused, not sgd"),
        ("--pooling=cls", "pooling mean, not cls"),
    ):
        with pytest.raises(ValueError, match=f"checkpoint-3 is from a run with --{other}"):
            main(setting(tmp_path, flag, *more))
    with pytest.raises(ValueError, match=r"checkpoint-3 is from another model or loss: resume"):
        main(setting(tmp_path, "--decay_all_parameters=true", *more))
    others = ["--gradient_accumulation_steps=2", "--mlm_weight=0.5", "--warmup_steps=0.5",
              "--lr_scheduler_type=cosine_with_min_lr", '--lr_scheduler_kwargs={"min_lr": 1e-3}',
              "--max_grad_norm=2"]  # fmt: skip
    caplog.clear()
    main(setting(tmp_path, *others, "--save_steps=2", *more))
    assert told_of(caplog) == [
        "gradient_accumulation_steps: 1, now 2",
        "max_steps: 3, now 6",
        "lr_scheduler_type: constant, now cosine_with_min_lr",
        "lr_scheduler_kwargs: None, now {'min_lr': 0.001}",
        "warmup_steps: 0.0, now 0.5",
        "max_grad_norm: 1.0, now 2.0",
        "mlm_weight: 0.0, now 0.5",
    ]
    assert {path.name[-1] for path in tmp_path.glob("checkpoint-*")} == {"3", "4", "6"}
    caplog.clear()
    main(setting(tmp_path, *others, "--max_steps=7", *more))
    assert told_of(caplog) == ["max_steps: 6, now 7"]


@pytest.mark.parametrize("more", [(), ("--streaming=true",)])
def test_a_file_whose_rows_have_changed_is_told_of(
    setting, tmp_path: Path, caplog: pytest.LogCaptureFixture, more: tuple[str, ...]
) -> None:
    file = tmp_path / "groups.jsonl"
    rows = [{"text": f"{a} cat", "synonyms": [f"the {a} dog"]} for a in WORDS[:16]]
    flags = [f"--train_file={file}", "--resume_from_checkpoint=true", *more]
    for last, order in ((3, 1), (6, 1), (9, -1)):
        file.write_text("\n".join(map(json.dumps, rows[::order])))
        caplog.clear()
        main(setting(tmp_path / "run", f"--max_steps={last}", *flags))
        told = [line.partition(":")[0] for line in told_of(caplog)]
        assert told == [*["max_steps"] * (last > 3), *["train_file_crc32"] * (order < 0)]


def test_another_validation_file_of_the_same_name_is_told_of(
    setting, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "held_out.csv"
    flags = [f"--validation_file={file}", "--resume_from_checkpoint=true"]
    for last, words in ((3, WORDS), (6, WORDS), (9, WORDS[1:])):
        rows = [f"my {a} dog,is {b} cat" for a, b in zip(words[:8], words[8:], strict=False)]
        file.write_text("\n".join(["sentence1,sentence2", *rows]))
        caplog.clear()
        main(setting(tmp_path / "run", f"--max_steps={last}", *flags))
        told = [line.partition(":")[0] for line in told_of(caplog)]
        changed = last == 9
        assert told == [*["max_steps"] * (last > 3), *["validation_file_crc32"] * changed]
        assert changed == (ANEW in caplog.messages)


def told_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was said to be other than in the checkpoint that a run goes on from."""
    told = [message for message in caplog.messages if "is from a run with another" in message]
    return [message.partition(" another ")[2] for message in told]


def test_of_what_a_former_version_did_not_record_nothing_is_said(
    setting, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    main(setting(tmp_path, "--max_steps=3"))
    place = tmp_path / "checkpoint-3" / "settings.json"
    settings = json.loads(place.read_text())
    for name in ("max_steps", "lr_scheduler_type", "warmup_steps", "max_grad_norm"):
        del settings[name]
    place.write_text(json.dumps(settings))
    more = ["--lr_scheduler_type=linear", "--max_grad_norm=2", "--resume_from_checkpoint=true"]
    main(setting(tmp_path, *more))
    assert told_of(caplog) == []


def test_the_settings_of_a_run_hold_no_secret(tmp_path: Path) -> None:
    args = SimilarityTrainingArguments(
        str(tmp_path), report_to="none", seed=7, lr_scheduler_type="cosine"
    )
    given = ModelArguments("org/start", token="a secret", cache_dir="/home/me", revision="v2")
    run = SameRun.of(args, given, rows=5, pooling="mean")
    run.save(tmp_path)
    saved = json.loads((tmp_path / "settings.json").read_text())
    assert saved == run.settings
    assert not {"token", "cache_dir", "hub_token"} & saved.keys()
    known = {"model_name_or_path": "org/start", "revision": "v2", "seed": 7, "processes": 1}
    known |= {"lr_scheduler_type": "cosine", "rows": 5, "pooling": "mean"}
    assert saved.items() >= known.items()


def test_a_run_that_cannot_be_saved_does_not_begin(setting, tmp_path: Path, read_only) -> None:
    read_only(tmp_path)
    with pytest.raises(PermissionError, match="is not writable"):
        main(setting(tmp_path / "run", "--train_file=none.tsv"))


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no folder that even root cannot fill")
def test_where_even_root_makes_no_file_no_run_begins(setting) -> None:
    with pytest.raises(PermissionError, match="/proc is not writable, so /proc/run cannot"):
        main(setting(Path("/proc/run"), "--train_file=none.tsv"))


@contextmanager
def disk_of(size: int) -> Iterator[None]:
    """Let no file grow beyond ``size`` bytes: the system refuses what is written then."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize(
    "full_in", ["model.safetensors", pytest.param("optimizer.pt", marks=pytest.mark.slow)]
)
def test_a_full_disk_leaves_the_last_checkpoint(
    setting, whole, tmp_path: Path, full_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, sizes = SimilarityTrainer._save_checkpoint, {}

    def save_on_full_disk(self, *args) -> None:
        if self.state.global_step == 3:
            save(self, *args)
            saved = tmp_path / "checkpoint-3"
            sizes.update({path.name: path.stat().st_size for path in saved.iterdir()})
        else:
            assert sizes["optimizer.pt"] > sizes["model.safetensors"] + 1000
            with disk_of(sizes[full_in] - 1000):
                save(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(SimilarityTrainer, "_save_checkpoint", save_on_full_disk)
        message = r"at step 6 failed: .*\n?.*resume with --resume_from_checkpoint true"
        with pytest.raises(OSError, match=message):
            main(setting(tmp_path))
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["checkpoint-3"]
    assert newest_checkpoint(tmp_path) == str(tmp_path / "checkpoint-3")
    assert_goes_on(setting(tmp_path), tmp_path, whole)


def test_a_full_disk_leaves_the_model_that_was_there(setting, tmp_path: Path) -> None:
    trainer = main(setting(tmp_path, "--max_steps=1", "--save_strategy=no"))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with torch.no_grad():
        trainer.model.cls.predictions.bias += 1
    with disk_of(50_000), pytest.raises(OSError, match=r"Saving in .* failed"):
        trainer.save_model()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    trainer.save_model()
    changed = SimBert.from_pretrained(tmp_path).cls.predictions.bias
    assert torch.equal(changed, trainer.model.cls.predictions.bias)


def test_a_bug_while_saving_is_no_full_disk(
    setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = main(setting(tmp_path, "--max_steps=1", "--save_strategy=no"))
    monkeypatch.setattr(trainer, "_save", lambda: None)  # takes no folder
    with pytest.raises(TypeError, match="positional argument"):
        trainer.save_model()
    assert not (tmp_path / "_saving").exists()


def test_leftovers_and_foreign_parts_are_passed_over(
    setting, whole, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    main(setting(tmp_path, "--max_steps=3"))
    (tmp_path / "_saving" / "checkpoint-6").mkdir(parents=True)  # a killed run's
    for name in ("model.safetensors", "rng_state_1.pth"):
        (tmp_path / "_saving" / "checkpoint-6" / name).write_bytes(b"half")
    (tmp_path / "checkpoint-5").mkdir()  # written in place by another program
    (tmp_path / "checkpoint-5" / "model.safetensors").write_bytes(b"half")
    assert newest_checkpoint(tmp_path) == str(tmp_path / "checkpoint-3")
    with caplog.at_level(logging.INFO, "simbert_hf"):
        assert_goes_on(setting(tmp_path), tmp_path, whole)
    assert f"resuming from {tmp_path / 'checkpoint-3'}" in caplog.text
    assert not (tmp_path / "checkpoint-6" / "rng_state_1.pth").exists()


def test_a_kill_while_a_checkpoint_is_removed_leaves_no_part_of_it(
    setting, whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its settings it would pass for a whole one."""
    rmtree = shutil.rmtree

    def killed(folder: Path, **options: bool) -> None:
        for part in Path(folder).rglob("settings.json"):
            part.unlink()
            raise KeyboardInterrupt
        rmtree(folder, **options)

    main(setting(tmp_path, "--max_steps=3"))
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            main(setting(tmp_path, "--resume_from_checkpoint=true"))
    there = sorted(tmp_path.glob("checkpoint-*"))
    assert [folder.name for folder in there] == ["checkpoint-6"]
    assert (there[0] / "settings.json").exists()
    assert_goes_on(setting(tmp_path), tmp_path, whole)


def test_a_checkpoint_is_removed_on_a_full_disk(
    setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which has no room for another folder."""
    remove, mkdir = SimilarityTrainer._remove_spare, Path.mkdir

    def remove_on_full_disk(self, out: Path) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Path, "mkdir", full)
            remove(self, out)

    def full(place: Path, *args: int, **options: bool) -> None:
        if not place.is_dir():
            raise OSError(errno.ENOSPC, "No space left on device", str(place))
        mkdir(place, *args, **options)

    monkeypatch.setattr(SimilarityTrainer, "_remove_spare", remove_on_full_disk)
    main(setting(tmp_path))
    assert [folder.name for folder in tmp_path.glob("checkpoint-*")] == ["checkpoint-6"]


def test_checkpoints_are_as_old_as_their_steps(setting, tmp_path: Path) -> None:
    """Not as the clock says, which may have been set back; and what else is there stays."""
    main(setting(tmp_path, "--max_steps=3"))
    shutil.copytree(tmp_path / "checkpoint-3", tmp_path / "checkpoint-3-copy")
    shutil.copytree(tmp_path / "checkpoint-3", tmp_path / "checkpoint-12")  # left behind
    later = time.time() + 3600
    os.utime(tmp_path / "checkpoint-3", (later, later))
    more = ("--resume_from_checkpoint", str(tmp_path / "checkpoint-3"), "--save_total_limit=2")
    main(setting(tmp_path, *more))
    names = {path.name for path in tmp_path.glob("checkpoint-*")}
    assert names == {"checkpoint-3", "checkpoint-3-copy", "checkpoint-6"}
    more = ("--resume_from_checkpoint=true", "--save_total_limit=1")
    main(setting(tmp_path, "--max_steps=9", *more))
    names = {path.name for path in tmp_path.glob("checkpoint-*")}
    assert names == {"checkpoint-3-copy", "checkpoint-9"}


def test_not_resuming_says_nothing_of_resuming(
    setting, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    short = setting(tmp_path, "--max_steps=1", "--save_strategy=no")
    with caplog.at_level(logging.INFO, "simbert_hf"):
        main([*short, "--resume_from_checkpoint=false"])
        assert "resuming from" not in caplog.text
        main([*short, "--resume_from_checkpoint=true"])
    assert "resuming from nothing" in caplog.text


def test_the_best_checkpoint_is_known_by_its_place(setting, tmp_path: Path) -> None:
    trainer = main(
        setting(tmp_path, "--validation_groups=4", "--eval_strategy=steps", "--eval_steps=3",
                "--save_total_limit=2")
    )  # fmt: skip
    best = Path(trainer.state.best_model_checkpoint)
    assert best == tmp_path / f"checkpoint-{trainer.state.best_global_step}"
    for saved in tmp_path.glob("checkpoint-*"):
        state = json.loads((saved / "trainer_state.json").read_text())
        assert Path(state["best_model_checkpoint"]).parent == tmp_path


def test_a_run_stopped_before_it_is_saved_ends_elsewhere_as_its_best_checkpoint(
    setting, tmp_path: Path
) -> None:
    """Its last checkpoint is there still, though only one is to be kept."""
    more = ("--validation_groups=4", "--eval_strategy=steps", "--eval_steps=3",
            "--metric_for_best_model=similarity_accuracy", "--learning_rate=1e-9")  # fmt: skip
    here, there = tmp_path / "here", tmp_path / "there"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("simbert_hf.training.run.save", stop)
        with pytest.raises(KeyboardInterrupt):
            main(setting(here, *more))
    assert {path.name for path in here.glob("checkpoint-*")} == {"checkpoint-3", "checkpoint-6"}
    here.rename(there)
    main(setting(there, "--resume_from_checkpoint=true", *more))
    saved, best, last = (
        load_file(folder / "model.safetensors")
        for folder in (there, there / "checkpoint-3", there / "checkpoint-6")
    )
    assert all(torch.equal(saved[name], best[name]) for name in best)
    assert not all(torch.equal(saved[name], last[name]) for name in last)


def test_the_best_checkpoint_outlives_a_better_step_that_is_not_saved(
    setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure(monkeypatch, {3: 0.5, 5: 0.9})
    more = ("--validation_groups=4", "--eval_strategy=steps", "--eval_steps=1",
            "--metric_for_best_model=similarity_accuracy")  # fmt: skip
    for last, resume in ((6, "false"), (9, "true")):
        main(setting(tmp_path, *more, f"--max_steps={last}", f"--resume_from_checkpoint={resume}"))
        names = {path.name for path in tmp_path.glob("checkpoint-*")}
        assert names == {"checkpoint-3", f"checkpoint-{last}"}
        saved, best = (
            load_file(folder / "model.safetensors")
            for folder in (tmp_path, tmp_path / "checkpoint-3")
        )
        assert all(torch.equal(saved[name], best[name]) for name in best)


def measure(monkeypatch: pytest.MonkeyPatch, figures: dict[int, float]) -> None:
    """Let evaluations find these figures, by step, and 0.1 at others."""
    evaluate = SimilarityTrainer.evaluate

    def measured(self, *args, **kwargs):
        found = {"eval_similarity_accuracy": figures.get(self.state.global_step, 0.1)}
        return evaluate(self, *args, **kwargs) | found

    monkeypatch.setattr(SimilarityTrainer, "evaluate", measured)


def stop(_: SimilarityTrainer) -> None:
    """End a run as Ctrl-C does."""
    raise KeyboardInterrupt


@pytest.mark.parametrize(("best", "then", "lost"), [(3, 9, True), (3, 3, False), (2, None, False)])
def test_a_best_checkpoint_that_was_not_copied_is_sought_anew(
    setting,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    best: int,
    then: int | None,
    lost: bool,
) -> None:
    """No later one might be better than what is lost; but one that was never saved is none."""
    measure(monkeypatch, {best: 0.9, 9: 0.5})
    more = ("--validation_groups=4", "--eval_strategy=steps", "--eval_steps=1",
            "--metric_for_best_model=similarity_accuracy", "--save_total_limit=9")  # fmt: skip
    main(setting(tmp_path / "here", *more))
    (tmp_path / "there").mkdir()
    for step in [6] if lost else [3, 6]:
        (tmp_path / "here" / f"checkpoint-{step}").rename(tmp_path / "there" / f"checkpoint-{step}")
    shutil.rmtree(tmp_path / "here")
    caplog.clear()
    more = ("--resume_from_checkpoint=true", "--max_steps=9", *more)
    state = main(setting(tmp_path / "there", *more)).state
    assert ("checkpoint-3 is missing: the best checkpoint will be" in caplog.text) == lost
    assert ("from here on" in caplog.text) == lost
    place = state.best_model_checkpoint
    assert place == (str(tmp_path / "there" / f"checkpoint-{then}") if then else None)


def test_with_another_measure_the_best_is_sought_anew(
    setting, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    more = ("--validation_groups=4", "--eval_strategy=steps", "--eval_steps=3")
    former = main(setting(tmp_path, "--metric_for_best_model=eval_top10", *more)).state
    again = ("--resume_from_checkpoint=true", "--max_steps=9")
    state = main(setting(tmp_path, *more, *again)).state
    assert state.best_global_step == 9
    assert state.best_metric > 1 >= former.best_metric
    assert "the best checkpoint will be chosen among those from here on" in caplog.text


@pytest.mark.parametrize(
    ("name", "then", "now", "anew"),
    [
        ("seq2seq_weight", 1.0, 10.0, True),
        ("train_file", ["a.jsonl"], ["b.jsonl"], True),
        ("train_file", ["a.jsonl"], ["moved/a.jsonl"], False),
        ("rows", 5, 6, True),
        ("per_device_train_batch_size", 8, 16, False),
        ("sample_sentences", None, ["go"], False),
    ],
)
def test_what_may_change_a_measure_forgets_the_best(tmp_path: Path, name, then, now, anew) -> None:
    SameRun({name: then}).save(tmp_path)
    run = SameRun({name: now})
    run.load(tmp_path)
    assert run.measures_anew == anew


def test_one_of_several_changes_is_enough_to_measure_anew(tmp_path: Path) -> None:
    SameRun({"rows": 5, "bf16": False}).save(tmp_path)
    run = SameRun({"rows": 6, "bf16": True})
    run.load(tmp_path)
    assert run.measures_anew


KEPT = (
    "learning_rate", "head_learning_rate", "weight_decay", "adam_beta1", "adam_beta2",
    "adam_epsilon", "optim", "seed",
)  # fmt: skip
TOLD = (
    "per_device_train_batch_size", "data_seed", "length_window", "even_tokens", "bf16", "fp16",
    "dataloader_drop_last", "num_train_epochs", "optim_args", "neftune_noise_alpha",
)  # fmt: skip


def test_what_a_checkpoint_brings_back_cannot_change_and_the_rest_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What the optimizer's state holds would be ignored without a word."""
    run = SameRun.of(SimilarityTrainingArguments(str(tmp_path), report_to="none"), pooling="mean")
    for name in (*KEPT, "pooling", *TOLD):
        SameRun(run.settings | {name: "another"}).save(tmp_path)
        caplog.clear()
        if name in TOLD:
            run.load(tmp_path)
            assert [told.partition(":")[0] for told in told_of(caplog)] == [name]
        else:
            with pytest.raises(ValueError, match=f"is from a run with --{name} another, not"):
                run.load(tmp_path)
    (tmp_path / "other").mkdir()
    another_process = SameRun(run.settings, writes=False)
    another_process.save(tmp_path / "other")
    assert not any((tmp_path / "other").iterdir())
    caplog.clear()
    another_process.load(tmp_path)  # its last setting differs
    assert not told_of(caplog)


BEST = ("--validation_groups=4", "--eval_strategy=steps", "--eval_steps=2", "--learning_rate=1.0")


@pytest.mark.parametrize(
    ("more", "saved"),
    [
        (("--save_steps=5",), 2),
        (("--save_steps=5", "--streaming=true", "--dataloader_num_workers=0"), 2),
        ((*BEST, "--save_steps=2"), 2),  # where the limit of one keeps the best beside the last
        ((*BEST, "--save_strategy=best", "--metric_for_best_model=eval_top1"), None),
        (("--save_strategy=epoch", "--per_device_train_batch_size=8"), 2),  # of two steps
        (("--save_steps=5", "--per_device_train_batch_size=16"), 3),  # epochs of one step
    ],
)
def test_sigterm_ends_a_run_behind_a_step(
    setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...], saved: int
) -> None:
    step, handler = SimilarityTrainer.training_step, signal.getsignal(signal.SIGTERM)

    def stopped(self, *args, **kwargs):
        if self.state.global_step == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(self, *args, **kwargs)

    def flags(out: Path) -> list[str]:
        given = setting(out, *more)
        by_steps = [flag for flag in more if flag.startswith("--save_steps")]
        return [flag for flag in given if flag in by_steps or not flag.startswith("--save_steps")]

    place = tmp_path / "out"
    main(flags(tmp_path / "whole"))
    whole = load_file(tmp_path / "whole" / "model.safetensors")
    with monkeypatch.context() as patch:
        patch.setattr(SimilarityTrainer, "training_step", stopped)
        with pytest.raises(
            KeyboardInterrupt, match=f"checkpoint-{saved or '.'} is complete: resume"
        ):
            main([*flags(place), "--enable_jit_checkpoint=true"])
    assert signal.getsignal(signal.SIGTERM) is handler
    assert not (place / "model.safetensors").exists()
    assert_goes_on(flags(place), place, whole)


TRAINED = """
import sys
from scripts.train_simbert import main
from simbert_hf.utils.script import run_script
run_script(lambda: main(sys.argv[1:]))
"""


@pytest.mark.multiproc
def test_sigterm_to_a_whole_group_leaves_the_workers_alone(setting, tmp_path: Path) -> None:
    """As torchrun sends it. A worker that its parent signals ends without harm; so from outside."""
    more = ("--dataloader_num_workers=2", "--dataloader_persistent_workers=true")  # begun but once
    flags = setting(tmp_path, "--max_steps=100000", "--enable_jit_checkpoint=true", *more)
    command = [sys.executable, "-c", TRAINED, *flags]
    run = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while newest_checkpoint(tmp_path) is None and run.poll() is None:
        time.sleep(0.1)
    os.killpg(run.pid, signal.SIGTERM)
    _, told = run.communicate(timeout=100)
    assert run.returncode == 130, told
    assert told.endswith(" is complete: resume from it with --resume_from_checkpoint true.\n")
    assert "Traceback" not in told


KILLED = """
import os, signal, sys
import torch
from scripts.train_simbert import main

out, kill_at, moments = sys.argv[1], int(sys.argv[2]), 0
touching = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree")

def die_at_last(event, args):
    global moments
    if event in touching and os.path.exists(out + "/checkpoint-3"):
        moments += str(args[0]).startswith(out) or event in ("os.remove", "os.rmdir")
        if moments == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

torch.set_num_threads(1)
sys.addaudithook(die_at_last)
main(sys.argv[3:])
print(moments)
"""


@pytest.mark.multiproc
@pytest.mark.parametrize("kill_at", [2, 17, 40, 70])
def test_a_kill_at_any_moment_of_saving(setting, whole, tmp_path: Path, kill_at: int) -> None:
    """The moments are those at which a file of the run is touched once checkpoint 3 is whole."""
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(kill_at), *setting(tmp_path)]
    killed = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    assert newest_checkpoint(tmp_path) == get_last_checkpoint(tmp_path)  # which takes any folder
    assert_goes_on(setting(tmp_path), tmp_path, whole)


def test_a_folder_takes_one_run_at_a_time(
    setting, whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = SimilarityTrainer.train

    def meet_another(self, **kwargs):
        monkeypatch.setattr(SimilarityTrainer, "train", train)
        for more in ([], ["--resume_from_checkpoint=true"]):
            with pytest.raises(ValueError, match="is in use by another process"):
                main(setting(tmp_path, *more))
        return train(self, **kwargs)

    monkeypatch.setattr(SimilarityTrainer, "train", meet_another)
    main(setting(tmp_path))
    found = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(found[name], whole[name]) for name in whole)
    assert not list(tmp_path.rglob(LOCK))
    with pytest.raises(ValueError, match="checkpoint-6 is from an earlier run"):
        main(setting(tmp_path))
    assert not list(tmp_path.rglob(LOCK))


def test_where_no_folder_can_be_locked_runs_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("simbert_hf.utils.locks.FileLock.acquire", refuse)
    with sole_run(SimilarityTrainingArguments(str(tmp_path), report_to="none")):
        pass
    assert f"{tmp_path} cannot be locked ([Errno {errno.ENOLCK}] No locks" in caplog.text


STOPPED = """
import os, signal, sys
import torch
from scripts.train_simbert import main
from simbert_hf.trainer import SimilarityTrainer
from simbert_hf.utils.script import run_script

stop_at, step = int(sys.argv[1]), SimilarityTrainer.training_step

def step_and_stop(self, *args, **kwargs):
    if self.state.global_step == stop_at:
        os.kill(os.getpid(), signal.SIGINT)
    return step(self, *args, **kwargs)

torch.set_num_threads(1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
SimilarityTrainer.training_step = step_and_stop
run_script(lambda: main(sys.argv[2:]))
"""


@pytest.mark.multiproc
@pytest.mark.parametrize(
    ("stop_at", "told"),
    [
        (1, "There is no checkpoint in {} to resume from."),
        (4, "{}/checkpoint-3 is complete: resume from it with --resume_from_checkpoint true."),
    ],
)
def test_an_interrupted_run_says_how_to_go_on(
    setting, whole, tmp_path: Path, stop_at: int, told: str
) -> None:
    command = [sys.executable, "-c", STOPPED, str(stop_at), *setting(tmp_path)]
    stopped = subprocess.run(command, capture_output=True, text=True, check=False)
    assert stopped.returncode == 130, stopped.stderr
    assert stopped.stderr.endswith(f"\nStopped. {told.format(tmp_path)}\n")
    assert "Traceback" not in stopped.stderr
    assert_goes_on(setting(tmp_path), tmp_path, whole)


def test_an_interrupted_script_ends_with_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as end:
        run_script(interrupted)
    assert end.value.code == 130
    assert capsys.readouterr().err == "\nStopped.\n"


@pytest.mark.parametrize("more", [[], ["--streaming=true", "--dataloader_num_workers=0"]])
@pytest.mark.parametrize("steps", [3, 8])  # in the middle of an epoch, and at its end
def test_a_run_that_had_ended_is_not_resumed(
    setting, tmp_path: Path, caplog: pytest.LogCaptureFixture, more: list[str], steps: int
) -> None:
    flags = setting(tmp_path, f"--max_steps={steps}", "--logging_steps=1", *more)
    before = main(flags).model.state_dict()
    with caplog.at_level(logging.INFO, "simbert_hf"):
        trainer = main([*flags, "--resume_from_checkpoint=true"])
    assert trainer.state.global_step == steps
    after = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(after[name], before[name]) for name in after)
    assert len(after) > 30
    assert f"ended at step {steps} of {steps}: there is nothing to train" in caplog.text


def test_a_model_is_not_saved_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("mine")
    with pytest.raises(NotADirectoryError, match=r"one\.txt is a file: name a folder"):
        tiny_simbert().save_pretrained(tmp_path / "one.txt")


def test_a_config_without_content_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(OSError, match=r"config\.json is empty\. Copy or download it again"):
        SimBert.from_pretrained(tmp_path)
