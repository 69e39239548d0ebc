"""Back-translation: people's sentences as targets of what a model writes of them."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import torch

from scripts import back_translate
from simbert_hf.data import DataError, load_one_way_pairs
from tests.tiny import WORDS, tiny_simbert


@pytest.fixture(scope="module")
def written_by(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose sentences end after a handful of tokens."""
    folder, model = tmp_path_factory.mktemp("written_by"), tiny_simbert()
    with torch.no_grad():
        model.cls.predictions.bias[model.rows.sep_id] += 4.0
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def argv(written_by: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(back_translate, "BLOCK", 4)
    copytree(written_by, tmp_path / "model")
    lines = [" ".join(WORDS[i : i + 3]) for i in range(14)]
    (tmp_path / "sentences.txt").write_text("\n".join([*lines, lines[0].upper()]))
    return [
        f"--model_name_or_path={tmp_path / 'model'}",
        f"--sentences_file={tmp_path / 'sentences.txt'}",
        f"--output_file={tmp_path / 'out' / 'pairs.jsonl'}",
    ]


def test_each_sentence_is_the_target_of_another(argv: list[str], tmp_path: Path) -> None:
    back_translate.main(argv)
    pairs = load_one_way_pairs(tmp_path / "out" / "pairs.jsonl")
    targets = [target for _, target in pairs]
    assert len(targets) == len(set(targets)) > 7
    assert set(targets) <= set((tmp_path / "sentences.txt").read_text().splitlines()[:14])
    assert all(back_translate.shared(*pair) <= 0.8 for pair in pairs)
    least = min(back_translate.shared(*pair) for pair in pairs)
    back_translate.main(
        [*argv[:2], f"--output_file={tmp_path / 'less.jsonl'}", f"--max_overlap={least}"]
    )
    fewer = load_one_way_pairs(tmp_path / "less.jsonl")
    assert fewer == [pair for pair in pairs if back_translate.shared(*pair) <= least]


def test_a_stopped_run_goes_on(argv: list[str], tmp_path: Path) -> None:
    path = tmp_path / "out" / "pairs.jsonl"
    back_translate.main(argv)
    whole = path.read_bytes()
    for kept in (0, 1, 0.5, 0.9):
        path.write_bytes(whole[: int(kept * len(whole))])  # torn anywhere, a line too
        back_translate.main(argv)
        assert path.read_bytes() == whole


def test_a_stop_in_the_first_block_loses_no_written_one(
    argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back_translate.main(argv)
    whole = (tmp_path / "out" / "pairs.jsonl").read_bytes()

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(back_translate, "back_translate", stop)
    with pytest.raises(KeyboardInterrupt):
        back_translate.main(argv)
    assert (tmp_path / "out" / "pairs.jsonl").read_bytes() == whole


def test_a_file_takes_one_run_at_a_time(
    argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = back_translate.back_translate

    def meanwhile(*args: Any) -> list[str]:
        with pytest.raises(ValueError, match=r"pairs\.jsonl is in use by another process"):
            back_translate.main(argv)
        return write(*args)

    monkeypatch.setattr(back_translate, "back_translate", meanwhile)
    back_translate.main(argv)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"pairs.jsonl", "pairs.jsonl.work.json"}


def test_sentences_put_before_the_others_are_refused(argv: list[str], tmp_path: Path) -> None:
    """The blocks before the last one known would be taken for written."""
    back_translate.main(argv)
    place = tmp_path / "sentences.txt"
    place.write_text("go going\n" + place.read_text())
    with pytest.raises(DataError, match=r"name another --output_file"):
        back_translate.main(argv)
    with pytest.raises(ValueError, match=r"--max_overlap 80\.0 is not a share"):
        back_translate.main([*argv, "--max_overlap=80"])
    with pytest.raises(ValueError, match=r"pairs\.csv: name a \.jsonl file"):
        back_translate.main([*argv, f"--output_file={tmp_path / 'pairs.csv'}"])


def test_what_is_read_is_not_written_over(argv: list[str], tmp_path: Path) -> None:
    place = (tmp_path / "sentences.txt").rename(tmp_path / "pairs.jsonl")
    argv = [arg.replace("sentences.txt", "pairs.jsonl") for arg in argv]
    with pytest.raises(ValueError, match="is an input: name another file"):
        back_translate.main([*argv, f"--output_file={place}"])


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        (
            '{"source": "a", "target": "another one"}',
            "does not belong to these sentences. Name another",
        ),
        ('{"text": "a", "synonyms": ["b"]}', "does not belong to these sentences"),
        ("one sentence", "is not JSON at column 1"),
    ],
)
def test_other_sentences_are_refused(
    argv: list[str], tmp_path: Path, other: str, problem: str
) -> None:
    path = tmp_path / "out" / "pairs.jsonl"
    path.parent.mkdir()
    path.write_text(other + "\n")
    with pytest.raises(DataError, match=rf"pairs\.jsonl:1: {problem}"):
        back_translate.main(argv)
    assert path.read_text() == other + "\n"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("--seed=1", "differs from this run in seed"),
        ("--max_overlap=0.5", "differs from this run in max_overlap"),
        ("model", "differs from this run in model"),
        ("sentences", "differs from this run in sentences"),
        ("note", "has no note of its run"),
    ],
)
def test_a_file_of_another_run_is_refused(
    argv: list[str], tmp_path: Path, change: str, told: str
) -> None:
    path = tmp_path / "out" / "pairs.jsonl"
    back_translate.main(argv)
    whole = path.read_bytes()
    if change == "model":
        torch.manual_seed(1)
        tiny_simbert(num_hidden_layers=1).save_pretrained(tmp_path / "model")
    elif change == "sentences":
        with (tmp_path / "sentences.txt").open("a") as file:
            file.write("\none more")
    elif change == "note":
        path.with_name("pairs.jsonl.work.json").unlink()
    else:
        argv = [*argv, change]
    with pytest.raises(DataError, match=rf"pairs\.jsonl {told}: name another"):
        back_translate.main(argv)
    assert path.read_bytes() == whole
