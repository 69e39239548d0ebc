"""Results of an evaluation: figures of every model on every test set, and their JSON form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simbert_hf.evaluation.bootstrap import Figure, compare
from simbert_hf.utils.arrays import Vectors
from simbert_hf.utils.atomic import write_json

Embed = Callable[[Sequence[str]], Vectors]


@dataclass(frozen=True)
class TaskResult:
    """One model's results on one test set.

    Attributes:
        kind: sts, pairs or retrieval.
        size: Pairs (for retrieval: sentences) that were measured.
        figures: Figures by name of the metric.
        parts: The same for each file, where the set has several.
        facts: Other numbers: thresholds, the share of positives.
        histograms: Cosines of ``positives`` and of ``negatives``, counted in 100 bins.
        curve: Columns of the score curve, equally long.
        lacks: Parts of the official set of that name that this one lacks.
    """

    kind: str
    size: int
    figures: Mapping[str, Figure]
    parts: Mapping[str, TaskResult] = field(default_factory=dict)
    facts: Mapping[str, float] = field(default_factory=dict)
    histograms: Mapping[str, list[int]] = field(default_factory=dict)
    curve: Mapping[str, list[float]] = field(default_factory=dict)
    lacks: Sequence[str] = ()

    def to_json(self, baseline: TaskResult) -> dict[str, Any]:
        """Return it as JSON values, each figure compared with the baseline's."""
        content = {name: getattr(self, name) for name in ("kind", "size", "lacks", "facts")}
        content["figures"] = {
            name: figure_to_json(figure, baseline.figures[name])
            for name, figure in self.figures.items()
        }
        content["parts"] = {
            name: part.to_json(baseline.parts[name]) for name, part in self.parts.items()
        }
        return content | {"histograms": self.histograms, "curve": self.curve}


def figure_to_json(figure: Figure, baseline: Figure) -> dict[str, Any]:
    """Return a figure, its interval and its difference from the baseline as JSON values."""
    content: dict[str, Any] = {"value": figure.value, "interval": figure.interval}
    if figure is not baseline:
        against = compare(figure, baseline)
        content["difference"] = against.difference
        content["difference_interval"] = against.interval
        content["p_value"] = against.p_value
    return content


@dataclass(frozen=True)
class Results:
    """Results of every model on every test set.

    Attributes:
        models: Model -> test set -> result. The first model is the baseline of all comparisons.
        settings: How it was measured: files, prompts, resamples, seed, versions.
    """

    models: Mapping[str, Mapping[str, TaskResult]]
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def baseline(self) -> Mapping[str, TaskResult]:
        """The first model's results."""
        return next(iter(self.models.values()))

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values; figures are raw (a correlation of 0.8, not 80)."""
        models = {
            model: {name: result.to_json(self.baseline[name]) for name, result in tasks.items()}
            for model, tasks in self.models.items()
        }
        return {"settings": self.settings, "models": models}

    def save(self, path: str | Path) -> None:
        """Write JSON."""
        write_json(Path(path), self.to_json(), allow_nan=False)
