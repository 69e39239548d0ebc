"""Geometry, thresholds and retrieval against loops written from their definitions."""

import errno
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from simbert_hf.data.scored import LabelledPair, ScoredPair
from simbert_hf.evaluation import geometry, plots, retrieval
from simbert_hf.evaluation.bootstrap import Bootstrap, Figure
from simbert_hf.evaluation.geometry import (
    alignment,
    effective_rank,
    mean_pairwise_cosine,
    uniformity,
)
from simbert_hf.evaluation.pairs import PairTask, best_thresholds
from simbert_hf.evaluation.results import Results, TaskResult
from simbert_hf.evaluation.retrieval import RetrievalTask, rank_group_mates
from simbert_hf.evaluation.sts import StsTask, score_curve
from simbert_hf.utils.plots import new_figure, save_figure
from tests.naive import naive_retrieval


def unit_vectors(n: int, size: int = 5, seed: int = 0) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(n, size)) + 0.5
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


# Geometry ---------------------------------------------------------------------------------------


def test_alignment_and_uniformity_equal_loops_over_their_formulas() -> None:
    x, y = unit_vectors(13), unit_vectors(13, seed=1)
    squares = [sum((x[i, d] - y[i, d]) ** 2 for d in range(5)) for i in range(13)]
    assert alignment(x, y) == pytest.approx(sum(squares) / 13)
    kernels = [
        math.exp(-2 * sum((x[i, d] - x[j, d]) ** 2 for d in range(5)))
        for i in range(13)
        for j in range(13)
        if i != j
    ]
    for chunk in (1, 4, 1000):
        assert uniformity(x, chunk) == pytest.approx(math.log(sum(kernels) / len(kernels)))
    assert uniformity(x.astype(np.float32)) == pytest.approx(uniformity(x), abs=1e-6)


def test_mean_pairwise_cosine_equals_a_loop() -> None:
    x = unit_vectors(11)
    loop = [float(x[i] @ x[j]) for i in range(11) for j in range(11) if i != j]
    assert mean_pairwise_cosine(x) == pytest.approx(sum(loop) / len(loop))
    assert mean_pairwise_cosine(np.ones((3, 1), dtype=np.float32)) == 1.0


def test_effective_rank_of_known_spectra() -> None:
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0]
    singular = np.array([4.0, 2.0, 1.0, 1.0])
    shares = singular / 8
    entropy = -sum(share * math.log(share) for share in shares)
    assert effective_rank(rotation * singular @ rotation.T) == pytest.approx(math.exp(entropy))
    assert effective_rank(np.ones((6, 3))) == pytest.approx(1.0)
    assert effective_rank(np.eye(3, 7)) == pytest.approx(3.0)


def test_geometry_of_many_sentences_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    x = unit_vectors(1200)
    whole = geometry.geometry(x[:0], x[:0], x)
    assert set(whole) == {"uniformity"}  # no positives, no alignment
    monkeypatch.setattr(geometry, "MOST", 600)
    assert geometry.geometry(x[:0], x[:0], np.eye(700))["uniformity"].value == -4  # none is twice
    part = geometry.geometry(x, x, x)
    assert part["alignment"].value == 0.0
    assert part["uniformity"].value == pytest.approx(whole["uniformity"].value, abs=0.05)
    assert part["uniformity"].value != whole["uniformity"].value


def test_a_meter_draws_no_vector_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(geometry, "METERED", 30)
    found = geometry.CollapseMeter()(np.eye(40))
    assert found == {"mean_cosine": 0.0, "effective_rank": pytest.approx(30)}


