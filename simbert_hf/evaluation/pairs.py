"""Labelled pairs: how well a model's cosines tell paraphrases from other pairs."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from simbert_hf.data.scored import LabelledPair, check_labels, load_labelled_pairs
from simbert_hf.evaluation.bootstrap import Bootstrap, Counts, Distinct, Figure, mean
from simbert_hf.evaluation.geometry import geometry, histogram
from simbert_hf.evaluation.results import Embed, TaskResult
from simbert_hf.evaluation.sts import cosine, embed_pairs
from simbert_hf.utils.arrays import Floats
from simbert_hf.utils.text import fold
from simbert_hf.utils.textfiles import fault

logger = logging.getLogger(__name__)

Labels = NDArray[np.bool_]


@dataclass(frozen=True)
class PairTask:
    """Labelled pairs to measure on, and others to choose thresholds on.

    Attributes:
        name: Name of the set in tables.
        test: Pairs that are measured.
        dev: Pairs, none of them in ``test``, that the thresholds are chosen on. Without them,
            accuracy and F1 are left out, as a threshold chosen on the test pairs is optimistic.

    Example:
        >>> from simbert_hf import DEFAULT_MODEL, SimBert
        >>> pairs = [
        ...     LabelledPair("a cat sat", "the cat sat", True),
        ...     LabelledPair("a cat sat", "stocks fell", False),
        ... ]
        >>> encode = SimBert.from_pretrained(DEFAULT_MODEL).encode
        >>> found = PairTask("test", pairs).measure(encode, Bootstrap(0))
        >>> found.figures["auc"].value, "accuracy" in found.figures
        (1.0, False)
    """

    name: str
    test: Sequence[LabelledPair]
    dev: Sequence[LabelledPair] = ()

    def texts(self) -> Iterator[str]:
        """Yield the sentences, repeats included."""
        for pair in (*self.test, *self.dev):
            yield from pair[:2]

    def measure(self, embed: Embed, bootstrap: Bootstrap) -> TaskResult:
        """Measure the test pairs, at thresholds chosen on the dev pairs."""
        first, second = embed_pairs(self.test, embed)
        cosines, labels = cosine(first, second), _labels(self.test)
        thresholds = {}
        if self.dev:
            thresholds = best_thresholds(cosine(*embed_pairs(self.dev, embed)), _labels(self.dev))
        figures = pair_figures(self.name, cosines, labels, thresholds, bootstrap)
        texts = list(dict.fromkeys(text for pair in self.test for text in pair[:2]))
        return TaskResult(
            "pairs",
            len(labels),
            figures | geometry(first[labels], second[labels], embed(texts)),
            facts={f"{name}_threshold": value for name, value in thresholds.items()}
            | {"positives": float(labels.mean())},
            histograms={
                "positives": histogram(cosines[labels]),
                "negatives": histogram(cosines[~labels]),
            },
            curve=threshold_curve(cosines, labels),
        )


def load_pair_task(
    name: str | None, test_file: Path, dev_file: Path | None, columns: Sequence[str] = ()
) -> PairTask:
    r"""Read labelled pairs.

    Args:
        name: Name of the set; the stem of the test file if None.
        test_file: Pairs to measure on.
        dev_file: Pairs to choose thresholds on, if there are any; those of ``test_file`` are left
            out.
        columns: See :func:`simbert_hf.data.scored.load_labelled_pairs`.

    Raises:
        DataError: If a file cannot be read, or all of its labels are equal.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "lcqmc.csv")
        ...     _ = path.write_text("sentence1,sentence2,label\nHi,Hello,1\nHi,Bye,0\n")
        ...     task = load_pair_task(None, path, dev_file=None)
        >>> task.name, [pair.same for pair in task.test]
        ('lcqmc', [True, False])
    """
    name = name or test_file.name.split(".")[0]
    test = load_labelled_pairs(test_file, columns)
    check_labels(test_file, test)
    if dev_file is None:
        return PairTask(name, test)
    if Path(dev_file) == Path(test_file):
        remedy = "Choose thresholds on pairs other than those measured"
        raise fault(dev_file, None, "is both the dev and the test file", remedy)
    seen = {frozenset(map(fold, pair[:2])) for pair in test}
    loaded = load_labelled_pairs(dev_file, columns)
    check_labels(dev_file, loaded)
    dev = [pair for pair in loaded if frozenset(map(fold, pair[:2])) not in seen]
    if len({pair.same for pair in dev}) < 2:
        problem = f"lacks pairs of both labels that are not in {test_file}"
        raise fault(dev_file, None, problem, "Choose thresholds on pairs other than those measured")
    if len(dev) < len(loaded):
        logger.info("%s: dropped %d pairs of %s", dev_file, len(loaded) - len(dev), test_file)
    return PairTask(name, test, dev)


def _labels(pairs: Sequence[LabelledPair]) -> Labels:
    return np.array([pair.same for pair in pairs])


def best_thresholds(cosines: Floats, labels: Labels) -> dict[str, float]:
    """Find the cosine thresholds for "same" with the best accuracy and the best F1.

    A threshold lies midway between two cosines that occur; of equally good ones, the highest.

    Args:
        cosines: Shape: (N,).
        labels: Whether the pairs mean the same, as booleans or 0 and 1. Shape: (N,).

    Returns:
        ``{"accuracy": ..., "f1": ...}``.

    Example:
        >>> best_thresholds(np.array([0.1, 0.3, 0.5, 0.9]), np.array([False, True, False, True]))
        {'accuracy': 0.7, 'f1': 0.2}
        >>> best_thresholds([0.1, 0.3, 0.5, 0.9], [0, 1, 0, 1])
        {'accuracy': 0.7, 'f1': 0.2}
    """
    if not np.isin(labels, (0, 1)).all():
        raise ValueError(f"Labels {np.unique(labels)[:5]} are not all 0 (other) or 1 (the same).")
    cosines, labels = np.asarray(cosines), np.asarray(labels).astype(bool)
    false_rate, true_rate, cuts = roc_curve(labels, cosines, drop_intermediate=False)
    cuts[0] = cosines.max() + 1e-6  # for infinity: no pair is the same
    positives, negatives = labels.sum(), (~labels).sum()
    true, false = true_rate * positives, false_rate * negatives
    accuracy = (true + negatives - false) / len(labels)
    f1 = 2 * true / (true + false + positives)
    between = (cuts + np.append(cuts[1:], cuts[-1])) / 2
    best = {"accuracy": accuracy, "f1": f1}
    return {name: float(between[values.round(12).argmax()]) for name, values in best.items()}


def pair_figures(
    name: str,
    cosines: Floats,
    labels: Labels,
    thresholds: dict[str, float],
    bootstrap: Bootstrap,
) -> dict[str, Figure]:
    """Compute ROC AUC, average precision, and accuracy and F1 where there are thresholds.

    Args:
        name: Name of the test set, for its resamples.
        cosines: Shape: (N,).
        labels: Shape: (N,).
        thresholds: Minimum cosine of a pair that is the same, for ``accuracy`` and ``f1``.
        bootstrap: Draws the resamples.

    Example:
        >>> cosines, labels = np.array([0.1, 0.6, 0.5, 0.9]), np.array([0, 0, 1, 1], dtype=bool)
        >>> found = pair_figures("set", cosines, labels, {"accuracy": 0.5}, Bootstrap(0))
        >>> {name: figure.value for name, figure in found.items()}
        {'auc': 0.75, 'ap': 0.83..., 'accuracy': 0.75}
    """
    distinct = Distinct(cosines)

    def statistic(counts: Counts) -> dict[str, Floats]:
        same, other = distinct.tally(counts * labels), distinct.tally(counts * ~labels)
        found = {"auc": resampled_auc(same, other), "ap": resampled_ap(same, other)}
        if "accuracy" in thresholds:
            found["accuracy"] = mean((cosines >= thresholds["accuracy"]) == labels, counts)
        if "f1" in thresholds:
            found["f1"] = _f1(cosines >= thresholds["f1"], labels, counts)
        return found

    values = {
        "auc": float(roc_auc_score(labels, cosines)),
        "ap": float(average_precision_score(labels, cosines)),
    }
    whole = statistic(np.ones((1, len(labels)), dtype=np.int64))
    values |= {metric: float(whole[metric][0]) for metric in thresholds}
    return bootstrap.figures(name, len(labels), values, statistic)


def resampled_auc(same: Counts, other: Counts) -> Floats:
    """ROC AUC of each resample: how often a paraphrase's cosine is the higher one; ties count half.

    Args:
        same: Paraphrases drawn at each distinct cosine, ascending. Shape: (R, U).
        other: The same for the other pairs. Shape: (R, U).

    Returns:
        NaN if a resample holds only one kind. Shape: (R,).

    Example:
        >>> resampled_auc(np.array([[0, 1, 2]]), np.array([[1, 1, 0]]))
        array([0.9166...])
    """
    below = other.cumsum(axis=1) - other / 2
    pairs = (same.sum(axis=1) * other.sum(axis=1)).astype(np.float64)
    pairs[pairs == 0] = np.nan
    return (same * below).sum(axis=1) / pairs


def resampled_ap(same: Counts, other: Counts) -> Floats:
    """Average precision of each resample: the precision at each paraphrase, from the top, averaged.

    Args:
        same: As for :func:`resampled_auc`.
        other: The same.

    Returns:
        NaN if a resample holds no paraphrases. Shape: (R,).

    Example:
        >>> resampled_ap(np.array([[0, 1, 2]]), np.array([[1, 1, 0]]))
        array([0.9166...])
    """
    found = same[:, ::-1].cumsum(axis=1)[:, ::-1]  # at this cosine or above
    seen = found + other[:, ::-1].cumsum(axis=1)[:, ::-1]
    precision = found / np.maximum(seen, 1)
    total = same.sum(axis=1).astype(np.float64)
    total[total == 0] = np.nan
    return (same * precision).sum(axis=1) / total


def _f1(said: Labels, labels: Labels, counts: Counts) -> Floats:
    """Return 2 TP / (2 TP + FP + FN) of each resample; 0 if nothing is, or is said to be, same."""
    true = counts @ (said & labels)
    either = counts @ said.astype(np.int64) + counts @ labels.astype(np.int64)
    return 2 * true / np.maximum(either, 1)


def threshold_curve(cosines: Floats, labels: Labels) -> dict[str, list[float]]:
    """Compute accuracy and F1 at each hundredth of the cosine.

    Returns:
        Columns ``threshold``, ``accuracy`` and ``f1``.

    Example:
        >>> curve = threshold_curve(np.array([0.1, 0.12]), np.array([False, True]))
        >>> curve["threshold"], curve["accuracy"]
        ([0.1, 0.11, 0.12], [0.5, 1.0, 1.0])
    """
    low, high = np.floor(100 * cosines.min()), np.ceil(100 * cosines.max())
    cuts = np.arange(low, high + 1) / 100
    said = cosines >= cuts[:, None]
    true = (said & labels).sum(axis=1)
    f1 = 2 * true / (said.sum(axis=1) + labels.sum())
    accuracy = (said == labels).mean(axis=1)
    return {"threshold": cuts.tolist(), "accuracy": accuracy.tolist(), "f1": f1.tolist()}
