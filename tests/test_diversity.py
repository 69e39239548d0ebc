"""Maximal marginal relevance."""

import random

import pytest

from simbert_hf.generation.diversity import choose_diverse, wording

WORDS = "where is my new card please how do i find it 我的 卡".split()


def naive(texts, scores, k, diversity):
    """The same, word for word as in the paper."""

    def pairs(text):
        return set(zip(f" {text}", f"{text} ", strict=True))

    def alike(i, j):
        a, b = pairs(texts[i]), pairs(texts[j])
        return len(a & b) / len(a | b)

    chosen = []
    while len(chosen) < min(k, len(texts)):
        left = [i for i in range(len(texts)) if i not in chosen]
        lost = {i: diversity * max([alike(i, j) for j in chosen], default=0) for i in left}
        chosen.append(max(left, key=lambda i: (scores[i] - lost[i], -i)))
    return chosen


@pytest.mark.parametrize("diversity", [0.0, 0.2, 1.0, 50.0])
def test_chooses_as_the_paper_does(diversity):
    draw = random.Random(0)
    texts = list(dict.fromkeys("".join(draw.choices(WORDS, k=5)) for _ in range(60)))
    scores = [draw.random() for _ in texts]
    for k in (1, 7, len(texts), 100):
        found = choose_diverse(texts, scores, k, diversity)
        assert found == naive(texts, scores, k, diversity)
        assert found == choose_diverse(texts, scores, 100, diversity)[:k]


def test_case_and_final_marks_make_no_difference():
    texts = ["is it late", "Is it late?", "was it"]
    assert choose_diverse(texts, [3, 2, 1], 2, 1.5) == [0, 2]
    assert choose_diverse(texts, [3, 2, 1], 2, 0.5) == [0, 1]


@pytest.mark.parametrize(
    ("text", "other", "same"),
    [
        ("We won’t go, it's late", "we will not go - it is late!", True),
        ("It's rained; they'd gone", "It has rained, they had gone", True),
        ("gluten-free?", "gluten free", True),
        ("今晚吃火锅，还是烧烤？", "今晚吃火锅还是烧烤", True),
        ("I can't", "I can", False),
        ("learn C#", "learn C", False),
        ("learn C++", "learn C", False),
        ("it costs 5€", "it costs £5", False),
        ("मैं घर की तरफ", "मैं घर का तरफ", False),
        ("-5 now", "5 now", False),
        ("was it late", "it was late", False),
    ],
)
def test_the_same_words(text, other, same):
    assert (wording(text) == wording(other)) == same


def test_of_nothing_nothing_is_chosen():
    assert choose_diverse([], [], 5, 0.2) == []
