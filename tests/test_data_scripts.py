"""The scripts that made the training data which is shipped."""

import gzip
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts" / "data"))
import prepare_preferences
import prepare_questions
import prepare_tatoeba


def test_each_unordered_pair_stands_once_whatever_its_case(tmp_path):
    rows = [("Go.", "Move.", "go. "), ("move.", "GO.", "Run."), ("Run.", "Move."), ("Hi.", "Hey.")]
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(json.dumps({"text": a, "synonyms": rest}) for a, *rest in rows))
    found = list(prepare_tatoeba.unique_pairs(path))
    assert found == [("Go.", ["Move."]), ("move.", ["Run."]), ("Hi.", ["Hey."])]


def test_the_same_records_are_packed_to_the_same_bytes(tmp_path, capsys):
    records = [{"text": "a", "synonyms": ["ä", "b"]}, {"text": "c", "synonyms": ["d"]}]
    for name in ("one", "two"):
        prepare_tatoeba.write_records(tmp_path / name / "pairs.jsonl.gz", records)
    one, two = ((tmp_path / name / "pairs.jsonl.gz").read_bytes() for name in ("one", "two"))
    assert one == two
    assert [json.loads(line) for line in gzip.decompress(one).decode().splitlines()] == records
    assert capsys.readouterr().out.count("3 pairs") == 2


def test_intents_have_each_sentence_once(tmp_path):
    banking, clinc = tmp_path / "train.csv", tmp_path / "data.json"
    banking.write_text("text,category\nMy  card?,card\nmy card?,card\nLost it,lost\n")
    train = [["my card?", "card"], ["Hello", "greet"], ["hello", "greet"]]
    clinc.write_text(json.dumps({"train": train, "oos_train": [["Why?", "oos"]]}))
    assert prepare_questions.read_intents(banking, clinc) == {
        "banking card": ["My card?"],
        "banking lost": ["Lost it"],
        "card": ["my card?"],
        "greet": ["Hello"],
    }


def test_a_question_is_paired_once_with_each_of_its_near_ones():
    angles = {"a": 0.0, "b": 0.3, "c": 0.6, "d": 0.05, "e": 3.0}  # cosines: .96, .83, above .98

    class Model:
        def encode(self, texts, normalize_embeddings):
            assert normalize_embeddings
            return np.array([[np.cos(angles[text]), np.sin(angles[text])] for text in texts])

    found = list(prepare_questions.near_pairs(list(angles), Model()))
    assert found == [("a", ["b", "c"]), ("b", ["d", "c"]), ("c", ["d"])]


def test_a_slip_is_less_than_the_likest_of_about_as_near_paraphrases():
    candidates = [
        ("it is a bird", 0.95, 0.0),
        ("it were a cat", 0.9, 0.0),
        ("it is a cat", 0.86, 0.0),
    ]
    candidates += [("it was the cat", 0.8, 0.0)] + [(f"it were {i}", 0.96, 0.0) for i in range(3)]
    found = list(prepare_preferences.prefer(candidates, lambda text: "were" not in text))
    assert found[0] == ("it is a cat", "it were a cat")  # .05 less
    assert [chosen for chosen, _ in found[1:]] == ["it is a bird"] * 3  # the others are too far
    more = [*candidates, ("it were 4", 0.7, 0.0)]
    assert len(list(prepare_preferences.prefer(more, lambda text: "were" not in text))) == 4
