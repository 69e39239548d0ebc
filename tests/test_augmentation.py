"""`benchmarks.augmentation`: what is drawn, added and counted, and the data it ships."""

import numpy as np
import pytest

from benchmarks.augmentation import (
    Tuned,
    accuracy,
    best,
    changed,
    draw,
    drifted,
    examples,
    fitted,
    read,
)
from simbert_hf import SentenceEncoder
from simbert_hf.utils.text import fold
from tests.tiny import ROWS, tiny_simbert

TRAIN = [(f"{word} {i}", intent) for word, intent in (("door", "a"), ("bike", "b")) for i in "123"]
FEATURES = np.vectorize(lambda text: float("door" in text))


def features():
    from sklearn.preprocessing import FunctionTransformer

    return FunctionTransformer(lambda texts: FEATURES(texts)[:, None])


def test_the_utterances_are_as_their_readme_says():
    data = read("front_desk_en")
    for part, size in (("train", 20), ("test", 15)):
        intents = [intent for _, intent in data[part]]
        assert {intents.count(intent) for intent in intents} == {size}
        assert len({*intents}) == 20
    texts = [fold(text) for rows in data.values() for text, _ in rows]
    assert len({*texts}) == len(texts) == 700


def test_a_part_of_clinc150_has_the_same_shape():
    data = read("clinc150")
    assert [len(rows) for rows in data.values()] == [400, 300]
    assert {intent for _, intent in data["train"]} == {intent for _, intent in data["test"]}


def test_few_examples_are_added_to():
    drawn = draw(TRAIN, 0)
    few = [group[0] for group in drawn]
    assert examples(drawn, 1, lambda text: [text.upper()]) == few + [
        (text.upper(), intent) for text, intent in few
    ]
    assert sorted(examples(drawn, 1, None)) == sorted(TRAIN)  # there are no more
    assert drawn == draw(TRAIN, 0)
    assert drawn != draw(TRAIN, 1)


def test_random_changes_differ_from_the_text_and_each_other():
    found = changed("can i bring a friend", 5)
    assert len({*found, "can i bring a friend"}) == 6
    assert all({*other.split()} <= {*"can i bring a friend".split()} for other in found)
    assert changed("hello", 5) == []


def test_paraphrases_are_chosen_by_score_cosine_and_variety():
    written = {"x": [["my card?", 0.9, 0.8], ["the card?", 0.8, 0.95], ["where is it", 0.7, 0.9]]}
    assert best(written, "x", 2, diversity=0) == ["my card?", "the card?"]
    assert best(written, "x", 2, diversity=1) == ["my card?", "where is it"]
    assert best(written, "x", 2, least=0.9) == ["the card?", "where is it"]


def test_accuracy_is_resampled_by_draws_and_utterances():
    found = accuracy(np.array([[1, 1, 0, 0], [1, 1, 0, 1]]))
    assert found.value == 62.5
    assert found.interval[0] < 40 < 80 < found.interval[1]
    assert accuracy(np.ones((3, 4))).replicates == pytest.approx(np.full(1000, 100))


def test_drift_counts_paraphrases_of_what_is_told_rightly():
    assert [*fitted(features(), TRAIN, ["door", "bike"])] == ["a", "b"]
    written = {text: [["a door", 1, 0.95], ["nothing", 1, 0.5]] for text, _ in TRAIN}
    found = drifted(TRAIN, written, features())
    assert found["utterances"] == 0
    assert found["paraphrases"] == 50
    assert found["cosine from 0.9"] == found["cosine below 0.9"] == 50


def test_an_encoder_is_trained_on_pairs_of_an_intent(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.augmentation.LEARNING_RATE", 3e-3)  # it is tiny
    tiny_simbert(hidden_dropout_prob=0.1).save_pretrained(tmp_path)
    texts, intents = zip(*ROWS[:24], ("what time is it", "time"), strict=True)  # one of its own

    def margin(vectors):
        same = np.equal.outer(intents, intents)
        cosines = vectors @ vectors.T
        return cosines[same].mean() - cosines[~same].mean()

    before = SentenceEncoder.from_pretrained(tmp_path).encode(texts)
    once, again = (Tuned(str(tmp_path)).fit(texts, intents).transform(texts) for _ in range(2))
    assert margin(once) > margin(before) + 0.1
    assert np.array_equal(once, again)
