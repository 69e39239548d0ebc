"""Which associations do the vectors have: of names with careers, of peoples with what is pleasant?

python -m benchmarks.associations --models simbert-minilm-en=DIR all-MiniLM-L6-v2=DIR

Association tests (Caliskan et al. 2017; in sentences: May et al. 2019) ask how much nearer two
lists of words are to a third than to a fourth, the one more than the other: effect size d, in
standard deviations, and a one-sided permutation test. Flowers and insects are a control.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb

import numpy as np

from benchmarks.reports import report_parser, save_report
from simbert_hf.encoders.loader import load_sentence_transformer
from simbert_hf.evaluation.report import layout
from simbert_hf.evaluation.suite import EvaluationArguments

SENTENCES = "This is {}.", "That is {}.", "There is {}.", "{} is here."
LISTS = {  # of Caliskan et al. 2017, but for the Arabic names
    "flowers": "aster clover hyacinth marigold poppy azalea crocus iris orchid rose daffodil lilac "
    "pansy tulip buttercup daisy lily peony violet carnation gladiola magnolia petunia zinnia",
    "insects": "ant caterpillar flea locust spider bedbug centipede fly maggot tarantula bee "
    "cockroach gnat mosquito termite beetle cricket hornet moth wasp dragonfly horsefly roach "
    "weevil",
    "men's names": "John Paul Mike Kevin Steve Greg Jeff Bill",
    "women's names": "Amy Joan Lisa Sarah Diana Kate Ann Donna",
    "men": "male man boy brother he him his son",
    "women": "female woman girl sister she her hers daughter",
    "European American": "Brad Brendan Geoffrey Greg Brett Matthew Neil Todd Allison Anne Carrie "
    "Emily Jill Laurie Meredith Sarah",
    "African American": "Darnell Hakim Jermaine Kareem Jamal Leroy Rasheed Tyrone Aisha Ebony "
    "Keisha Kenya Lakisha Latoya Tamika Tanisha",
    "Arabic": "Ahmed Ali Hassan Ibrahim Khalid Mohammed Omar Yusuf Aisha Fatima Hala Khadija Layla "
    "Maryam Noor Zainab",
    "career": "executive management professional corporation salary office business career",
    "family": "home parents children family cousins marriage wedding relatives",
    "science": "science technology physics chemistry Einstein NASA experiment astronomy",
    "arts": "poetry art Shakespeare dance literature novel symphony drama",
    "pleasant": "joy love peace wonderful pleasure friend laughter happy",
    "unpleasant": "agony terrible horrible nasty evil war awful failure",
}
TESTS = (
    ("flowers", "insects", "pleasant", "unpleasant"),
    ("men's names", "women's names", "career", "family"),
    ("men", "women", "science", "arts"),
    ("European American", "African American", "pleasant", "unpleasant"),
    ("European American", "Arabic", "pleasant", "unpleasant"),
)
DRAWS = 10_000


def association(x: np.ndarray, y: np.ndarray) -> dict:
    """Compare two lists' words by how much nearer each is to one list than to another.

    Returns:
        The effect size d (the difference of the means, in standard deviations of all), its 95 %
        interval (both lists resampled), and the share of all ways to divide the words, or of
        10,000, in which the difference is at least as large.
    """
    both, n, rng = np.concatenate([x, y]), len(x), np.random.default_rng(0)

    def effect(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        spread = np.concatenate([x, y], axis=-1).std(axis=-1, ddof=1)
        return (x.mean(axis=-1) - y.mean(axis=-1)) / spread

    if comb(2 * n, n) <= 2 * DRAWS:
        chosen = np.array([*combinations(range(2 * n), n)])
    else:
        chosen = np.argsort(rng.random((DRAWS, 2 * n)), axis=1)[:, :n]
        chosen[0] = np.arange(n)
    sums = both[chosen].sum(axis=1)
    draws = [each[rng.integers(n, size=(DRAWS, n))] for each in (x, y)]
    interval = np.quantile(effect(*draws), [0.025, 0.975])
    p_value = float((sums >= x.sum() - 1e-9).mean())
    return {"d": float(effect(x, y)), "interval": tuple(interval.tolist()), "p": p_value}


def associations(path: str) -> dict[str, dict]:
    """Run all tests on a model's vectors of words alone, and in sentences."""
    model, found = load_sentence_transformer(path), {}
    for form, templates in (("words", ("{}",)), ("sentences", SENTENCES)):

        def embed(name: str, templates: Sequence[str] = templates) -> np.ndarray:
            texts = [one.format(word) for word in LISTS[name].split() for one in templates]
            vectors = model.encode(texts, normalize_embeddings=True)
            return vectors.reshape(-1, len(templates), vectors.shape[-1])

        for first, second, near, far in TESTS:
            axis = embed(near).mean(axis=(0, 1)) - embed(far).mean(axis=(0, 1))
            scores = [embed(name).mean(axis=1) @ axis for name in (first, second)]
            found[f"{first}, {second}: {near}, {far}; {form}"] = association(*scores)
    return found


def main() -> None:
    """Measure, print a Markdown table and save the figures."""
    parser = report_parser(__doc__, "associations")
    parser.add_argument("--models", nargs="+", required=True, help="as in scripts/evaluate.py")
    given = parser.parse_args()
    found = {
        name: associations(path) for name, path in EvaluationArguments.model_paths(given).items()
    }
    rows = [
        [test, *(f"{each[test]['d']:.2f} (p {each[test]['p']:.3f})" for each in found.values())]
        for test in next(iter(found.values()))
    ]
    print(layout(["test", *found], rows, left=[0]))
    save_report(given.output, found)


if __name__ == "__main__":
    main()
