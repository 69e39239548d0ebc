"""`benchmarks.contamination`: test sentences that occur in training."""

from pathlib import Path

import numpy as np

from benchmarks.contamination import ALIKE, Finder, plain, records, runs, shingles, top1
from simbert_hf.evaluation.retrieval import RetrievalTask

TEXTS = Path(__file__).parents[1] / "scripts" / "data" / "written_en" / "test.jsonl"


def test_all_near_duplicates_are_found() -> None:
    known = [*dict.fromkeys(plain(text) for record in records(TEXTS) for text in record)]
    finder = Finder(known)
    found = 0
    for text in known[:200]:
        words = text.split()
        for other in (text, " ".join(words[:-1]), " ".join(["so", *words]), f"{text}s"):
            own = shingles(other)
            alike = {i for i, x in enumerate(finder.sets) if len(own & x) >= ALIKE * len(own | x)}
            assert finder.find(other).get("near", set()) == alike
            found += bool(alike)
    assert 400 < found <= 800


def test_equal_texts_and_runs_are_found() -> None:
    finder = Finder([plain("Don't stop!"), plain("One, two three four five six seven eight nine.")])
    assert finder.find(plain("dont STOP")) == {"equal": {0}, "near": {0}}
    assert finder.find(plain("A two three four five six seven eight nine too, or ten")) == {
        "run": {1}
    }
    assert not runs("seven words are too few for one")


def test_top1_without_some_questions_still_lets_them_be_found() -> None:
    task = RetrievalTask("set", ["a", "b", "c", "d"], np.array([0, 0, 1, 1]))
    vectors = np.eye(2)[[0, 0, 1, 0]]  # "d" stands with the others' group
    assert top1(task, lambda texts: vectors, [True] * 4).value == 0.0  # ties count against it
    vectors = np.array([[1, 0], [0.8, 0.6], [0, 1], [-0.6, 0.8]])
    assert top1(task, lambda texts: vectors, [True] * 4).value == 1.0
    vectors = np.array([[1, 0], [0.8, 0.6], [0, 1], [1, 0.01]])
    assert top1(task, lambda texts: vectors, [False, True, True, False]).value == 0.0
