"""Results of evaluations, as model cards show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simbert_hf.evaluation.bootstrap import Figure
from simbert_hf.evaluation.report import TITLES, figure_cell, layout, title
from simbert_hf.evaluation.results import TaskResult
from simbert_hf.utils.textfiles import DataError

SHOWN = 3  # samples of either kind


def evaluation_table(report: Mapping[str, Any], name: str) -> str:
    """Lay out the figures of ``results.json``, this model's first, with intervals."""
    models = {name: report["models"][name], **report["models"]}
    rows = []
    for test_set, task in models[name].items():
        for metric in task["figures"]:
            shown = [of[test_set]["figures"][metric] for of in models.values()]
            cells = [figure_cell(metric, each["value"], each["interval"]) for each in shown]
            label = title(test_set, task["lacks"])
            rows.append([label, f"{task['size']:,}", TITLES[metric], *cells])
    note = (
        "All figures but alignment and uniformity are times 100; brackets: 95 % intervals of "
        f"{report['settings']['bootstrap']} bootstrap resamples."
    )
    return f"{layout(['test set', 'n', 'figure', *models], rows)}\n\n{note}"


def read_tasks(tasks: Mapping[str, Any]) -> dict[str, TaskResult]:
    """Turn a model's part of ``results.json`` into results without resamples."""
    return {
        name: TaskResult(
            task["kind"],
            task["size"],
            {metric: Figure(figure["value"]) for metric, figure in task["figures"].items()},
            lacks=task["lacks"],
        )
        for name, task in tasks.items()
    }


def paraphrase_table(report: Mapping[str, Any], known: Mapping[str, Any] | None = None) -> str:
    """Lay out the figures of ``paraphrases.json`` with controls, and those of a judge not known."""
    from simbert_hf.judging.report import judged_by, markdown_table  # needs the extra `eval`

    table = markdown_table(report["rows"], report["settings"]["k"])
    judge = report["judge"]
    if judge and judge == known:
        judge = {**judge, "figures": {}}
    lines = judged_by(judge, report["rows"], report.get("related_models", {}))
    return "\n".join([table, "", f"Sources: {report['sources']}.", "", *lines])


def judged_samples(report: Mapping[str, Any], name: str) -> str:
    """Show the first best paraphrases that the judge accepts, and some that it refuses."""
    from simbert_hf.judging.report import cell, escape

    threshold = report["judge"]["threshold"] if report["judge"] else None
    kinds: dict[bool, list[str]] = {True: [], False: []}
    for sample in report["samples"]:
        for text, score in find(sample["paraphrases"], name, "the paraphrases")[:1]:
            scored = "" if threshold is None else f" ({cell(score, '.2f')})"
            line = f"- {escape(sample['text'])} -> {escape(text)}{scored}"
            kinds[threshold is None or score >= threshold].append(line)
    good, bad = (lines[:SHOWN] for lines in (kinds[True], kinds[False]))
    if threshold is None:
        return "\n".join(["The first best paraphrases, as they come:", "", *good])
    head = f"The first best paraphrases that the judge accepts (from {threshold:.2f} on):"
    tail = "and the first that it refuses:" if bad else "It refuses none of the best."
    return "\n".join([head, "", *good, "", tail, "", *bad]).strip()


def find(content: Mapping[str, Any], name: str, where: str) -> Any:
    """Return an entry; raise a DataError if there is none."""
    if name not in content:
        raise DataError(f"{where} has no {name!r}; give --row one of {', '.join(content)}.")
    return content[name]
