"""Run an evaluation from flags to report, for ``scripts/evaluate.py`` and ``simbert evaluate``."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from simbert_hf.cards import add_results, read_card
from simbert_hf.evaluation.report import write_report
from simbert_hf.evaluation.results import Results
from simbert_hf.evaluation.suite import EvaluationArguments, evaluate, load_tasks
from simbert_hf.utils.atomic import check_writable
from simbert_hf.utils.parsing import parse_arguments

RESULTS = "results.json"


def run_evaluation(argv: Sequence[str] | None) -> tuple[Results, str]:
    """Measure the models that the flags name, and write the report.

    Args:
        argv: Flags of ``EvaluationArguments``; those of the command line if None.

    Returns:
        The results, and their table as text.

    Raises:
        DataError: If a file or a model's card cannot be read, or a vector is zero or not finite.
        OSError: If the output directory cannot be created.
    """
    (args,) = parse_arguments((EvaluationArguments,), argv)
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    log = logging.getLogger("simbert_hf")
    log.setLevel(logging.INFO)
    name, path = next(iter(args.model_paths().items()))  # only the first model's card is written
    if args.write_card:
        read_card(path)
    folder = Path(args.output_dir)
    check_writable(folder / RESULTS)
    tasks = load_tasks(args)
    folder.mkdir(parents=True, exist_ok=True)
    # Saved after each model, so that one that fails does not lose the results before it.
    results = evaluate(args, tasks, lambda found: found.save(folder / RESULTS))
    table = write_report(results, folder)
    if args.write_card:
        log.info("figures added to %s", add_results(path, name, results.models[name]))
    return results, table
