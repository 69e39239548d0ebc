"""Plots of an evaluation; need the extra ``eval`` (matplotlib)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simbert_hf.evaluation.geometry import BINS
from simbert_hf.evaluation.results import Results, TaskResult
from simbert_hf.utils.plots import new_figure, save_figure

MARKERS = "osD^vPX*<>hd"


def plot_histograms(results: Results, path: str | Path) -> None:
    """Plot the cosines of positives and negatives: one row per test set, one column per model."""
    names = [name for name, task in results.baseline.items() if task.histograms]
    if not names:
        return
    size = 3.2 * len(results.models) + 0.6, 1.7 * len(names) + 0.6
    figure = new_figure(*size)
    axes = figure.subplots(len(names), len(results.models), sharex=True, squeeze=False)
    for column, (model, tasks) in enumerate(results.models.items()):
        for row, name in enumerate(names):
            axis = axes[row, column]
            _draw_histogram(axis, tasks[name])
            axis.set_title(f"{name}: {model}", fontsize=9)
            axis.set_yticks([])
    axes[0, 0].legend(frameon=False, fontsize=8, loc="upper left")
    axes[0, 0].set_xlim(*_range_of(results, names))
    figure.supxlabel("cosine")
    figure.supylabel("density")
    save_figure(figure, path)


def _draw_histogram(axis: Any, task: TaskResult) -> None:
    for name, color in (("negatives", "tab:orange"), ("positives", "tab:blue")):
        counts = np.array(task.histograms[name])
        if counts.sum():
            axis.stairs(counts / counts.sum(), BINS, fill=True, alpha=0.55, color=color, label=name)


def _range_of(results: Results, names: list[str]) -> tuple[float, float]:
    """Find the range of the cosines that occur."""
    counts = sum(
        np.array(side)
        for tasks in results.models.values()
        for name in names
        for side in tasks[name].histograms.values()
    )
    used = np.flatnonzero(counts)
    return float(BINS[used[0]]), float(BINS[used[-1] + 1])


def plot_curves(results: Results, path: str | Path) -> None:
    """Plot mean cosines by human score, and accuracy by threshold."""
    names = [name for name, task in results.baseline.items() if task.curve]
    if not names:
        return
    columns = min(4, len(names))
    rows = -(-len(names) // columns)
    figure = new_figure(3.4 * columns, 2.8 * rows)
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat[len(names) :]:
        axis.remove()
    for name, axis in zip(names, axes.flat, strict=False):
        for model, tasks in results.models.items():
            _draw_curve(axis, model, tasks[name])
        axis.set_title(name, fontsize=9)
    axes[0, 0].legend(frameon=False, fontsize=8)
    save_figure(figure, path)


def _draw_curve(axis: Any, model: str, task: TaskResult) -> None:
    curve = task.curve
    if task.kind == "sts":
        (line,) = axis.plot(curve["score"], curve["mean"], "o-", markersize=3, label=model)
        axis.fill_between(
            curve["score"], curve["low"], curve["high"], alpha=0.12, color=line.get_color()
        )
        axis.set(xlabel="people's score", ylabel="cosine (mean ± sd)")
        return
    (line,) = axis.plot(curve["threshold"], curve["accuracy"], label=model)
    if "accuracy_threshold" in task.facts:
        axis.axvline(task.facts["accuracy_threshold"], color=line.get_color(), ls=":")
    axis.set(xlabel="threshold (dotted: dev's choice)", ylabel="accuracy")


def plot_geometry(results: Results, path: str | Path) -> None:
    """Plot alignment against uniformity: one colour per model, one marker per test set."""
    points = [
        (model, name, task.figures["uniformity"].value, task.figures["alignment"].value)
        for model, tasks in results.models.items()
        for name, task in tasks.items()
        if {"alignment", "uniformity"} <= set(task.figures)
    ]
    if points:
        draw_places(points, path)


def draw_places(points: Sequence[tuple[str, str, float, float]], path: str | Path) -> None:
    """Plot alignment against uniformity; bottom left is best.

    Args:
        points: Name with a colour, name with a marker, uniformity, alignment.
        path: File to write.
    """
    figure = new_figure(6.4, 4.4)
    axis = figure.subplots()
    colored, marked = (list(dict.fromkeys(point[i] for point in points)) for i in (0, 1))
    colors = {name: f"C{i % 10}" for i, name in enumerate(colored)}
    marks = {name: MARKERS[i % len(MARKERS)] for i, name in enumerate(marked)}
    for one, other, x, y in points:
        axis.plot(x, y, marks[other], color=colors[one], alpha=0.8, markersize=8)
    for name, color in colors.items():
        axis.plot([], [], "s", color=color, label=name)
    for name, mark in marks.items():
        axis.plot([], [], mark, color="grey", label=name)
    axis.set(xlabel="uniformity (less is more even)", ylabel="alignment (less is closer)")
    figure.legend(frameon=False, fontsize=8, loc="outside right upper")
    save_figure(figure, path)