@pytest.mark.parametrize(
    "measure",
    [
        uniformity,
        mean_pairwise_cosine,
        effective_rank,
        lambda vectors: rank_group_mates(vectors, np.array([0])),
    ],
)
def test_one_vector_is_refused(measure) -> None:
    with pytest.raises(ValueError, match="At least two vectors are needed to compare; got 1"):
        measure(np.ones((1, 3)))


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_vectors_that_are_not_finite_are_refused(broken: float) -> None:
    vectors = np.eye(4)
    vectors[2, 0] = broken
    groups = np.array([0, 0, 1, 1])
    for measure in (effective_rank, lambda v: rank_group_mates(v, groups)):
        with pytest.raises(ValueError, match="1 of 4 vectors are not finite, first in row 2"):
            measure(vectors)


def test_alignment_without_pairs_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one pair of positives"):
        alignment(np.ones((0, 3)), np.ones((0, 3)))


# Thresholds and curves --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_best_thresholds_equal_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 30))
    cosines = rng.normal(0.5, 0.3, n).round(1)  # with ties
    labels = rng.random(n) < cosines
    labels[:2] = True, False
    found = best_thresholds(cosines, labels)
    assert found == best_thresholds(cosines, labels.astype(int))
    with pytest.raises(ValueError, match=r"Labels \[-1  1\] are not all 0"):
        best_thresholds(cosines, 2 * labels.astype(int) - 1)
    best = {"accuracy": 0.0, "f1": 0.0}
    for cut in [*cosines, cosines.max() + 1]:  # every way to part them
        said = [bool(c >= cut) for c in cosines]
        true = sum(s and y for s, y in zip(said, labels, strict=True))
        right = sum(s == y for s, y in zip(said, labels, strict=True))
        best["accuracy"] = max(best["accuracy"], right / n)
        best["f1"] = max(best["f1"], 2 * true / (sum(said) + sum(labels)))
    said = cosines >= found["accuracy"]
    assert (said == labels).mean() == pytest.approx(best["accuracy"])
    said = cosines >= found["f1"]
    f1 = 2 * (said & labels).sum() / (said.sum() + labels.sum())
    assert f1 == pytest.approx(best["f1"])
    assert not np.isin(list(found.values()), cosines[cosines > cosines.min()]).any()  # between


def test_where_no_threshold_helps_none_is_the_same() -> None:
    labels = np.array([True, False, False, False])
    found = best_thresholds(np.array([0.1, 0.5, 0.6, 0.7]), labels)
    assert 0.7 < found["accuracy"] < 0.701
    assert found["f1"] == 0.1  # all are the same


def test_labelled_pairs_bring_the_curve_and_the_parts_of_their_cosines() -> None:
    vectors = {"a": (1.0, 0.0), "b": (0.495, (1 - 0.495**2) ** 0.5), "c": (0.005, 1.0)}
    pairs = [LabelledPair("a", "b", True), LabelledPair("a", "c", False)]
    found = PairTask("set", pairs).measure(
        lambda texts: np.array([vectors[text] for text in texts], dtype=np.float32), Bootstrap(0)
    )
    assert found.curve["threshold"] == pytest.approx((np.arange(51) / 100).tolist())
    assert found.curve["accuracy"] == [0.5, *[1.0] * 49, 0.5]
    assert found.curve["f1"] == pytest.approx([2 / 3, *[1.0] * 49, 0])
    assert found.figures["alignment"].value == pytest.approx(1.01)
    assert np.argmax(found.histograms["negatives"]) < np.argmax(found.histograms["positives"])


def test_the_close_pairs_have_at_least_four_fifths_of_the_best_score() -> None:
    pairs = [ScoredPair("a", text, score) for text, score in zip("bcde", (5, 4, 1, 0), strict=True)]
    vectors = dict(zip("abcde", np.eye(5)[[0, 0, 1, 2, 3]], strict=True))
    found = StsTask("set", {Path("set.csv"): pairs}).measure(
        lambda texts: np.array([vectors[text] for text in texts]), Bootstrap(0)
    )
    assert found.figures["alignment"].value == pytest.approx((0 + 2) / 2)
    assert [sum(found.histograms[side]) for side in ("positives", "negatives")] == [2, 2]


