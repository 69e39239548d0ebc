import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from scripts.mine_pairs import main, two_and_two
from simbert_hf.data import load_groups, load_sentences
from simbert_hf.encoders import vectorfiles
from simbert_hf.encoders.text_encoder import TextEncoder
from simbert_hf.mining.pairs import PairSettings, different, join, mine_groups, mutual_pairs
from simbert_hf.utils.textfiles import DataError
from tests.tiny import save_tiny_simbert, tiny_simbert


def unit(rng: np.random.Generator, count: int, dim: int) -> np.ndarray:
    vectors = rng.normal(size=(count, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def naive_pairs(vectors: np.ndarray, k: int, lowest: float, highest: float) -> set[tuple[int, int]]:
    scores = vectors @ vectors.T
    np.fill_diagonal(scores, -np.inf)
    near = [set(np.argsort(-row)[:k].tolist()) for row in scores]
    return {
        (i, j)
        for i in range(len(vectors))
        for j in range(i + 1, len(vectors))
        if j in near[i] and i in near[j] and lowest <= scores[i, j] <= highest
    }


def test_groups_are_the_components_of_mutual_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simbert_hf.mining.pairs.BLOCK", 7)
    vectors = unit(np.random.default_rng(0), 60, 4)
    sentences = [f"sentence {i}" for i in range(60)]
    settings = PairSettings(
        neighbours=3, min_similarity=0.7, max_similarity=0.97, max_group_size=60, words=False
    )
    mined = mine_groups(sentences, vectors, settings)
    pairs = np.array(sorted(naive_pairs(vectors, 3, 0.7, 0.97)))
    graph = coo_array((np.ones(len(pairs)), pairs.T), shape=(60, 60))
    labels = connected_components(graph, directed=False)[1]
    wanted = {frozenset(np.flatnonzero(labels == label).tolist()) for label in set(labels)}
    found = {frozenset(sentences.index(text) for text in group) for group in mined.groups}
    assert found == {group for group in wanted if len(group) > 1}
    assert mined.counts["pairs within the cosines"] == len(pairs)


def test_copies_are_kept_where_the_highest_cosine_is_1() -> None:
    vectors = np.repeat(unit(np.random.default_rng(0), 20, 384), 2, axis=0)
    assert (np.einsum("nd,nd->n", vectors, vectors) > 1).any()
    sentences = [f"sentence {i}" for i in range(40)]
    mined = mine_groups(sentences, vectors, PairSettings(max_similarity=1.0, words=False))
    assert mined.groups == [sentences[i : i + 2] for i in range(0, 40, 2)]


def test_mutual_pairs_do_not_depend_on_the_blocks() -> None:
    near = np.random.default_rng(1).integers(-1, 30, size=(30, 5))
    whole = mutual_pairs(iter([near]), 30)
    parts = mutual_pairs(iter([near[:7], near[7:8], near[8:]]), 30)
    wanted = {(i, j) for i in range(30) for j in range(i + 1, 30) if j in near[i] and i in near[j]}
    assert np.array_equal(whole, parts)
    assert {tuple(pair) for pair in whole.tolist()} == wanted
    assert wanted


def test_a_group_is_never_larger_than_asked_and_takes_the_nearest_pairs_first() -> None:
    chain = np.array([[1, 2], [0, 1], [2, 3], [4, 5]])
    assert sorted(map(sorted, join(chain, max_group_size=3))) == [[0, 1, 2], [4, 5]]


def test_the_nearest_sentences_are_joined_first() -> None:
    angles = np.radians([0, 30, 50])  # cosines of neighbours: .87, .94
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    settings = PairSettings(max_group_size=2, words=False)
    assert mine_groups(list("abc"), vectors, settings).groups == [["b", "c"]]


def test_words_find_what_vectors_do_not() -> None:
    sentences = ["the zebra eats", "the zebra drinks", "people walk", "people run"]
    vectors = np.array([[1, 0], [0.85, 0.527], [0.99, 0.141], [0.84, 0.543]], dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    found = {}
    for words in (False, True):
        settings = PairSettings(neighbours=1, min_similarity=0.8, max_similarity=0.985, words=words)
        try:
            found[words] = mine_groups(sentences, vectors, settings).groups
        except DataError:
            found[words] = []
    assert found[False] == []
    assert sorted(map(sorted, found[True])) == [
        ["people run", "people walk"],
        ["the zebra drinks", "the zebra eats"],
    ]


def test_a_pair_that_words_and_vectors_find_counts_once() -> None:
    vectors = np.array([[1, 0], [0.9, 0.4359], [0, 1]], dtype=np.float32)
    found = mine_groups(["is it late", "is it very late", "go home"], vectors)
    assert found.counts == {
        "sentences": 3,
        "mutual pairs": 3,
        "pairs within the cosines": 1,
        "groups": 1,
        "grouped sentences": 2,
    }


def test_copies_are_not_sentences_of_their_own() -> None:
    assert different(["Is \tit?", "is it", "IS  IT!", "is is it", "...", ""]) == [
        "Is it?",
        "is is it",
    ]


def test_what_differs_in_a_sign_is_not_a_copy() -> None:
    sentences = [
        "C",
        "C++",
        "C#",
        "1.5 kg",
        "15 kg",
        "कौन",
        "कान",
        "it is -5",
        "it is 5",
        "5%",
        "5",
    ]
    assert different(sentences) == sentences
    copies = ["well, known", "well-known!", "C #", "c#?", "snake_case", "snake case"]
    assert different(copies) == copies[::2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"neighbours": 0}, "neighbours 0"),
        ({"max_group_size": 1}, "max_group_size 1"),
        ({"min_similarity": 0.9, "max_similarity": 0.8}, "min_similarity 0.9"),
    ],
)
def test_bad_settings_are_named(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PairSettings(**options)


def test_nothing_to_pair_is_an_error() -> None:
    with pytest.raises(DataError, match="at least two"):
        mine_groups(["one"], np.ones((1, 2), dtype=np.float32))
    with pytest.raises(DataError, match=r"cosine from 0\.8 to 0\.98"):
        mine_groups(["one", "two"], np.eye(2, dtype=np.float32), PairSettings(words=False))


def test_the_script_writes_groups_that_training_reads(tmp_path: Path) -> None:
    tiny_simbert().save_pretrained(tmp_path / "model")
    texts = [f"how do i {verb} my {thing}?" for verb in ("reset", "open") for thing in ("a", "b")]
    (tmp_path / "raw.txt").write_text("\n".join([*texts, texts[0].upper()]) + "\n")
    flags = [
        f"--model_name_or_path={tmp_path / 'model'}", f"--sentences_file={tmp_path / 'raw.txt'}",
        "--min_similarity=-1", "--max_similarity=1",
    ]  # fmt: skip
    main([*flags, f"--output_file={tmp_path / 'out.jsonl'}"])
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    groups, _ = load_groups(tmp_path / "out.jsonl")
    assert len(groups) == len(rows) > 0
    assert {text for row in groups["texts"] for text in row} <= set(texts)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "out.jsonl", "raw.txt"]
    main([*flags, "--max_group_size=2", f"--output_file={tmp_path / 'out.txt'}"])
    related = load_sentences(tmp_path / "out.txt")
    assert len(related) == len(set(related)) > 0
    assert len(related) % 2 == 0
    assert set(related) <= set(texts)
    with pytest.raises(ValueError, match=r"a \.jsonl or \.txt file"):
        main(["--model_name_or_path=x", "--sentences_file=y", "--output_file=z.csv"])


