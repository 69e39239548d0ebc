"""Report results as a Markdown table, plots, and a model card's metadata."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from huggingface_hub import EvalResult

from simbert_hf.evaluation.bootstrap import LEVEL, compare
from simbert_hf.evaluation.plots import plot_curves, plot_geometry, plot_histograms
from simbert_hf.evaluation.results import Results, TaskResult
from simbert_hf.evaluation.sts import AVERAGE
from simbert_hf.utils.atomic import write_text

logger = logging.getLogger(__name__)

TITLES = {
    "spearman": "Spearman",
    "pearson": "Pearson",
    "auc": "AUC",
    "ap": "AP",
    "accuracy": "accuracy",
    "f1": "F1",
    "top1": "top-1",
    "top5": "top-5",
    "top10": "top-10",
    "mrr": "MRR",
    "map": "MAP",
    "alignment": "alignment",
    "uniformity": "uniformity",
}
UNSCALED = ("alignment", "uniformity")  # printed as they are; the others times 100

# Task and metrics of a model card, named as sentence-transformers names its own evaluators'.
CARD_TASKS = {
    "sts": ("semantic-similarity", "Semantic Similarity"),
    "pairs": ("binary-classification", "Binary Classification"),
    "retrieval": ("information-retrieval", "Information Retrieval"),
}
CARD_METRICS = {
    "spearman": "spearman_cosine",
    "pearson": "pearson_cosine",
    "auc": "cosine_auc",
    "ap": "cosine_ap",
    "accuracy": "cosine_accuracy",
    "f1": "cosine_f1",
    "top1": "cosine_accuracy@1",
    "top5": "cosine_accuracy@5",
    "top10": "cosine_accuracy@10",
    "mrr": "cosine_mrr",
    "map": "cosine_map",
}


def write_report(results: Results, output_dir: str | Path) -> str:
    """Write ``table.md`` and, with matplotlib, the plots into an existing directory.

    Returns:
        The table.

    Raises:
        OSError: If something cannot be written; then the table is logged.
    """
    folder = Path(output_dir)
    table = make_table(results)
    try:
        _plot(results, folder)
        write_text(folder / "table.md", table)
    except OSError:
        logger.warning("%s", table)
        raise
    return table


def _plot(results: Results, folder: Path) -> None:
    plots = {"histograms": plot_histograms, "curves": plot_curves, "geometry": plot_geometry}
    for name in plots:  # of other results
        (folder / f"{name}.png").unlink(missing_ok=True)
    try:
        for name, plot in plots.items():
            plot(results, folder / f"{name}.png")
    except ImportError as error:
        logger.warning("no plots: %s", error)


# Table ------------------------------------------------------------------------------------------


def make_table(results: Results) -> str:
    """Lay out all figures as Markdown, one per row, then the same for single files."""
    parts = {
        model: {
            f"{name} {part}": result
            for name, task in tasks.items()
            for part, result in task.parts.items()
        }
        for model, tasks in results.models.items()
    }
    blocks = [_table(results.models), _legend(results)]
    if any(parts.values()):
        blocks.append(f"Single files:\n\n{_table(parts)}")
    return "\n\n".join(blocks) + "\n"


def _table(models: Mapping[str, Mapping[str, TaskResult]]) -> str:
    first, *others = models
    header = ["test set", "n", "figure", first]
    for name in others:
        header += [name, f"{name} - {first}", "p"]
    return layout(header, list(_rows(models)))


def _rows(models: Mapping[str, Mapping[str, TaskResult]]) -> Iterator[list[str]]:
    first, *others = models.values()
    for name, task in first.items():
        for metric, figure in task.figures.items():
            row = [title(name, task.lacks), f"{task.size:,}", TITLES[metric], _cell(metric, task)]
            for tasks in others:
                other = tasks[name]
                against = compare(other.figures[metric], figure)
                scale, digits = (1, 3) if metric in UNSCALED else (100, 2)
                row += [_cell(metric, other), f"{scale * against.difference:+.{digits}f}"]
                row.append("" if against.p_value is None else p_cell(against.p_value))
            yield row


def layout(
    header: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0, 2)
) -> str:
    r"""Align cells in Markdown: the columns ``left`` to the left, the others to the right.

    Example:
        >>> print(layout(["set", "n"], [["a|b", "2"]]))
        | set  |  n |
        | :--- | -: |
        | a\|b |  2 |
    """
    header, *rows = ([cell.replace("|", "\\|") for cell in cells] for cells in (header, *rows))
    widths = [max(2, *map(len, column)) for column in zip(header, *rows, strict=True)]
    rule = [
        f":{'-' * (width - 1)}" if i in left else f"{'-' * (width - 1)}:"
        for i, width in enumerate(widths)
    ]
    lines = []
    for cells in (header, rule, *rows):
        placed = (
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        lines.append(f"| {' | '.join(placed)} |")
    return "\n".join(lines)


def title(name: str, lacks: Sequence[str]) -> str:
    """Name a test set, and what it lacks.

    Example:
        >>> title("STS12", ["MSRvid"])
        'STS12 without MSRvid'
    """
    return f"{name} without {', '.join(lacks)}" if lacks else name


def _cell(metric: str, task: TaskResult) -> str:
    text = figure_cell(metric, task.figures[metric].value, task.figures[metric].interval)
    threshold = task.facts.get(f"{metric}_threshold")
    return text if threshold is None else f"{text} at {threshold:.3f}"


def figure_cell(metric: str, value: float, interval: Sequence[float] | None) -> str:
    """Write a figure and its interval.

    Example:
        >>> figure_cell("spearman", 0.8203, (0.8, 0.84)), figure_cell("uniformity", -2.5, None)
        ('82.03 [80.0, 84.0]', '-2.500')
    """
    if metric in UNSCALED:
        return f"{value:.3f}"
    text = f"{100 * value:.2f}"
    if interval is None:
        return text
    low, high = interval
    return f"{text} [{100 * low:.1f}, {100 * high:.1f}]"


def p_cell(p_value: float) -> str:
    """Write a p-value, which is never 0: of one below .001, its first digit.

    Example:
        >>> p_cell(0.0319), p_cell(2 / 10_001)
        ('0.032', '0.0002')
    """
    return f"{p_value:.3f}" if p_value >= 0.001 else f"{p_value:.1g}"


def _legend(results: Results) -> str:
    resamples = int(results.settings.get("bootstrap", 0))
    lines = ["All figures but alignment and uniformity are times 100."]
    if resamples:
        lines.append(
            f"Brackets: {LEVEL:.0%} percentile intervals, {resamples} bootstrap resamples of pairs "
            "(of groups, for retrieval)."
        )
        if len(results.models) > 1:
            lines.append(
                f"p: two-sided paired bootstrap test against {next(iter(results.models))}, at "
                f"least {p_cell(2 / (resamples + 1))}, not corrected for several rows."
            )
    if any("accuracy_threshold" in task.facts for task in results.baseline.values()):
        lines.append("Thresholds (at ...) were chosen on the dev file.")
    return "\n".join(lines)


# Model card -------------------------------------------------------------------------------------


def card_results(tasks: Mapping[str, TaskResult]) -> list[EvalResult]:
    """Convert a model's results for its model card, without averages, single files and NaN.

    Example:
        >>> from simbert_hf.evaluation.bootstrap import Figure
        >>> task = TaskResult("sts", 1379, {"spearman": Figure(0.82031)})
        >>> found = card_results({"STS-B": task})[0]
        >>> found.dataset_name, found.metric_type, found.metric_value
        ('STS-B', 'spearman_cosine', 0.8203)
    """
    found = []
    for name, task in tasks.items():
        if name == AVERAGE:
            continue
        task_type, task_name = CARD_TASKS[task.kind]
        for metric, figure in task.figures.items():
            if metric not in CARD_METRICS or math.isnan(figure.value):
                continue
            found.append(
                EvalResult(
                    task_type=task_type,
                    task_name=task_name,
                    dataset_type=name.lower().replace(" ", "-"),
                    dataset_name=title(name, task.lacks),
                    metric_type=CARD_METRICS[metric],
                    metric_name=TITLES[metric],
                    metric_value=round(figure.value, 4),
                )
            )
    return found
