"""The release script: what one stage holds out, none but a teacher's trains on."""

import gzip
import json
from argparse import Namespace
from itertools import takewhile
from pathlib import Path

import pytest

from scripts import release
from simbert_hf import SimBert
from simbert_hf.arguments import (
    PRESETS,
    DataArguments,
    ModelArguments,
    ObjectiveArguments,
    SimilarityTrainingArguments,
)
from simbert_hf.data import load_groups, load_texts
from simbert_hf.evaluation.suite import EvaluationArguments
from simbert_hf.training.data import hold_out
from simbert_hf.training.simcse import SIMCSE_PRESETS, SimCseArguments
from simbert_hf.utils.locks import alone
from simbert_hf.utils.parsing import parse_arguments
from tests.tiny import save_tiny_simbert, tiny_judge


def write(path: Path, rows: list[list[str]]) -> None:
    path.write_text("\n".join(json.dumps({"text": a, "synonyms": [b]}) for a, b in rows))


def flag(flags: list[str], name: str) -> str:
    (found,) = (each.split("=", 1)[1] for each in flags if each.startswith(f"--{name}="))
    return found


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """Two stages, the last with more files, and a teacher; the scripts are only written down."""
    data = tmp_path / "data"
    data.mkdir()
    write(data / "some.jsonl", [[f"some {i}", f"some {i} too"] for i in range(30)])
    write(data / "more.jsonl", [[f"more {i}", f"some {i} too"] for i in range(0, 60, 2)])
    write(data / "other.jsonl", [[f"other {i}", f"Some {i}"] for i in range(30)])  # not judged
    (data / "pairs.csv").write_text("sentence1,sentence2,score\na,b,1\nc,d,2\n")
    for name in ("preferred.jsonl", "written.jsonl", "ratings.jsonl", "scored.csv"):
        (data / name).touch()
    rated = tmp_path / "out" / "tiny-english_related-rated"
    rated.mkdir(parents=True)  # as its script would have
    with gzip.open(rated / "groups.jsonl.gz", "wt") as file:
        file.write('{"text": "rated", "synonyms": ["rated too"]}\n')
    (data / "open.txt").write_text("".join(f"Sentence {i}.\n" for i in range(9)))
    for name in ("dev.csv", "sts.csv"):
        (data / name).touch()
    stages = (
        release.Stage("english", 3, ("a",), ("some.jsonl",)),
        release.Stage(
            "chinese_graded",
            4,
            (),
            ("scored.csv",),
            ends={release.MADE: 0.5, "a": 0.5},
            makes_teacher=True,
        ),
        release.Stage(
            "english_related",
            2,
            ("chinese_graded", release.BEGUN),
            ("some.jsonl", "more.jsonl", "other.jsonl"),
            ("open.txt", "more.jsonl"),
            related=(0.3, 0.9),
            preferences="preferred.jsonl",
            one_way="written.jsonl",
            rated=("ratings.jsonl",),
            scored=("pairs.csv",),
            begins={"english": 0.75, "a": 0.25},
            ends={release.MADE: 0.7, release.BEGUN: 0.2, "english": 0.1},
        ),
    )
    (data / "more_sts").mkdir()
    (data / "intents.csv").write_text("text,intent\na,b\nc,oos\n")
    tests = (("sts", "STS", "sts.csv"), ("sts", "", "more_sts"), ("retrieval", "R", "intents.csv"))
    judged = ("some.jsonl", "more.jsonl")
    tiny = release.Release("a", stages, "dev.csv", tests, judged, ("a",), None, {"a": "say: "})
    monkeypatch.setitem(release.RELEASES, "tiny", tiny)
    monkeypatch.setattr(release, "HELD_OUT", 12)
    monkeypatch.setattr(release, "DRAWN", 7)
    called: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(release, "run", lambda script, *flags: called.append((script, [*flags])))
    save_tiny_simbert(tmp_path / "start")
    tiny_judge(tmp_path / "judge")
    given = ["tiny", f"--data={data}", "--base_models", f"a={tmp_path / 'start'}"]
    given += [f"--judge={tmp_path / 'judge'}"]
    for _ in range(2):  # as after a stop: the list is drawn once
        called.clear()
        release.main([*given, f"--output_dir={tmp_path / 'out'}", "--", "--bf16=false"])
    return called


