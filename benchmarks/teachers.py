"""Measure the combined similarities of several teachers, as training distills them.

python -m benchmarks.teachers --models mpnet=DIR me5=DIR L3=DIR --mixtures mpnet me5,L3 me5,me5,L3 \
    --unrelated en_sentences.txt.xz --sts dev=stsb-en-dev.csv test=stsb-en-test.csv \
    --retrieval Banking77=banking77/test.csv

A model that occurs twice in a mixture counts twice. The mixture is chosen on dev.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from benchmarks.reports import ReportParser
from simbert_hf.data import load_sentences
from simbert_hf.encoders.loader import load_sentence_transformer
from simbert_hf.evaluation.bootstrap import Bootstrap
from simbert_hf.evaluation.geometry import mean_pairwise_cosine
from simbert_hf.evaluation.report import make_table
from simbert_hf.evaluation.results import Embed, Results
from simbert_hf.evaluation.suite import EvaluationArguments, embed_once, load_tasks
from simbert_hf.pooling import normalize
from simbert_hf.utils.arrays import Vectors


def together(parts: dict[str, tuple[Embed, float]], mixture: str) -> Embed:
    """Make vectors whose cosines rank as ``Teacher``'s similarities do.

    Those are a constant plus the sum of k c / (1 - m) over the models, c being a model's cosine, m
    its mean over unrelated sentences, and k how often it counts: so are the cosines of the models'
    unit vectors, each times the root of k / (1 - m), put side by side.

    Args:
        parts: Each model's unit vectors, and m.
        mixture: Names of models, with commas.

    Returns:
        Sentences ``->`` unit vectors: (N, sum of D).
    """
    counts = Counter(mixture.split(","))

    def embed(texts: Sequence[str]) -> Vectors:
        scaled = [
            parts[name][0](texts) * np.sqrt(count / (1 - parts[name][1]))
            for name, count in counts.items()
        ]
        joined = np.concatenate(scaled, axis=1)
        return joined / np.linalg.norm(joined, axis=1, keepdims=True)

    return embed


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = ReportParser(__doc__, "teachers")
    for flag in ("models", "mixtures", "sts", "retrieval"):
        parser.add_argument(f"--{flag}", nargs="+", required=True)
    parser.add_argument("--unrelated", required=True, help="Sentences; the first 1,000 are used.")
    given = parser.parse_args()
    args = EvaluationArguments(models=given.models, sts=given.sts, retrieval=given.retrieval)
    tasks = load_tasks(args)
    unrelated = load_sentences(given.unrelated)[:1000]
    parts = {}
    for name, path in args.model_paths().items():
        model = load_sentence_transformer(path)
        apart = mean_pairwise_cosine(
            normalize(model.encode(unrelated, convert_to_tensor=True)).cpu().numpy()
        )
        parts[name] = embed_once(model, tasks, None, args.batch_size), apart
    bootstrap = Bootstrap(args.bootstrap, args.seed)
    measured = {}
    for mixture in given.mixtures:
        embed = together(parts, mixture)
        measured[mixture] = {task.name: task.measure(embed, bootstrap) for task in tasks}
    results = Results(measured, {"means": {name: mean for name, (_, mean) in parts.items()}})
    print(make_table(results))
    results.save(given.output)


if __name__ == "__main__":
    main()
