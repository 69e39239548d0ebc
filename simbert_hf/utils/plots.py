"""Plots, such as those of a training run; they need the extra ``eval`` (matplotlib)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simbert_hf.utils.atomic import make_room, whole
from simbert_hf.utils.extras import require


def new_figure(width: float, height: float) -> Any:
    """Make a figure, sized in inches; raise an ImportError if matplotlib is missing."""
    require("matplotlib", "eval")
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def check_picture(path: Path) -> None:
    """Raise an error unless matplotlib can write such a file there; make its folder.

    Raises:
        ImportError: If matplotlib is missing.
        PermissionError: If the file cannot be written.
        ValueError: If the extension is not an image format.

    Example:
        >>> check_picture(Path("scores.svg"))
    """
    kinds = sorted(new_figure(1, 1).canvas.get_supported_filetypes())
    if path.suffix.removeprefix(".").lower() not in kinds:
        raise ValueError(f"{path} is not an image file: end it in .{', .'.join(kinds)}.")
    make_room(path)


def save_figure(figure: Any, path: str | Path) -> None:
    """Write a figure to a file whose extension says the format, or leave what is there."""
    with whole(Path(path)) as part:
        figure.savefig(part, dpi=110, format=Path(path).suffix.removeprefix(".") or "png")


def plot_training(log_history: Sequence[dict[str, Any]], path: str | Path) -> Path:
    """Plot both losses and the held-out retrieval over the steps of a training run.

    Args:
        log_history: ``trainer.state.log_history``, or the same from ``trainer_state.json``.
        path: Output file (.png, .svg, ...).

    Raises:
        ImportError: If matplotlib is missing.
    """
    figure = new_figure(10, 3.6)
    axes = figure.subplots(1, 3)
    for axis, name in zip(axes, ("seq2seq", "similarity"), strict=False):
        _draw(axis, log_history, name, "training", "-")
        _draw(axis, log_history, f"eval_{name}", "held-out groups", "o-")
        axis.set(title=f"{name} loss", xlabel="step", ylabel="nats", ylim=(0, None))
        axis.legend(frameon=False)
    for k in (1, 5, 10):
        _draw(axes[2], log_history, f"eval_top{k}", f"top-{k}", "o-")
    axes[2].set(title="held-out retrieval", xlabel="step", ylabel="share found")
    axes[2].legend(frameon=False)
    save_figure(figure, path)
    return Path(path)


def _draw(axis: Any, log: Sequence[dict[str, Any]], name: str, label: str, style: str) -> None:
    points = [(line["step"], line[name]) for line in log if name in line]
    if points:
        axis.plot(*zip(*points, strict=True), style, label=label, markersize=3)
