"""One evaluation from flags to report, for ``scripts/evaluate.py`` and ``simbert evaluate``."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from simbert_hf.cards import add_results, read_card
from simbert_hf.evaluation.report import write_report
from simbert_hf.evaluation.results import Results
from simbert_hf.evaluation.suite import EvaluationArguments, evaluate, load_tasks
from simbert_hf.utils.parsing import parse_arguments

RESULTS = "results.json"


def run_evaluation(argv: Sequence[str] | None) -> tuple[Results, str]:
    """Measure the models that the flags name, and write the report.

    Args:
        argv: Flags of ``EvaluationArguments``; the command line's if None.

    Returns:
        What was measured, and its table as text.

    Raises:
        DataError: If a file or a model's card cannot be read, or a model gives no vector.
        OSError: If the output directory cannot be made.
    """
    (args,) = parse_arguments((EvaluationArguments,), argv)
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    log = logging.getLogger("simbert_hf")
    log.setLevel(logging.INFO)
    name, path = next(iter(args.model_paths().items()))  # what it is compared with is not ours
    if args.write_card:
        read_card(path)
    tasks, folder = load_tasks(args), Path(args.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    # A model that cannot be measured costs none of those before it.
    results = evaluate(args, tasks, lambda found: found.save(folder / RESULTS))
    table = write_report(results, folder)
    if args.write_card:
        log.info("figures added to %s", add_results(path, name, results.models[name]))
    return results, table
