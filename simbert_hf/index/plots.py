"""Plots of calibrations; need the extra ``eval`` (matplotlib)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from simbert_hf.index.calibration import Calibration
from simbert_hf.utils.plots import new_figure, save_figure

KINDS = (("right", "tab:blue"), ("wrong", "tab:red"), ("out of scope", "tab:orange"))
LINES = ("precision", "answered", "correct", "false_accepts")


def plot_calibrations(found: Mapping[str, Calibration], path: str | Path) -> None:
    """Plot the scores of each kind of query, and the rates by threshold, one row per index.

    Raises:
        ImportError: If matplotlib is missing.
    """
    figure = new_figure(9.5, 2.9 * len(found) + 0.3)
    axes = figure.subplots(len(found), 2, squeeze=False)
    for (name, calibration), (left, right) in zip(found.items(), axes, strict=True):
        _draw_scores(left, calibration)
        _draw_rates(right, calibration)
        left.set_title(f"{name}: scores", fontsize=9)
        right.set_title(f"{name}: what a threshold does", fontsize=9)
    axes[0, 0].legend(frameon=False, fontsize=8)
    axes[0, 1].legend(frameon=False, fontsize=8)
    save_figure(figure, path)


def _draw_scores(axis: Any, calibration: Calibration) -> None:
    low, high = calibration.scores.min(), calibration.scores.max()
    bins = np.linspace(low, high, 41)
    for kind, (name, color) in enumerate(KINDS):
        counts, _ = np.histogram(calibration.scores[calibration.kinds == kind], bins)
        if counts.sum():
            axis.stairs(counts / counts.sum(), bins, fill=True, alpha=0.5, color=color, label=name)
    axis.axvline(calibration.threshold, color="black", ls=":")
    axis.set(xlabel="score of the best answer (dotted: threshold)", ylabel="share")


def _draw_rates(axis: Any, calibration: Calibration) -> None:
    cuts = np.linspace(calibration.scores.min(), calibration.scores.max(), 101)
    rates = [calibration.at(cut) for cut in cuts]
    for name in LINES:
        values = [getattr(each, name).value for each in rates]
        axis.plot(cuts, values, label=name.replace("_", " "))
    axis.axvline(calibration.threshold, color="black", ls=":")
    axis.set(xlabel="threshold", ylabel="rate", ylim=(-0.02, 1.02))
