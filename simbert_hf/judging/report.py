"""Reports of what :mod:`simbert_hf.judging.evaluation` measured: a table, samples, JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from simbert_hf.evaluation.report import layout
from simbert_hf.judging.evaluation import EXCHANGED, RANDOM, Figures, HeldOut, Scores, System
from simbert_hf.judging.judge import KIN, Judge
from simbert_hf.judging.metrics import signature, tokenizer_for

# Figure -> its heading and format: shares from 0 to 1, BLEU and its like from 0 to 100.
COLUMNS = {
    "name": ("paraphrases by", "s"),
    "candidates": ("candidates", ".1f"),
    "accepted_1": ("accepted of 1", ".2f"),
    "accepted_k": ("accepted of {k}", ".2f"),
    "new_k": ("and new", ".2f"),
    "copies": ("copies", ".2f"),
    "repeats": ("repeats", ".2f"),
    "source_bleu": ("BLEU with source", ".1f"),
    "bleu": ("BLEU", ".1f"),
    "ibleu": ("iBLEU", ".1f"),
    "chrf": ("chrF", ".1f"),
    "self_bleu": ("self-BLEU", ".1f"),
    "distinct_1": ("distinct-1", ".2f"),
    "distinct_2": ("distinct-2", ".2f"),
    "perplexity": ("perplexity", ".1f"),
    "kinship": ("kinship", ".2f"),
}
LEGEND = """\
Repeats: share of candidates that have a word of four letters or more (in Chinese, two characters)
more often than the source, and than once, or any word directly again. BLEU, iBLEU and chrF: of the
best candidate, with the references. Self-BLEU, distinct-n: of all candidates. Perplexity: of the
references.
"""
JUDGED = """\
Accepted of k: share of the k best candidates that the judge accepts, a missing one counting as
refused, with its 95 % bootstrap interval over the sources; and new: of the k best, those accepted
that are neither a copy of the source nor a repetition. Kinship: mean cosine of the model's and the
judge's word embeddings, above .5 if they share an ancestor; unknown of what others wrote.
"""
CONTROL_LIMIT = 0.1  # of the controls that should not pass


def markdown_table(rows: Sequence[Figures], k: int) -> str:
    """Lay out figures as a Markdown table, one row per system, without empty columns."""
    columns = {
        name: column
        for name, column in COLUMNS.items()
        if any(row.get(name) is not None for row in rows)
    }
    heads = [head.format(k=k) for head, _ in columns.values()]
    lines = [[cell(row.get(name), form) for name, (_, form) in columns.items()] for row in rows]
    return layout(heads, lines, left=(0,))


def cell(value: Any, form: str) -> str:
    """Format a figure for a table.

    Example:
        >>> cell({"share": 0.51, "low": 0.4, "high": 0.6}, ".2f"), cell(0.25, ".2f"), cell(None, "")
        ('.51 [.40, .60]', '.25', '')
    """
    if isinstance(value, dict):
        middle, low, high = (cell(value[name], form) for name in ("share", "low", "high"))
        return f"{middle} [{low}, {high}]"
    if isinstance(value, str):
        return value
    return "" if value is None else f"{value:{form}}".removeprefix("0" if form == ".2f" else "")


def caption(
    judge: Judge | None, rows: Sequence[Figures], data: HeldOut, related_models: Mapping[str, float]
) -> str:
    """Describe what was paraphrased, which judge was used, and how far it can be trusted."""
    lines = [f"Sources: {data.origin}.", ""]
    lines += judged_by(told(judge), rows, related_models)
    return "\n".join([*lines, "", legend(told(judge))])


def legend(judge: Mapping[str, Any] | None) -> str:
    """Explain the columns of a table, including a judge's if there was one."""
    return JUDGED + LEGEND if judge else LEGEND


def told(judge: Judge | None) -> dict[str, Any] | None:
    """Return a judge's threshold and record, as reports keep them; None without one."""
    return {"threshold": judge.threshold, **judge.record} if judge else None


