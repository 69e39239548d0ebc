"""Speed of generating paraphrases: this package, a cache-less loop, transformers' `generate()`.

    python -m benchmarks.generate --model PATH_OR_ID

All three run the same weights in one process, with top-k 5 and at most 32 new tokens, and return
n texts per source; the ranking that `gen_synonyms` adds is not timed. They take turns, and the best
round of each counts. The two peers take one source at a time: with many sources they are timed on
the first few, and the time is scaled. Prints a Markdown table; the JSON file holds the same numbers
and the environment.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.naive_port import NaiveGenerativeBert, generate_cached, generate_cacheless
from benchmarks.reports import DEVICE, ReportParser, environment, markdown, save_report, seconds
from simbert_hf import SimBert
from simbert_hf.generation.search import SearchSettings
from simbert_hf.generation.writing import Draft, write

SUBJECTS = (
    "reset my password",
    "open a new bank account",
    "find the nearest train station",
    "learn english in three months",
    "get a refund for my order",
    "change the language of my phone",
    "make good coffee at home",
    "sleep better when it is hot",
)
FRAMES = (
    "how can i {}?",
    "what is the best way to {}?",
    "please tell me how to {}.",
    "is it possible to {}?",
    "i want to {} but i don't know how.",
    "where can i {}?",
    "can you help me to {}?",
    "do you think it is hard to {}?",
)
TEXTS = [frame.format(subject) for subject in SUBJECTS for frame in FRAMES]  # 64
ROUNDS = 3
ENOUGH = 20.0  # seconds after which no round is begun
PEER_SOURCES = 2  # how many of many sources the peers are timed on


class Contest:
    """The three programs, on the same weights and device."""

    def __init__(self, name_or_path: str) -> None:
        """Load the weights twice: for the package and for the peers."""
        self.model = SimBert.from_pretrained(name_or_path).to(DEVICE)
        self.peer = NaiveGenerativeBert.from_pretrained(name_or_path).eval().to(DEVICE)

    def ours(
        self, texts: list[str], n: int, strategy: str = "sample", plain: bool = True
    ) -> list[list[Draft]]:
        """Generate n texts per source with this package, unranked, as its peers do."""
        settings = SearchSettings(
            n=n, strategy=strategy, copying=0 if plain else 1, repeats=plain, seed=0
        )
        return write(self.model, texts, settings)

    def peers(self, program: Callable[..., list[str]], texts: list[str], n: int) -> list[list[str]]:
        """Generate n texts per source with a peer, one source after the other."""
        return [program(self.peer, self.model.tokenizer, text, n) for text in texts]


def compare(contest: Contest, n: int, sources: int, with_cacheless: bool) -> dict[str, Any]:
    """Time the three programs on the first `sources` texts."""
    texts = TEXTS[:sources]
    timed_on = min(sources, PEER_SOURCES)
    programs: dict[str, Callable[[], Any]] = {
        "ours": lambda: contest.ours(texts, n),
        "default": lambda: contest.ours(texts, n, plain=False),  # it copies, and does not repeat
        "generate": lambda: contest.peers(generate_cached, texts[:timed_on], n),
    }
    if with_cacheless:
        programs["cacheless"] = lambda: contest.peers(generate_cacheless, texts[:timed_on], n)
    spent = {name: best for name, (best, _) in seconds(programs, ROUNDS, ENOUGH).items()}
    row = {"n": n, "sources": sources, "ours_s": spent["ours"]}
    for peer in [*spent][2:]:
        row[f"{peer}_s"] = spent[peer] * sources / timed_on
        row[f"times_{peer}"] = row[f"{peer}_s"] / spent["ours"]
    return row | {"default_costs": spent["default"] / spent["ours"]}


def compare_strategies(contest: Contest, n: int, sources: int) -> list[dict[str, Any]]:
    """Count the distinct sentences of each strategy, and measure its speed."""
    programs = {
        strategy: partial(contest.ours, TEXTS[:sources], n, strategy)
        for strategy in ("sample", "without_replacement", "beam")
    }
    return [
        {
            "strategy": strategy,
            "n": n,
            "sources": sources,
            "unique_per_source": (unique := sum(map(len, drafts))) / sources,
            "unique_per_second": unique / spent,
        }
        for strategy, (spent, drafts) in seconds(programs, ROUNDS, ENOUGH).items()
    ]


def main() -> None:
    """Run the benchmark."""
    parser = ReportParser(__doc__, "generate")
    parser.add_argument("--model", required=True, help="directory or Hub id, with an LM head")
    parser.add_argument("--threads", type=int, help="CPU threads; one gives steady ratios")
    parser.add_argument("--full", action="store_true", help="also run the slow combinations")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    contest = Contest(arguments.model)
    contest.ours(TEXTS[:1], 2)  # warm up
    grid = [(1, 1), (10, 1), (100, 1), (1000, 1), (1, 64), (10, 64), (100, 64)]
    grid += [(1000, 64)] * arguments.full
    speed = [compare(contest, n, s, n < 1000 or arguments.full) for n, s in grid]
    strategies = compare_strategies(contest, 100, 8)
    where = {"model": Path(arguments.model).name} | environment(DEVICE)
    print(f"{where}\n\n{markdown(speed)}\n\n{markdown(strategies)}")
    report = {"environment": where, "speed": speed, "strategies": strategies}
    save_report(arguments.output, report)


if __name__ == "__main__":
    main()