def test_the_script_reads_all_files_and_embeds_as_told(tmp_path: Path, monkeypatch) -> None:
    told = []

    def encode(self: TextEncoder, texts: list[str]) -> np.ndarray:
        told.append((texts, self.batch_size, torch.is_autocast_enabled("cpu")))
        return np.array([[1, 0], [0.9, 0.4359], [0, 1]], dtype=np.float32)

    monkeypatch.setattr(TextEncoder, "__call__", encode)
    save_tiny_simbert(tmp_path / "model")
    (tmp_path / "a.txt").write_text("几点了\n现在几点了\n", encoding="utf-8")
    (tmp_path / "b.txt").write_text("回家\n", encoding="utf-8")
    flags = [
        f"--model_name_or_path={tmp_path / 'model'}",
        "--sentences_file",
        *map(str, sorted(tmp_path.glob("*.txt"))),
    ]
    flags += [f"--output_file={tmp_path / 'out.jsonl'}", "--batch_size=7"]
    for more in ([], ["--bf16"]):
        main([*flags, *more])
    sentences = ["几点了", "现在几点了", "回家"]
    probes = sorted(sentences, key=len, reverse=True)
    assert told == [(texts, 7, half) for half in (False, True) for texts in (probes, sentences)]
    written = '{"text": "几点了", "synonyms": ["现在几点了"]}\n'  # as people read it
    assert (tmp_path / "out.jsonl").read_text("utf-8") == written