def judged_by(
    judge: Mapping[str, Any] | None, rows: Sequence[Figures], related_models: Mapping[str, float]
) -> list[str]:
    """List a judge's own figures, and each reason to doubt it.

    Args:
        judge: What :func:`told` returns.
        rows: Figures of all systems.
        related_models: Kinship with the judge of the base models and teachers of what is judged.
    """
    if judge is None:
        return ["No judge was used."]
    start = judge.get("start", {}).get("name", "an unknown model")
    accepts = judge["threshold"]
    lines = [f"Judge: a cross-encoder made from {start}; it accepts from {accepts} on.", ""]
    for name, figures in judge.get("figures", {}).items():
        lines.append(
            f"- {name}: {figures['pairs']} pairs, AUC {figures['auc']:.3f}; accepts "
            f"{figures['accepted']:.1%} of the paraphrases, {figures['false_accepts']:.1%} of the "
            "others."
        )
    for name, found in related_models.items():
        caution = "CAUTION: it is related to what it judges, by its" if found > KIN else "its"
        lines.append(f"- {caution} kinship with {name}: {cell(found, '.2f')}.")
    for row in rows:
        passed = row["accepted_1"]["share"] if row["name"] in (EXCHANGED, RANDOM) else 0.0
        if passed > CONTROL_LIMIT:
            lines.append(
                f"- CAUTION: it accepts {passed:.0%} of the control row {row['name']!r}, so read "
                "its acceptance of models against that, or train a better judge."
            )
    return lines


def samples_page(
    systems: Sequence[System],
    scores: Sequence[Scores | None],
    threshold: float | None,
    data: HeldOut,
    count: int,
) -> str:
    """Show the first sources with every model's candidates, in the order drawn, not selected."""
    lines = [f"## The first {min(count, len(data.sources))} sources, good and bad alike", ""]
    for i, source in enumerate(data.sources[:count]):
        lines += [f"### {i + 1}. {escape(source)}", ""]
        lines += [f"- people: {escape(text)}" for text in data.references[i]]
        for system, judged in zip(systems, scores, strict=True):
            if system.control:
                continue
            lines += ["", f"{escape(system.name)}:", ""]
            for j, text in enumerate(system.candidates[i]):
                marks = []
                if judged is not None and threshold is not None:
                    verdict = "accepted" if judged[i][j] >= threshold else "**refused**"
                    marks.append(f"{verdict} {judged[i][j]:.2f}")
                if system.similarities:
                    marks.append(f"cosine {system.similarities[i][j]:.2f}")
                told_of = f" ({', '.join(marks)})" if marks else ""
                lines.append(f"{j + 1}. {escape(text)}{told_of}")
        lines.append("")
    return "\n".join(lines)


def as_json(
    judge: Judge | None,
    settings: dict[str, Any],
    data: HeldOut,
    systems: Sequence[System],
    scores: Sequence[Scores | None],
    rows: Sequence[Figures],
    related_models: Mapping[str, float],
) -> str:
    """Return all paraphrases, scores and figures as JSON.

    Raises:
        ValueError: If a figure is not finite, which JSON does not support.
    """
    samples = [
        {
            "text": source,
            "references": data.references[i],
            "paraphrases": {
                system.name: [
                    (text, judged[i][j] if judged else None)
                    for j, text in enumerate(system.candidates[i])
                ]
                for system, judged in zip(systems, scores, strict=True)
            },
        }
        for i, source in enumerate(data.sources)
    ]
    found = {
        "settings": settings,
        "judge": told(judge),
        "related_models": related_models,
        "sources": data.origin,
        "bleu": signature(data.references, tokenizer_for(data.sources)),
        "rows": rows,
        "samples": samples,
    }
    text = json.dumps(found, indent=2, ensure_ascii=False, default=str, allow_nan=False)
    return f"{text}\n"


def escape(text: str) -> str:
    r"""Escape what Markdown would interpret in a sentence.

    Example:
        >>> escape("2 * 3 | <b>")
        '2 \\* 3 \\| \\<b\\>'
    """
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(text.split()))
