"""Resampled figures against a loop that draws the items and measures them anew."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import pearsonr, rankdata, spearmanr
from sklearn.metrics import accuracy_score, average_precision_score, f1_score, roc_auc_score

from simbert_hf.evaluation import bootstrap
from simbert_hf.evaluation.bootstrap import Bootstrap, Distinct, Figure, compare, correlation, mean
from simbert_hf.evaluation.pairs import pair_figures, resampled_auc
from simbert_hf.evaluation.report import make_table
from simbert_hf.evaluation.results import Results, TaskResult
from simbert_hf.evaluation.sts import correlations

RNG = np.random.default_rng(5)
SCORES = RNG.integers(0, 6, 60).astype(float)
COSINES = (SCORES / 5 + RNG.normal(0, 0.4, 60)).round(1)  # with ties, as the scores


def by_loop(
    strap: Bootstrap, measure: Callable[..., float], *columns: np.ndarray, first: int = 100
) -> list[float]:
    """Measure the first resamples of the items one by one."""
    counts = np.concatenate(list(strap.counts("set", len(columns[0]))))[:first]
    drawn = [np.repeat(np.arange(len(row)), row) for row in counts]
    return [measure(*(column[i] for column in columns)) for i in drawn]


def test_means_of_resamples_equal_a_loop() -> None:
    strap = Bootstrap(100, seed=3)
    found = strap.means("set", {"scores": SCORES, "cosines": COSINES})
    for name, column in (("scores", SCORES), ("cosines", COSINES)):
        assert found[name].value == column.mean()
        assert found[name].replicates == pytest.approx(by_loop(strap, np.mean, column), abs=1e-12)


def test_correlations_of_resamples_equal_a_loop() -> None:
    strap = Bootstrap(100, seed=3)
    found = correlations("set", COSINES, SCORES, strap)
    spearman = by_loop(strap, lambda a, b: spearmanr(a, b).statistic, COSINES, SCORES)
    pearson = by_loop(strap, lambda a, b: pearsonr(a, b).statistic, COSINES, SCORES)
    assert found["spearman"].replicates == pytest.approx(spearman, abs=1e-12)
    assert found["pearson"].replicates == pytest.approx(pearson, abs=1e-12)
    assert found["spearman"].value == spearmanr(COSINES, SCORES).statistic
    assert found["pearson"].value == pearsonr(COSINES, SCORES).statistic
    assert found["spearman"].interval == pytest.approx(np.percentile(spearman, [2.5, 97.5]))
    assert found["spearman"].interval[0] < found["spearman"].value < found["spearman"].interval[1]


def test_figures_of_resampled_pairs_equal_scikit_learn() -> None:
    labels = SCORES > 2
    thresholds = {"accuracy": 0.6, "f1": 0.4}
    strap = Bootstrap(100, seed=4)
    found = pair_figures("set", COSINES, labels, thresholds, strap)
    references: dict[str, Callable[..., float]] = {
        "auc": roc_auc_score,
        "ap": average_precision_score,
        "accuracy": lambda y, c: accuracy_score(y, c >= 0.6),
        "f1": lambda y, c: f1_score(y, c >= 0.4),
    }
    assert list(found) == list(references)
    for name, reference in references.items():
        assert found[name].value == pytest.approx(reference(labels, COSINES))
        loop = by_loop(strap, reference, labels, COSINES, first=25)
        assert found[name].replicates[:25] == pytest.approx(loop, abs=1e-12)


def test_a_resample_of_one_kind_has_no_auc_and_one_of_a_single_couple_has() -> None:
    same, other = np.array([[1, 0], [0, 1]]), np.array([[0, 0], [1, 0]])
    assert resampled_auc(same, other).tolist() == pytest.approx([np.nan, 1.0], nan_ok=True)


def test_where_nothing_is_the_same_or_said_to_be_f1_is_zero() -> None:
    labels = np.array([True, False, False])
    found = pair_figures("set", np.array([0.3, 0.2, 0.1]), labels, {"f1": 0.9}, Bootstrap(100))
    assert not found["f1"].replicates.any()


def test_ranks_within_a_resample_are_scipys() -> None:
    counts = next(Bootstrap(100).counts("set", len(COSINES)))
    ranks = Distinct(COSINES).ranks(counts)
    for row, drawn in zip(ranks, counts, strict=True):
        assert np.repeat(row, drawn) == pytest.approx(rankdata(np.repeat(COSINES, drawn)))


def test_blocks_do_not_change_the_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    strap = Bootstrap(100, seed=1)
    whole = np.concatenate(list(strap.counts("set", 7)))
    monkeypatch.setattr(bootstrap, "CELLS", 50)
    blocks = list(strap.counts("set", 7))
    assert len(blocks) == 15  # 7 rows of 7 fit 50 cells
    assert (np.concatenate(blocks) == whole).all()
    assert (whole.sum(axis=1) == 7).all()
    for other in (strap.counts("other", 7), Bootstrap(100, seed=2).counts("set", 7)):
        assert not (np.concatenate(list(other)) == whole).all()


def test_every_item_is_drawn_alike() -> None:
    counts = np.concatenate(list(Bootstrap(2000).counts("set", 20)))
    assert counts.mean(axis=0) == pytest.approx(np.ones(20), abs=0.11)  # five standard errors
    assert counts.var(axis=0).mean() == pytest.approx(0.95, abs=0.03)  # binomial: 1 - 1 / n


def test_an_undefined_resample_is_left_out() -> None:
    cosines, scores = np.array([0.1, 0.2, 0.9]), np.array([0.0, 0.0, 1.0])
    found = correlations("set", cosines, scores, Bootstrap(200))["spearman"]
    lost = np.isnan(found.replicates)
    assert 0 < lost.sum() < 200  # those that drew one score only
    assert np.isfinite(found.interval).all()
    assert np.isnan(correlation(cosines, scores, np.array([[2, 1, 0]]))).all()


def test_p_value_by_hand() -> None:
    differences = np.repeat([-0.1, 0.0, 0.1, 0.3], [3, 1, 1, 194])
    found = compare(Figure(0.8, 0.5 + differences), Figure(0.6, np.full(199, 0.5)))
    assert found.difference == pytest.approx(0.2)
    assert found.p_value == pytest.approx(2 * (4 + 1) / 200)  # 3 below and 1 at zero
    assert found.interval == pytest.approx((0.29, 0.3))  # a fortieth of 198: 4.95 from the ends
    back = compare(Figure(0.6, np.full(199, 0.5)), Figure(0.8, 0.5 + differences))
    assert back.p_value == found.p_value
    assert compare(Figure(0.8, differences), Figure(0.8, differences)).p_value == 1.0
    assert compare(Figure(0.8), Figure(0.6)).p_value is None
    assert Figure(1.0, np.ones(199)).interval is None


def test_no_p_value_is_printed_as_zero() -> None:
    right, wrong = np.ones(10_000), np.zeros(10_000)
    models = {
        name: {"set": TaskResult("retrieval", 50, {"top1": Figure(values[0], values)})}
        for name, values in (("a", right), ("b", wrong))
    }
    table = make_table(Results(models, {"bootstrap": 10_000}))
    assert "-100.00 | 0.0002 |" in table
    assert "at least 0.0002, not corrected" in table


def test_p_value_is_even_where_models_are_equally_good_and_small_where_not() -> None:
    rng = np.random.default_rng(0)

    def one_test(gain: float) -> float:
        items = rng.normal(size=100)
        models = {"a": items + rng.normal(gain, 1, 100), "b": items + rng.normal(0, 1, 100)}
        values = {name: float(model.mean()) for name, model in models.items()}
        figures = Bootstrap(200).figures(
            "set", 100, values, lambda counts: {k: mean(v, counts) for k, v in models.items()}
        )
        found = compare(figures["a"], figures["b"]).p_value
        assert found is not None
        return found

    null = np.array([one_test(0.0) for _ in range(400)])
    assert np.mean(null <= 0.05) == pytest.approx(0.05, abs=0.035)  # three standard errors
    assert np.mean(null <= 0.5) == pytest.approx(0.5, abs=0.08)
    # A gain of 5 standard errors of the paired difference, 3.5 of the unpaired one:
    assert np.mean([one_test(0.71) <= 0.05 for _ in range(50)]) > 0.95


def test_too_few_resamples_are_refused() -> None:
    with pytest.raises(ValueError, match="50 resamples are too few for a 95% interval"):
        Bootstrap(50)
    with pytest.raises(ValueError, match="The seed is -1: it must be at least 0"):
        Bootstrap(seed=-1)
    assert correlations("set", COSINES, SCORES, Bootstrap(0))["pearson"].interval is None


def test_equal_cosines_are_named() -> None:
    with pytest.raises(ValueError, match=r"STS-B: the model gives all 60 pairs the cosine 0\.9990"):
        correlations("STS-B", np.full(60, 0.999), SCORES, Bootstrap(0))
