"""Semantic textual similarity: how well a model's cosines follow human scores."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from scipy.stats import pearsonr, spearmanr, zscore

from simbert_hf.data.scored import LabelledPair, ScoredPair, check_scores, load_scored_pairs
from simbert_hf.evaluation.bootstrap import Bootstrap, Counts, Distinct, Figure, correlation
from simbert_hf.evaluation.geometry import geometry, histogram
from simbert_hf.evaluation.results import Embed, TaskResult
from simbert_hf.utils.arrays import Floats, Vectors
from simbert_hf.utils.textfiles import fault

# The files of each year's task, as SentEval and SimCSE use them.
SUBSETS = {
    "STS12": ("MSRpar", "MSRvid", "SMTeuroparl", "OnWN", "SMTnews"),
    "STS13": ("FNWN", "headlines", "OnWN"),
    "STS14": ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    "STS15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "STS16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
TASKS = (*SUBSETS, "STS-B", "SICK-R")  # whose average SimCSE's paper reports
AVERAGE = "STS average"

POSITIVE, NEGATIVE = 0.8, 0.2  # shares of the highest score: 4 and 1 of 5
CURVE_BINS = 10


@dataclass(frozen=True)
class StsTask:
    """One or several files of scored pairs, measured as one (SimCSE's setting "all").

    Attributes:
        name: Name of the set in tables.
        files: Scored pairs by file.

    Example:
        >>> from simbert_hf import DEFAULT_MODEL, SimBert
        >>> pairs = [
        ...     ScoredPair("a cat sat", "the cat sat", 5.0),
        ...     ScoredPair("a cat sat", "a dog ran", 2.0),
        ...     ScoredPair("a cat sat", "stocks fell", 0.0),
        ... ]
        >>> task = StsTask("dev", {Path("dev.csv"): pairs})
        >>> encode = SimBert.from_pretrained(DEFAULT_MODEL).encode
        >>> round(task.measure(encode, Bootstrap(0)).figures["spearman"].value, 2)
        1.0
    """

    name: str
    files: Mapping[Path, Sequence[ScoredPair]]

    @property
    def missing(self) -> list[str]:
        """Files of the official task of this name that this one lacks."""
        found = {subset_of(self.name, path) for path in self.files}
        return [name for name in SUBSETS.get(self.name, ()) if name not in found]

    def texts(self) -> Iterator[str]:
        """Yield the sentences, repeats included."""
        for pair in chain.from_iterable(self.files.values()):
            yield from pair[:2]

    def measure(self, embed: Embed, bootstrap: Bootstrap) -> TaskResult:
        """Compute the correlations over all files together, and over each."""
        pairs = list(chain.from_iterable(self.files.values()))
        first, second = embed_pairs(pairs, embed)
        scores = np.array([pair.score for pair in pairs])
        cosines = cosine(first, second)
        close, apart = scores >= POSITIVE * scores.max(), scores <= NEGATIVE * scores.max()
        texts = list(dict.fromkeys(self.texts()))
        return TaskResult(
            "sts",
            len(scores),
            correlations(self.name, cosines, scores, bootstrap)
            | geometry(first[close], second[close], embed(texts)),
            self._parts(cosines, scores, bootstrap) if len(self.files) > 1 else {},
            histograms={
                "positives": histogram(cosines[close]),
                "negatives": histogram(cosines[apart]),
            },
            curve=score_curve(cosines, scores),
            lacks=self.missing,
        )

    def _parts(
        self, cosines: Floats, scores: Floats, bootstrap: Bootstrap
    ) -> dict[str, TaskResult]:
        """Compute the correlations within each file; its pairs follow those of the file before."""
        parts, start = {}, 0
        for path, pairs in self.files.items():
            rows = slice(start, start + len(pairs))
            start = rows.stop
            name = subset_of(self.name, path)
            figures = correlations(f"{self.name} {name}", cosines[rows], scores[rows], bootstrap)
            parts[name] = TaskResult("sts", len(pairs), figures)
        return parts


def load_sts_tasks(
    files: Iterable[tuple[str | None, Path]], columns: Sequence[str] = ()
) -> list[StsTask]:
    r"""Read scored pairs and group the files by task.

    Args:
        files: Name of the task and file. Where the name is None, files of SemEval's years
            (``2012-MSRpar.tsv``, ``STS15.belief.tsv``) make one task per year, and every other file
            a task of its own, named after its stem.
        columns: See :func:`simbert_hf.data.scored.load_scored_pairs`.

    Raises:
        DataError: If a file cannot be read, holds only one pair, scores all pairs equally, or is
            the same part of a task as another.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "2013-FNWN.tsv")
        ...     _ = path.write_text("4.5\tIt is late.\tIt's late.\n0\tIt is late.\tGo home.\n")
        ...     (task,) = load_sts_tasks([(None, path)])
        >>> task.name, task.missing
        ('STS13', ['headlines', 'OnWN'])
    """
    tasks: dict[str, dict[Path, list[ScoredPair]]] = {}
    for name, path in files:
        pairs = load_scored_pairs(path, columns)
        check_scores(path, pairs)
        task = name or task_of(path)
        files_of_task = tasks.setdefault(task, {})
        subset = subset_of(task, path)
        twin = next((other for other in files_of_task if subset_of(task, other) == subset), None)
        if twin is not None:
            problem = f"is a second file of {task}'s {subset}, beside {twin}"
            raise fault(path, None, problem, "Give only one, or put another NAME= before it")
        files_of_task[path] = pairs
    official_first = sorted(tasks, key=lambda name: (*TASKS, name).index(name))
    return [StsTask(name, tasks[name]) for name in official_first]


def task_of(path: Path) -> str:
    """Name the task that a file belongs to.

    Example:
        >>> task_of(Path("STS2012.gs.MSRpar.txt")), task_of(Path("stsb-en-dev.csv"))
        ('STS12', 'stsb-en-dev')
    """
    year = re.search(r"(?<![0-9a-z])(?:20|sts-?(?:20)?)(1[2-6])(?!\d)", path.name.lower())
    task = f"STS{year[1]}" if year else ""
    stem = path.name.split(".")[0]
    return task if subset_of(task, path) in SUBSETS.get(task, ()) else stem


def subset_of(task: str, path: Path) -> str:
    """Name the official file of a task that this file is; its stem if it is none of them.

    Example:
        >>> subset_of("STS16", Path("STS2016.input.question-question.txt"))
        'question-question'
    """
    stem = path.name.lower().replace("_", "-")
    official = SUBSETS.get(task, ())
    return next((name for name in official if name.lower() in stem), path.name.split(".")[0])


def embed_pairs(
    pairs: Sequence[ScoredPair | LabelledPair], embed: Embed
) -> tuple[Vectors, Vectors]:
    """Embed the first and the second sentences of pairs: (N, D) each."""
    return embed([pair.first for pair in pairs]), embed([pair.second for pair in pairs])


def cosine(first: Vectors, second: Vectors) -> Floats:
    """Compute the cosines of unit vectors, row by row: (N, D), (N, D) -> (N,).

    Example:
        >>> cosine(np.eye(2), np.ones((2, 2)))
        array([1., 1.])
    """
    return np.einsum("nd,nd->n", first, second, dtype=np.float64)


def correlations(
    name: str, cosines: Floats, scores: Floats, bootstrap: Bootstrap
) -> dict[str, Figure]:
    """Compute Spearman's and Pearson's correlation of cosines with scores.

    Args:
        name: Name of the test set, for its resamples and messages.
        cosines: Shape: (N,).
        scores: Shape: (N,).
        bootstrap: Draws the resamples; both correlations are exact on each.

    Raises:
        ValueError: If all cosines are equal.

    Example:
        >>> found = correlations("set", np.array([0.1, 0.2, 0.9]), np.arange(3.0), Bootstrap(0))
        >>> found["spearman"].value, found["pearson"].value
        (1.0, 0.91...)
    """
    if np.ptp(cosines) == 0:
        raise ValueError(
            f"{name}: the model gives all {len(cosines)} pairs the cosine {cosines[0]:.4f}, so "
            "there is no correlation; its vectors have collapsed, or ignore the sentence."
        )
    by_cosine, by_score = Distinct(cosines), Distinct(scores)
    x, y = zscore(cosines), zscore(scores)

    def statistic(counts: Counts) -> dict[str, Floats]:
        ranks = by_cosine.ranks(counts), by_score.ranks(counts)
        return {
            "spearman": correlation(*ranks, counts),
            "pearson": correlation(x, y, counts),
        }

    values = {
        "spearman": float(spearmanr(cosines, scores).statistic),
        "pearson": float(pearsonr(cosines, scores).statistic),
    }
    return bootstrap.figures(name, len(scores), values, statistic)


def score_curve(cosines: Floats, scores: Floats) -> dict[str, list[float]]:
    """Compute the mean and spread of the cosines of pairs with similar human scores.

    Returns:
        ``score`` (mean of the bin), ``mean``, ``low`` and ``high`` (a standard deviation from it)
        of at most ten bins of equal width.

    Example:
        >>> score_curve(np.array([0.1, 0.3, 0.9]), np.array([0.0, 0.0, 5.0]))["mean"]
        [0.2, 0.9]
    """
    edges = np.linspace(scores.min(), scores.max(), CURVE_BINS + 1)[1:-1]
    bins = np.digitize(scores, edges)
    curve: dict[str, list[float]] = {"score": [], "mean": [], "low": [], "high": []}
    for i in np.unique(bins):
        chosen = cosines[bins == i]
        mean, spread = float(chosen.mean()), float(chosen.std())
        values = float(scores[bins == i].mean()), mean, mean - spread, mean + spread
        for column, value in zip(curve.values(), values, strict=True):
            column.append(value)
    return curve


def average(tasks: Mapping[str, TaskResult]) -> TaskResult | None:
    """Average the correlations of those of the seven official tasks that were measured.

    Returns:
        The average, and which of the seven it lacks; None for fewer than two of them.
    """
    found = [tasks[name] for name in TASKS if name in tasks]
    if len(found) < 2:
        return None
    figures = {
        metric: Figure(
            float(np.mean([task.figures[metric].value for task in found])),
            np.mean([task.figures[metric].replicates for task in found], axis=0),
        )
        for metric in ("spearman", "pearson")
    }
    lacks = [name for name in TASKS if name not in tasks]
    lacks += [name for task in found for name in task.lacks]
    return TaskResult("sts", sum(task.size for task in found), figures, lacks=lacks)
