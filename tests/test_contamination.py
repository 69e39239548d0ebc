"""`benchmarks.contamination`: test sentences that occur in training."""

import numpy as np

from benchmarks.contamination import ALIKE, Finder, plain, runs, shingles, top1
from simbert_hf.evaluation.retrieval import RetrievalTask


def test_all_near_duplicates_are_found() -> None:
    rng = np.random.default_rng(0)
    words = "is it the cat or dog".split()
    known = [*{" ".join(rng.choice(words, rng.integers(3, 9))): None for _ in range(400)}]
    finder, shares = Finder(known[:300]), set()
    for text in known:
        own = shingles(text)
        shared = [len(own & one) / len(own | one) for one in finder.sets]
        alike = {i for i, share in enumerate(shared) if share >= ALIKE}
        assert finder.find(text).get("near", set()) == alike
        shares |= {*shared}
    assert {ALIKE, 1.0} < shares


def test_equal_texts_and_runs_are_found() -> None:
    finder = Finder([plain("Don't stop!"), plain("One, two three four five six seven eight nine.")])
    assert finder.find(plain("dont STOP")) == {"equal": {0}, "near": {0}}
    assert finder.find(plain("A two three four five six seven eight nine too, or ten")) == {
        "run": {1}
    }
    assert not runs("seven words are too few for one")


def test_chinese_is_compared_by_characters_without_spaces() -> None:
    assert (
        plain("你好， 我的 iPhone 13 呢？") == plain("你好我的iphone 13呢") == "你好我的iphone 13呢"
    )
    finder = Finder([plain("我想把手机上的银行卡换成另外一张卡"), plain("Where is my phone?")])
    assert finder.find(plain("我想把手机上的银行卡换成另外一张卡吗？")) == {"near": {0}, "run": {0}}
    assert finder.find(plain("请问手机上的银行卡换成另外一张，行吗")) == {"run": {0}}
    assert not finder.find(plain("手机上的银行卡换成另"))  # ten characters


def test_top1_without_some_questions_still_lets_them_be_found() -> None:
    task = RetrievalTask("set", ["a", "b", "c", "d"], np.array([0, 0, 1, 1]))
    vectors = np.eye(2)[[0, 0, 1, 0]]  # "d" stands with the others' group
    assert top1(task, lambda texts: vectors, [True] * 4).value == 0.0  # ties count against it
    vectors = np.array([[1, 0], [0.8, 0.6], [0, 1], [-0.6, 0.8]])
    assert top1(task, lambda texts: vectors, [True] * 4).value == 1.0
    vectors = np.array([[1, 0], [0.8, 0.6], [0, 1], [1, 0.01]])
    assert top1(task, lambda texts: vectors, [False, True, True, False]).value == 0.0