def test_score_curve_by_hand() -> None:
    scores = np.array([0.0, 0.4, 0.5, 4.6, 5.0])
    curve = score_curve(np.array([0.1, 0.3, 0.6, 0.9, 0.9]), scores)
    assert curve["score"] == pytest.approx([0.2, 0.5, 4.8])  # bins of width 0.5
    assert curve["mean"] == pytest.approx([0.2, 0.6, 0.9])
    assert curve["high"] == pytest.approx([0.3, 0.6, 0.9])
    assert curve["low"] == pytest.approx([0.1, 0.6, 0.9])


# Retrieval --------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 7, 1000])
@pytest.mark.parametrize("n_groups", [2, 12, 60])
def test_ranks_equal_a_loop(chunk: int, n_groups: int) -> None:
    vectors = unit_vectors(60)
    groups = np.random.default_rng(1).integers(0, n_groups, 60)
    found = rank_group_mates(vectors.astype(np.float32), groups, chunk)
    first, precision = naive_retrieval(torch.from_numpy(vectors), groups.tolist())
    assert found.first.tolist() == first
    assert found.average_precision == pytest.approx(precision)


@pytest.mark.parametrize("few", [0, 16])
def test_scores_at_a_limit_reach_it(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr(retrieval, "FEW", few)
    scores, limits = (
        torch.tensor([[0.1, 0.5, 0.9], [0.5, 0.5, 0.2]]),
        torch.tensor([[0.5, 0.9]] * 2),
    )
    assert retrieval.count_at_least(scores, limits).tolist() == [[2, 1], [2, 0]]


def test_few_scores_are_held_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, groups = unit_vectors(50), np.arange(50) // 3
    whole = rank_group_mates(vectors, groups)
    held, count = [], retrieval._positions

    def spy(scores: torch.Tensor, mates: torch.Tensor, begin: int) -> torch.Tensor:
        held.append(scores.numel())
        return count(scores, mates, begin)

    monkeypatch.setattr(retrieval, "SCORES", 120)
    monkeypatch.setattr(retrieval, "_positions", spy)
    assert (rank_group_mates(vectors, groups).first == whole.first).all()
    assert max(held) == 100
    assert len(held) == 25


def test_equal_vectors_of_other_groups_come_first() -> None:
    vectors = np.eye(4, dtype=np.float32)[[0, 0, 0, 1]]
    found = rank_group_mates(vectors, np.array([5, 6, 5, 6]))
    # 0 finds its mate level with the stranger 1, behind it; 1 finds 3 behind 0 and 2
    assert found.first.tolist() == [2, 3, 2, 3]
    nearly = vectors.copy()
    nearly[2, 0] += 5e-7  # a cosine that rounding alone could change does not count as better
    assert rank_group_mates(nearly, np.array([5, 6, 5, 6])).first.tolist() == [2, 3, 2, 3]


def test_retrieval_resamples_groups() -> None:
    vectors, sizes = unit_vectors(40).astype(np.float32), [2, 3, 4, 7] * 2 + [3, 5]
    groups = np.repeat(np.arange(10), sizes) * 7
    texts = [str(i) for i in range(40)]
    task = RetrievalTask("set", texts, groups)
    strap = Bootstrap(100)
    found = task.measure(lambda chosen: vectors[[int(text) for text in chosen]], strap)
    first, precision = naive_retrieval(torch.from_numpy(vectors), groups.tolist())
    shares = {
        "top1": [float(rank <= 1) for rank in first],
        "top5": [float(rank <= 5) for rank in first],
        "top10": [float(rank <= 10) for rank in first],
        "mrr": [1 / rank for rank in first],
        "map": precision,
    }
    assert list(found.figures) == list(shares)
    counts = np.concatenate(list(strap.counts("set", 10)))
    for name, values in shares.items():
        assert found.figures[name].value == pytest.approx(np.mean(values))
        loop = [np.average(values, weights=np.repeat(row, sizes)) for row in counts]
        assert found.figures[name].replicates == pytest.approx(loop)


# Plots ------------------------------------------------------------------------------------------


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list:
    """Collect the figures that are drawn, which are not written."""
    figures, make = [], plots.new_figure

    def new_figure(*size: float) -> object:
        figures.append(make(*size))
        return figures[-1]

    monkeypatch.setattr(plots, "new_figure", new_figure)
    monkeypatch.setattr(plots, "save_figure", lambda *_: None)
    return figures


def test_a_full_disk_leaves_the_former_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object, part: Path, **options: object) -> None:
        part.write_text("half a picture")
        raise OSError(errno.ENOSPC, "No space left on device")

    figure, place = new_figure(1, 1), tmp_path / "scores.SVG"
    save_figure(figure, place)
    former = place.read_text()
    assert former.startswith("<?xml")
    monkeypatch.setattr(type(figure), "savefig", full)
    with pytest.raises(OSError, match=re.escape(f"on device: '{place}'")):
        save_figure(figure, place)
    assert place.read_text() == former
    assert list(tmp_path.iterdir()) == [place]


