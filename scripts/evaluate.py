"""Evaluate sentence encoders: STS, labelled pairs, retrieval, alignment and uniformity.

python scripts/evaluate.py --models A=DIR_OR_ID B=DIR_OR_ID --sts STS-B=test.csv sts12_16/ \
    --pairs LCQMC=dev.tsv,test.tsv --retrieval intents.csv --output_dir out
(or: python scripts/evaluate.py config.yaml)

Vectors are kept in the folder until the table is there, so a repeated command goes on after a stop.
Any model that SentenceTransformer loads can be evaluated. For MTEB, this package's checkpoints work
like any other sentence-transformers model (pip install mteb):

    import mteb
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer("outputs/my_model")
    tasks = mteb.get_tasks(tasks=["STSBenchmark", "LCQMC"])
    print(mteb.evaluate(model, tasks).to_dataframe())
"""

from __future__ import annotations

from collections.abc import Sequence

from simbert_hf.evaluation.results import Results
from simbert_hf.evaluation.suite import run_evaluation
from simbert_hf.utils.script import run_script


def main(argv: Sequence[str] | None = None) -> Results:
    """Evaluate the models, write and print the report; return the results."""
    results, table = run_evaluation(argv)
    print(table)
    return results


if __name__ == "__main__":
    run_script(main)
