import bm25s
import numpy as np
import pytest

from simbert_hf.mining import bm25
from simbert_hf.mining.bm25 import WORDS, nearest_by_words


def sentences(count: int) -> list[str]:
    rng = np.random.default_rng(0)
    vocabulary = np.array([f"w{i}" for i in range(60)])
    shares = 1 / np.arange(1, 61)
    return [
        " ".join(rng.choice(vocabulary, rng.integers(1, 9), p=shares / shares.sum()))
        for _ in range(count)
    ]


@pytest.mark.parametrize("k", [1, 5, 40])
def test_the_nearest_are_those_of_bm25s_itself(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = sentences(40)
    monkeypatch.setattr(bm25, "BLOCK", 7)
    numbers = np.concatenate(list(nearest_by_words(texts, k)))
    tokens = bm25s.tokenize(texts, token_pattern=WORDS, stopwords=[], show_progress=False)
    index = bm25s.BM25()
    index.index(tokens, show_progress=False)
    wanted = index.retrieve(tokens, k=k, show_progress=False)[1]
    for text, row, values in zip(texts, numbers, wanted, strict=True):
        whole = index.get_scores(text.split())
        assert np.allclose(values[row >= 0], whole[row[row >= 0]], atol=1e-5)
        assert (values[row < 0] == 0).all()


def test_common_words_are_left_out_of_large_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bm25, "COMMON", 2)
    texts = ["the cat", "the dog", "the cow", "a cat"]
    (numbers,) = nearest_by_words(texts, 3)
    assert numbers.tolist() == [[0, 3, -1], [1, -1, -1], [2, -1, -1], [3, 0, -1]]


@pytest.mark.parametrize(("count", "found"), [(399, -1), (400, 1)])
def test_a_word_in_a_hundredth_of_a_large_set_is_searched_for(
    count: int, found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bm25, "COMMON", 2)
    texts = [f"the x{i}" if i < 4 else f"y{i}" for i in range(count)]
    (numbers,) = nearest_by_words(texts, 2)
    assert numbers[0].tolist() == [0, found]


def test_characters_are_the_same_however_they_are_encoded() -> None:
    texts = ["cafe\u0301 ouvert", "un caf\u00e9", "\uff21\uff22", "ab"]
    (numbers,) = nearest_by_words(texts, 2)
    assert numbers.tolist() == [[0, 1], [1, 0], [2, 3], [2, 3]]


def test_texts_without_a_word_have_no_neighbours() -> None:
    (numbers,) = nearest_by_words(["?!", "..."], 3)
    assert numbers.tolist() == [[-1] * 3] * 2


def test_scripts_without_blanks_share_letters_and_hindi_whole_words() -> None:
    texts = [
        "ログインできません",
        "ログインできない",
        "送料を見る",
        "मेरा कार्ड",
        "मीरा कल",
        "गया कार्ड",
    ]
    (numbers,) = nearest_by_words(texts, 2)
    assert numbers[:, 1].tolist() == [1, 0, -1, 5, -1, 3]