def test_histograms_show_shares_within_the_range_that_occurs(drawn: list) -> None:
    counts = {"negatives": [0] * 100, "positives": [0] * 100}
    counts["negatives"][40], counts["positives"][60] = 1, 3
    counts["positives"][69] = 1
    task = TaskResult("pairs", 5, {}, histograms=counts)
    plots.plot_histograms(Results({"one": {"QQP": task}, "two": {"QQP": task}}), "a.png")
    axes = drawn[0].axes
    assert [axis.get_title() for axis in axes] == ["QQP: one", "QQP: two"]
    assert axes[0].get_xlim() == pytest.approx((-0.2, 0.4))  # edges of bins 40 and 69
    negatives, positives = (patch.get_data() for patch in axes[1].patches)
    assert negatives.values[40] == 1
    assert (positives.values[60], positives.values[69]) == (0.75, 0.25)
    assert positives.edges[60] == pytest.approx(0.2)


def test_curves_and_places_show_their_columns(drawn: list) -> None:
    low, mean, high = [0.1, 0.3], [0.2, 0.5], [0.3, 0.7]
    sts = TaskResult(
        "sts", 9, {}, curve={"score": [1.0, 4.0], "mean": mean, "low": low, "high": high}
    )
    pairs = TaskResult(
        "pairs", 9, {}, facts={"accuracy_threshold": 0.6},
        curve={"threshold": [0.0, 1.0], "accuracy": [0.5, 0.8]},
    )  # fmt: skip
    plots.plot_curves(Results({"one": {"STS-B": sts, "QQP": pairs}}), "a.png")
    first, second = drawn[0].axes
    assert first.lines[0].get_xydata().tolist() == [[1.0, 0.2], [4.0, 0.5]]
    area = first.collections[0].get_paths()[0].vertices.tolist()
    assert all([x, y] in area for x, *ys in zip([1.0, 4.0], low, high, strict=True) for y in ys)
    curve, chosen = second.lines
    assert curve.get_xydata().tolist() == [[0.0, 0.5], [1.0, 0.8]]
    assert chosen.get_xdata() == [0.6, 0.6]

    figures = {"uniformity": Figure(-2.0), "alignment": Figure(0.3)}
    named = {name: TaskResult("pairs", 9, figures) for name in ("QQP", "PAWS")}
    plots.plot_geometry(Results({"one": named, "two": named}), "a.png")
    lines = [line for line in drawn[1].axes[0].lines if len(line.get_xydata())]
    assert [line.get_xydata().tolist() for line in lines] == [[[-2.0, 0.3]]] * 4
    looks = [(line.get_color(), line.get_marker()) for line in lines]
    assert looks == [("C0", "o"), ("C0", "s"), ("C1", "o"), ("C1", "s")]
