"""One evaluation from flags to report, for ``scripts/evaluate.py`` and ``simbert evaluate``."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from simbert_hf.arguments import parse_arguments
from simbert_hf.cards import add_results
from simbert_hf.evaluation.report import write_report
from simbert_hf.evaluation.results import Results
from simbert_hf.evaluation.suite import EvaluationArguments, evaluate, load_tasks


def run_evaluation(argv: Sequence[str] | None) -> tuple[EvaluationArguments, Results, str]:
    """Measure the models that the flags name, and write the report.

    Args:
        argv: Flags of ``EvaluationArguments``; the command line's if None.

    Returns:
        The arguments, what was measured, and its table as text.
    """
    (args,) = parse_arguments((EvaluationArguments,), argv, presets={})
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    log = logging.getLogger("simbert_hf")
    log.setLevel(logging.INFO)
    results = evaluate(args, load_tasks(args))
    table = write_report(results, args.output_dir)
    for name, path in args.model_paths().items() if args.write_card else ():
        log.info("figures added to %s", add_results(path, name, results.models[name]))
    return args, results, table
