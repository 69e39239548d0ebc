"""Ratings of paraphrases: what the benchmark compares rankings with, and what is made of them."""

import gzip
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import ranking
from simbert_hf.generation.scoring import score_pairs
from simbert_hf.utils.text import fold
from tests.tiny import tiny_simbert

DATA = Path(__file__).parents[1] / "scripts" / "data"
sys.path.insert(0, str(DATA))
import prepare_rated  # noqa: E402


def rows_of(name):
    with gzip.open(DATA / name, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def test_agreement_counts_pairs_in_order_and_good_ones_at_the_top():
    right, best, three = ranking.agreement(np.array([0.1, 0.4, 0.3, 0.2]), [2, 2, 0, 1])
    # Ranked: 2, 0, 1, 2. Of the unequal pairs 2-0, 2-1 are right; 0-1, 0-2, 1-2 are not.
    assert (right, best, three) == pytest.approx((2 / 5, 1.0, 1 / 3))
    right, best, three = ranking.agreement(np.array([1.0, 2.0]), [1, 1])
    assert math.isnan(right)
    assert (best, three) == (0.0, 0.0)


def test_features_are_the_cosine_and_both_log_probabilities():
    model = tiny_simbert()
    rows = [
        {"text": "what time is it", "candidates": ["tell me the time", "dog"]},
        {"text": "the cat", "candidates": ["a cat sat"]},
    ]
    found = ranking.features(model, rows)
    assert [x.shape for x in found] == [(2, 3), (1, 3)]
    pairs = [("the cat", "a cat sat"), ("a cat sat", "the cat")]
    forth, back = score_pairs(model, pairs).means.tolist()
    vectors = model.encode(["the cat", "a cat sat"])
    assert found[1][0] == pytest.approx([vectors[0] @ vectors[1], forth, back], abs=1e-4)


def test_the_better_is_preferred_that_is_most_like_the_worse():
    row = {
        "text": "where is it",
        "candidates": ["where it is", "so where is it now", "were is it now"],
        "ratings": [2, 2, 1],
        "own": ["tell me where it is"],
    }
    assert prepare_rated.good_ones(row) == [
        "where it is",
        "so where is it now",
        "tell me where it is",
    ]
    assert list(prepare_rated.prefer(row)) == [("so where is it now", "were is it now")]
    assert not list(prepare_rated.prefer(row | {"ratings": [1, 0, 0], "own": []}))
    assert prepare_rated.likeness("怎么关花呗", "花呗怎么关") == 0.6  # characters, without spaces


def ratings_of(file):
    """Return the rows of a file, how many ratings they have, and the shares of 2, 1 and 0."""
    rows = rows_of(file)
    assert all(len(row["candidates"]) == len(row["ratings"]) > 0 for row in rows)
    ratings = [rating for row in rows for rating in row["ratings"]]
    shares = (f"{100 * ratings.count(k) / len(ratings):.0f}" for k in (2, 1, 0))
    return rows, len(ratings), " / ".join(shares)


def test_the_ratings_are_as_their_readme_says():
    said = (DATA / "rated_en" / "README.md").read_text(encoding="utf-8")
    texts = []
    for name in ("ratings", "held_out", "choice", "ratings_2", "ratings_3"):
        rows, ratings, shares = ratings_of(f"rated_en/{name}.jsonl.gz")
        (row,) = (line for line in said.splitlines() if line.startswith(f"| `{name}.jsonl.gz`"))
        assert f"| {len(rows):,}" in row
        assert row.endswith(f"| {ratings:,} | {shares} % |")
        texts += [row["text"] for row in rows]
    assert len(set(texts)) == len(texts)
    written = {
        fold(row["text"])
        for name in ("collected", "invented", "freer", "invented_2")
        for row in rows_of(f"written_en/{name}.jsonl.gz")
    }
    assert not written & set(map(fold, texts))
    both = {row["text"] for row in rows_of("written_en/invented_3.jsonl.gz")} & set(texts)
    assert len(both) > 0.9 * len(rows_of("rated_en/ratings_3.jsonl.gz"))


def test_the_chinese_ratings_are_as_their_readme_says():
    said = (DATA / "rated_zh" / "README.md").read_text(encoding="utf-8")
    for name in ("ratings", "ratings_2"):
        rows, ratings, shares = ratings_of(f"rated_zh/{name}.jsonl.gz")
        assert f"| `{name}.jsonl.gz` | {len(rows):,} | {ratings:,} | {shares} % |" in said