@pytest.mark.parametrize("last", ["encoding", "mining"])
def test_mining_goes_on_where_a_kill_stopped_it(tmp_path: Path, monkeypatch, last: str) -> None:
    """The vectors of whole blocks are kept until the groups are written."""
    save_tiny_simbert(tmp_path / "model")
    texts = [f"the {word} sat {number}" for word in ("cat", "dog", "mat") for number in "1234"]
    (tmp_path / "raw.txt").write_text("\n".join(texts))
    flags = [
        f"--model_name_or_path={tmp_path / 'model'}", f"--sentences_file={tmp_path / 'raw.txt'}",
        "--min_similarity=-1", "--max_similarity=1",
    ]  # fmt: skip
    monkeypatch.setattr(vectorfiles, "BLOCK", 5)
    main([*flags, f"--output_file={tmp_path / 'whole.jsonl'}"])
    calls, encode = [], TextEncoder.__call__

    def killed(self: TextEncoder, block: list[str]) -> np.ndarray:
        calls.append(len(block))
        if len(calls) == 4 and last == "encoding":  # the first are the probes
            raise KeyboardInterrupt
        return encode(self, block)

    def killed_later(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(TextEncoder, "__call__", killed)
    with monkeypatch.context() as patch:
        patch.setattr("scripts.mine_pairs.mine_groups", killed_later)
        with pytest.raises(KeyboardInterrupt):
            main([*flags, f"--output_file={tmp_path / 'out.jsonl'}"])
    with pytest.raises(ValueError, match=r"out\.jsonl\.parts: holds .* precision"):
        main([*flags, "--bf16", f"--output_file={tmp_path / 'out.jsonl'}"])
    calls.clear()
    main([*flags, f"--output_file={tmp_path / 'out.jsonl'}"])
    assert calls == {"encoding": [8, 2], "mining": [8]}[last]
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["model", "out.jsonl", "raw.txt", "whole.jsonl"]


@pytest.mark.parametrize("lines", ["a cat\na cat\n", "?!\n"])
def test_too_few_sentences_leave_no_vectors(tmp_path: Path, lines: str) -> None:
    """The mended file would then be refused: its vectors are others."""
    save_tiny_simbert(tmp_path / "model")
    (tmp_path / "raw.txt").write_text(lines)
    flags = [f"--model_name_or_path={tmp_path / 'model'}", f"--output_file={tmp_path / 'out.txt'}"]
    with pytest.raises(DataError, match="at least two different sentences"):
        main([*flags, f"--sentences_file={tmp_path / 'raw.txt'}"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "raw.txt"]


def test_a_group_s_odd_last_sentence_is_left_out_of_lines() -> None:
    assert list(two_and_two([["a", "b", "c"], ["d", "e"]])) == ["a", "b", "d", "e"]