def test_a_stage_is_finished_once_its_card_is_written(
    commands: list[tuple[str, list[str]]], tmp_path: Path
) -> None:
    out, trained = tmp_path / "out" / "tiny-1-english", []
    out.mkdir()
    for name, more in (("all_results.json", []), ("README.md", []), ("README.md", ["--stages=1"])):
        (out / name).touch()
        commands.clear()
        release.main(
            ["tiny", f"--data={tmp_path / 'data'}", "--base_models", f"a={tmp_path / 'start'}",
             f"--output_dir={tmp_path / 'out'}", *more]
        )  # fmt: skip
        trained.append(sum(script == "train_simbert.py" for script, _ in commands))
    assert trained == [2, 1, 0]


def test_every_stage_holds_out_what_is_judged(
    commands: list[tuple[str, list[str]]], tmp_path: Path
) -> None:
    trained = [flags for script, flags in commands if script == "train_simbert.py"]
    (judged,) = (flags for script, flags in commands if script == "evaluate_paraphrases.py")
    args = SimilarityTrainingArguments(output_dir=str(tmp_path), report_to="none")
    for flags in trained:
        files = list(
            takewhile(lambda flag: flag[0] != "-", flags[flags.index("--train_file") + 1 :])
        )
        told = DataArguments(train_file=files, validation_file=flag(flags, "validation_file"))
        assert told.validation_file == flag(judged, "groups")
        kept, held_out = hold_out(load_groups(files)[0], told, args)
        assert len(held_out) == 12
        sentences = [{t.lower() for row in rows["texts"] for t in row} for rows in (kept, held_out)]
        assert not set.intersection(*sentences)
        assert any("some" in text for text in sentences[0])
    assert "--all_groups" in judged


def test_the_scripts_know_their_flags(commands: list[tuple[str, list[str]]]) -> None:
    given = dict(commands)
    recipe, *flags = given["train_simbert.py"]
    types = (ModelArguments, DataArguments, ObjectiveArguments, SimilarityTrainingArguments)
    told = parse_arguments(types, [recipe, *flags, "--report_to=none"], PRESETS)
    assert (told[3].max_steps, flags[-1]) == (2, "--bf16=false")
    assert told[3].save_steps == told[3].eval_steps == 0.2  # stages are shorter than an epoch
    assert (told[3].save_strategy, told[3].load_best_model_at_end) == ("steps", True)
    Path(f"{told[3].output_dir}-average").mkdir()  # as the scripts would have
    (measured,) = parse_arguments((EvaluationArguments,), given["evaluate.py"])
    assert measured.prompts == ["", "say: "]
    assert [Path(task.split("=")[-1]).name for task in measured.sts] == ["sts.csv", "more_sts"]
    (intents,) = (Path(task.split("=")[1]) for task in measured.retrieval)
    assert intents.read_text() == "text,intent\na,b"
    assert "--groups=" in " ".join(given["evaluate_paraphrases.py"])


def test_a_teacher_is_trained_from_the_base_model(
    commands: list[tuple[str, list[str]]], tmp_path: Path
) -> None:
    recipe, *flags = dict(commands)["train_simcse.py"]
    types = (ModelArguments, DataArguments, SimCseArguments, SimilarityTrainingArguments)
    told = parse_arguments(types, [recipe, *flags, "--report_to=none"], SIMCSE_PRESETS)
    assert told[0].model_name_or_path == str(tmp_path / "start")
    assert (told[2].examples, told[3].max_steps) == ("scored", 4)
    trained = [flags for script, flags in commands if script == "train_simbert.py"]
    first, last = (flags.index("--teacher_name_or_path") + 1 for flags in trained)
    assert trained[0][first] == str(tmp_path / "start")
    out = tmp_path / "out"
    assert trained[1][last] == str(out / "tiny-2-chinese_graded-average")
    assert trained[1][last + 1] == flag(trained[1], "model_name_or_path")


def test_a_stage_may_begin_from_an_average_with_the_start_and_end_in_one(
    commands: list[tuple[str, list[str]]], tmp_path: Path
) -> None:
    first, last = (flags for script, flags in commands if script == "train_simbert.py")
    _, averaged, ended = (flags for script, flags in commands if script == "average_models.py")
    begun = flag(averaged, "output_dir")
    assert averaged[:6] == [
        "--models", flag(first, "output_dir"), str(tmp_path / "start"), "--weights", "0.75", "0.25"
    ]  # fmt: skip
    assert flag(last, "model_name_or_path") == begun
    assert last[last.index("--teacher_name_or_path") + 2] == begun
    assert ended[:8] == [
        "--models", flag(last, "output_dir"), begun, flag(first, "output_dir"),
        "--weights", "0.7", "0.2", "0.1",
    ]  # fmt: skip
    measured = dict(commands)["evaluate.py"]
    assert measured[1] == f"tiny={flag(ended, 'output_dir')}"
    (former := Path(begun)).mkdir()  # which average_models.py refuses
    release.average({"a": 1}, {"a": "start"}, begun)
    assert not former.exists()


def test_the_first_stage_may_begin_from_a_cut_of_the_base_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(release, "run", lambda script, *flags: called.append((script, [*flags])))
    for name in ("some.jsonl", "open.txt", "dev.csv"):
        (tmp_path / name).touch()
    stages = (
        release.Stage("english", 1, ("a",), ("some.jsonl",)),
        release.Stage("chinese_graded", 1, (), ("some.jsonl",), makes_teacher=True),
        release.Stage("english_polish", 1, ("chinese_graded",), ("some.jsonl",)),
    )
    tiny = release.Release(
        "a", stages, "dev.csv", (), (), (), layers=(0, 2), vocabulary=("open.txt", "some.jsonl")
    )
    assert "open.txt" in tiny.files()
    args = Namespace(output_dir=tmp_path, name="t", data=tmp_path, flags=[])
    release.train(tiny, args, {"a": "start"}, tmp_path / "held-out.jsonl")
    (script, cutting), (_, training), (_, teacher), (_, last) = called
    assert (script, flag(cutting, "model_name_or_path")) == ("cut_model.py", "start")
    assert cutting[cutting.index("--layers") + 1 :][:2] == ["0", "2"]
    assert cutting[-2:] == [str(tmp_path / "open.txt"), str(tmp_path / "some.jsonl")]
    assert flag(training, "model_name_or_path") == flag(cutting, "output_dir")
    assert training[training.index("--teacher_name_or_path") + 1] == "start"
    assert flag(teacher, "model_name_or_path") == "start"  # the whole
    assert not any("validation" in one or "sample" in one for one in teacher)
    assert flag(last, "model_name_or_path") == flag(training, "output_dir")
    assert last[last.index("--teacher_name_or_path") + 1] == flag(teacher, "output_dir")
    (tmp_path / "t-cut").mkdir()  # as the script would have
    called.clear()
    release.train(tiny, args, {"a": "start"}, tmp_path / "held-out.jsonl")
    assert [script for script, _ in called] == [
        "train_simbert.py", "train_simcse.py", "train_simbert.py"
    ]  # fmt: skip


def test_what_a_stage_ends_in_is_what_later_ones_begin_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    averaged = []
    monkeypatch.setattr(release, "run", lambda _, *flags: averaged.append([*flags]))
    for name in ("some.jsonl", "dev.csv"):
        (tmp_path / name).touch()
    stages = (
        release.Stage("english", 1, (), ("some.jsonl",), ends={release.MADE: 0.5, "a": 0.5}),
        release.Stage("english_polish", 1, (), ("some.jsonl",), begins={"english": 1.0}),
    )
    args = Namespace(output_dir=tmp_path, name="t", data=tmp_path, flags=[])
    tiny = release.Release("a", stages, "dev.csv", (), (), ())
    release.train(tiny, args, {"a": "start"}, tmp_path / "held-out.jsonl")
    _, ended, begun, _ = averaged
    assert begun[:2] == ["--models", flag(ended, "output_dir")]


def test_a_finished_average_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing it again takes time, and a full disk or a kill would then lose it."""
    called = []
    monkeypatch.setattr(release, "run", lambda script, *_: called.append(script))
    for name in ("some.jsonl", "dev.csv"):
        (tmp_path / name).touch()
    stages = (release.Stage("english", 1, (), ("some.jsonl",), ends={release.MADE: 1.0}),)
    args = Namespace(output_dir=tmp_path, name="t", data=tmp_path, flags=[])
    tiny = release.Release("a", stages, "dev.csv", (), (), ())
    made = tmp_path / "t-1-english"
    averaged = tmp_path / "t-1-english-average"
    made.mkdir()
    averaged.mkdir()
    done = []
    for file in (made / "all_results.json", made / "README.md", averaged / "model.safetensors"):
        file.touch()
        called.clear()
        assert release.train(tiny, args, {"a": "start"}, tmp_path / "held-out.jsonl") == averaged
        done.append([*called])
        averaged.mkdir(exist_ok=True)
    assert done == [["train_simbert.py", "average_models.py"], ["average_models.py"], []]
    (made / "README.md").unlink()  # it is trained again
    release.train(tiny, args, {"a": "start"}, tmp_path / "held-out.jsonl")
    assert called == ["train_simbert.py", "average_models.py"]


def test_related_sentences_are_mined_for_a_stage(
    commands: list[tuple[str, list[str]]], tmp_path: Path
) -> None:
    (mined,) = (flags for script, flags in commands if script == "mine_pairs.py")
    drawn = Path(flag(mined, "sentences_file")).read_text().splitlines()
    assert len(set(drawn)) == 14
    assert sum(text.startswith("Sentence") for text in drawn) == 7
    assert flag(mined, "model_name_or_path") == str(tmp_path / "start")  # not what is trained
    assert "--bf16" not in mined  # on a CPU, it is slow
    last = [flags for script, flags in commands if script == "train_simbert.py"][-1]
    assert not set(drawn) & set(load_texts(flag(last, "validation_file")))
    related, scored = last[last.index("--sentences_file") + 1 :][:2]
    assert related == flag(mined, "output_file")
    assert Path(scored).read_text().split() == ["a", "b", "c", "d"]
    given, made = last[last.index("--preferences_file") + 1 :][:2]
    assert given.endswith("data/preferred.jsonl")
    ratings, folder = next(flags for script, flags in commands if "prepare_rated" in script)
    assert ratings.endswith("data/ratings.jsonl")
    assert folder == str(tmp_path / "out" / "tiny-english_related-rated")
    assert made == str(Path(folder, "preferences.jsonl.gz"))
    assert last[last.index("--one_way_file") + 1].endswith("data/written.jsonl")


def test_pairs_of_another_range_or_of_other_data_are_mined_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "run", lambda *_: None)
    (tmp_path / "open.txt").write_text("Sentence 1.\nSentence 2.\n")
    write(held_out := tmp_path / "held-out.jsonl", [["a", "b"]])
    args = Namespace(output_dir=tmp_path, name="tiny", data=tmp_path)
    ranges = [(0.3, 0.9), (0.5, 0.9), (0.3, 0.9)]
    stages = [release.Stage("x", 1, (), (), ("open.txt",), related=each) for each in ranges]
    files = [release.mine(stage, "start", held_out, args) for stage in stages]
    assert files[0] == files[2] != files[1]
    assert release.mine(stages[0], "another start", held_out, args) != files[0]
    (tmp_path / "open.txt").write_text("Sentence 1.\nSentence 3.\n")
    assert release.mine(stages[0], "start", held_out, args) != files[0]


def test_the_users_files_come_before_shipped_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped, own = tmp_path / "a" / "data", tmp_path / "b"
    for folder in (shipped, own):
        (folder / "pairs").mkdir(parents=True)
        (folder / "pairs" / "some.jsonl").touch()
    monkeypatch.setattr(release, "HERE", shipped.parent)
    assert release.find(own, "pairs/some.jsonl") == str(own / "pairs" / "some.jsonl")
    assert release.find(tmp_path / "c", "some.jsonl") == str(shipped / "pairs" / "some.jsonl")


def test_a_finished_stage_is_kept_with_a_word_and_one_made_anew_is_measured_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("some.jsonl", "dev.csv"):
        (tmp_path / name).touch()
    out, stale = tmp_path / "t-1-english", tmp_path / "t-1-english-evaluation" / "table.md"
    stale.parent.mkdir()
    stale.touch()

    def finish(*_: str) -> None:
        (out / "checkpoint-3").mkdir(parents=True)
        for name in release.FINISHED:
            (out / name).touch()

    monkeypatch.setattr(release, "run", finish)
    stages = (release.Stage("english", 3, ("a",), ("some.jsonl",)),)
    tiny = release.Release("a", stages, "dev.csv", (), (), ())
    args = Namespace(output_dir=tmp_path, name="t", data=tmp_path, flags=[])
    told = f"{out} is finished; to train it again, remove it.\n"
    for output in ("", told):
        release.train(tiny, args, {"a": "start"}, tmp_path / "held-out.jsonl")
        assert capsys.readouterr().out == output
        assert not stale.exists()
        assert not (out / "checkpoint-3").exists()  # it can only be resumed from


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--base_models", "MiniLM"], "--base_models MiniLM: write NAME=DIR_OR_ID"),
        (
            ["--base_models", "MiniLM=a", "--allow_related_judge"],
            "--allow_related_judge needs a judge; give --judge",
        ),
    ],
)
def test_flags_that_say_nothing(
    flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        release.main(["english", "--data=nowhere", *flags])
    assert message in capsys.readouterr().err


def test_all_missing_files_are_named_before_training(
    commands: list[tuple[str, list[str]]], tmp_path: Path
) -> None:
    for name in ("sts.csv", "ratings.jsonl", "pairs.csv"):
        (tmp_path / "data" / name).unlink()
    commands.clear()
    given = [f"--data={tmp_path / 'data'}", "--base_models", f"a={tmp_path / 'start'}"]
    with pytest.raises(
        SystemExit, match=r"There is no sts\.csv, no ratings\.jsonl, no pairs\.csv below"
    ):
        release.main(["tiny", *given, f"--output_dir={tmp_path / 'new'}"])
    assert not commands


def test_what_cannot_work_is_known_before_training(
    commands: list[tuple[str, list[str]]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commands.clear()
    given = ["tiny", f"--data={tmp_path / 'data'}", "--base_models", f"a={tmp_path / 'start'}"]
    given.append(f"--output_dir={tmp_path / 'out'}")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="file is a file, so"):
        release.main([*given, f"--pack={tmp_path / 'file'}"])
    with alone(tmp_path / "out" / "tiny.lock", tmp_path), pytest.raises(SystemExit):
        release.main(given)
    assert "another process makes this release in" in capsys.readouterr().err
    assert not commands


def test_a_kindred_judge_is_refused_before_training(
    commands: list[tuple[str, list[str]]], tmp_path: Path
) -> None:
    flags = commands[0][1]
    start = flag(flags, "model_name_or_path")
    judge = tiny_judge(tmp_path / "kin")
    embeddings = SimBert.from_pretrained(start).get_input_embeddings().weight.data
    judge.model[0].model.get_input_embeddings().weight.data.copy_(embeddings)
    judge.save(tmp_path / "kin")
    commands.clear()
    with pytest.raises(ValueError, match="is related to"):
        release.main(
            ["tiny", f"--data={tmp_path / 'data'}", "--base_models", f"a={start}",
             f"--judge={tmp_path / 'kin'}", f"--output_dir={tmp_path / 'other'}"]
        )  # fmt: skip
    assert not commands


def test_what_is_measured_is_the_last_stage_that_was_trained(
    commands: list[tuple[str, list[str]]], tmp_path: Path
) -> None:
    (folder,) = (Path(flag(flags, "output_dir")) for s, flags in commands if s == "evaluate.py")
    last = [flag(flags, "output_dir") for s, flags in commands if s == "average_models.py"][-1]
    assert folder.name == f"{Path(last).name}-evaluation"
    named = {flags[flags.index("--models") + 1] for s, flags in commands if "evaluate" in s}
    assert named == {f"tiny={last}"}  # the card finds one row in both
    (judged,) = (flags for script, flags in commands if script == "evaluate_paraphrases.py")
    assert Path(flag(judged, "output_dir")) == folder / "judged-by-judge"
