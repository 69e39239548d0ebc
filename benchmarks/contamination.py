"""How much of the test sets occurs in a released model's training texts, and what for.

python -m benchmarks.contamination --data DIR --models simbert-minilm-en=DIR all-MiniLM-L6-v2=DIR \
    --sts STS-B=stsb-en-test.csv sts12_16/ --retrieval Banking77=banking77/test.csv
(or: --language zh --models simbert-e5-zh=DIR --sts LCQMC=LCQMC-test.txt)

Equal texts have the same words, without case and punctuation. Near duplicates have a Jaccard index
of .8 or more of their character 4-grams; all are found, as two such sets share one of their rarest
members (prefix filtering, Bayardo et al. 2007). A run is eight words in a row. Chinese texts are
compared without spaces, by pairs of characters and runs of twelve. Then STS is measured without the
pairs, and top-1 without the questions (which may still be found), that have a near duplicate.
"""

from __future__ import annotations

import csv
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from benchmarks.group_data import SHIPPED, find_all
from benchmarks.reports import ReportParser, load_report, save_report, tested
from simbert_hf.encoders.loader import load_sentence_transformer
from simbert_hf.evaluation.bootstrap import Bootstrap, Figure
from simbert_hf.evaluation.report import layout
from simbert_hf.evaluation.results import Embed
from simbert_hf.evaluation.retrieval import RetrievalTask, rank_group_mates
from simbert_hf.evaluation.sts import AVERAGE, StsTask, average
from simbert_hf.evaluation.suite import EvaluationArguments, Task, embed_once, load_tasks
from simbert_hf.utils.text import HAN, HAN_CHAR, SPACE_BY_CJK, fold
from simbert_hf.utils.textfiles import read_lines, read_objects, suffix_of

ALIKE = 0.8
SIZES = {False: (4, 8), True: (2, 12)}  # of shingles and runs; whether a text is Chinese
WORD = re.compile(rf"[{HAN}]|[^\s{HAN}]+")
TRAINING = {  # by language; whole files: the stages read a part of most of them
    "en": {
        "pairs": ["tatoeba_en/pairs.jsonl.gz", "one_way_en/pairs.jsonl.gz"],
        "questions": ["questions_en/pairs.jsonl.gz", "clinc150/train.csv", "banking77/train.csv"],
        "written": [f"written_en/{x}.jsonl.gz" for x in ("collected", "invented", "invented_[23]")],
        "rated": ["preferences_en/preferences.jsonl.gz", "rated_en/ratings*.jsonl.gz"],
        "plain": ["wiki/en_sentences.txt.xz", "tatoeba/en_sentences.txt.xz"],
    },
    "zh": {
        "pairs": ["tatoeba/zh_synonyms.jsonl"],
        "written": ["written_zh/*.jsonl.gz"],
        "rated": ["rated_zh/*.jsonl.gz", "graded_zh/*.jsonl.gz"],
        "plain": ["wiki/zh_sentences.txt.xz", "tatoeba/zh_sentences.txt.xz"],
    },
}
TESTS = {
    "en": ["questions_en/test_questions.jsonl", "written_en/test.jsonl"],
    "zh": ["written_zh/test.jsonl"],
}
KINDS = ("equal", "near", "run")

Found = dict[str, dict[str, set[int]]]


def records(path: Path) -> Iterator[list[str]]:
    """Yield the texts that stand together in a file: of a line, or a table's first column."""
    if suffix_of(path) == ".csv":
        with path.open(encoding="utf-8", newline="") as file:
            yield from ([row[0]] for row in [*csv.reader(file)][1:])
    elif suffix_of(path) == ".txt":
        yield from ([line] for line in read_lines(path))
    else:
        for _, row in read_objects(path):
            lists = (value if isinstance(value, list) else [value] for value in row.values())
            yield [value for some in lists for value in some if isinstance(value, str)]


@lru_cache(maxsize=2**17)
def plain(text: str) -> str:
    """Fold a text, without its punctuation, and the spaces next to Chinese."""
    return SPACE_BY_CJK.sub("", " ".join(re.findall(r"\w+", re.sub("['’]", "", fold(text)))))


def sizes(text: str) -> tuple[int, int]:
    """Tell how many characters a text's shingles have, and how many words its runs."""
    return SIZES[bool(HAN_CHAR.search(text))]


def shingles(text: str) -> set[str]:
    """Find the character 4-grams of a plain text, or a Chinese one's pairs of characters."""
    text, (size, _) = f" {text} ", sizes(text)
    return {text[i : i + size] for i in range(max(1, len(text) - size + 1))}


def runs(text: str) -> list[str]:
    """List each eight words in a row of a plain text, or a Chinese one's twelve characters."""
    words, (_, size) = WORD.findall(text), sizes(text)
    return [" ".join(words[i : i + size]) for i in range(len(words) - size + 1)]


class Finder:
    """Finds plain texts, all different, that are equal to a given one or like it."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.number = {text: i for i, text in enumerate(texts)}
        self.sets = [shingles(text) for text in texts]
        common = Counter(shingle for some in self.sets for shingle in some)
        self.order = {shingle: i for i, (shingle, _) in enumerate(common.most_common()[::-1])}
        self.rare, self.runs = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
        for i, text in enumerate(texts):
            for shingle in self.rarest(self.sets[i]):
                self.rare[shingle].append(i)
            for run in runs(text):
                self.runs[run].append(i)

    def rarest(self, some: set[str]) -> list[str]:
        """List so many of a set's rarest members that each text like it has one of them."""
        known = some & self.order.keys()
        kept = len(known) - math.ceil(ALIKE * len(some)) + 1
        return sorted(known, key=self.order.__getitem__)[: max(0, kept)]

    def find(self, text: str) -> dict[str, set[int]]:
        """Find the numbers of the texts that a plain text equals, is like or shares a run with."""
        own = shingles(text)
        low, high = ALIKE * len(own), len(own) / ALIKE
        alike = {
            i
            for shingle in self.rarest(own)
            for i in self.rare.get(shingle, ())
            if low <= len(self.sets[i]) <= high
        }
        near = {i for i in alike if len(own & self.sets[i]) >= ALIKE * len(own | self.sets[i])}
        run = {i for some in runs(text) for i in self.runs.get(some, ())}
        equal = {self.number[text]} if text in self.number else set()
        found = {"equal": equal, "near": near, "run": run}
        return {kind: some for kind, some in found.items() if some}


def search(
    finder: Finder, data: Path, training: Mapping[str, Sequence[str]]
) -> tuple[Found, dict[int, set[tuple[str, int]]]]:
    """Find the texts in training: by source and kind, and the records of pairs that hold them."""
    found: Found = {source: {kind: set() for kind in KINDS} for source in training}
    places, find_text = defaultdict(set), lru_cache(maxsize=2**20)(finder.find)
    for source, patterns in training.items():
        for file in (file for pattern in patterns for file in find_all(data, pattern)):
            for line, record in enumerate(records(file)):
                for each in map(find_text, map(plain, record)):
                    for kind, numbers in each.items():
                        found[source][kind] |= numbers
                    for i in each.get("near", ()) if len(record) > 1 else ():
                        places[i].add((file.name, line))
    return found, places


class Sentences:
    """Distinct sentences and pairs of them, with what was found of each in training."""

    def __init__(
        self, texts: Sequence[str], pairs: Sequence[Sequence[str]], finder: Finder, found: Found
    ) -> None:
        self.pairs, self.found, self.finder = pairs, found, finder
        self.numbers = [finder.number[plain(text)] for text in texts]

    def has(self, text: str) -> bool:
        """Whether a near duplicate of a text of the set was found anywhere."""
        return any(self.finder.number[plain(text)] in some["near"] for some in self.found.values())

    def counts(self, places: Mapping[int, set[tuple[str, int]]]) -> dict[str, int]:
        """Count what was found: all together, by source, and on which sides of the pairs."""
        counts = {"sentences": len(self.numbers)}
        for kind in KINDS:
            parts = {f"{kind}, {source}": some[kind] for source, some in self.found.items()}
            for name, some in ({kind: set().union(*parts.values())} | parts).items():
                counts[name] = sum(i in some for i in self.numbers)
        sides = [[self.has(text) for text in pair] for pair in self.pairs]
        at = [[places.get(self.finder.number[plain(x)], set()) for x in p] for p in self.pairs]
        return counts | {
            "pairs": len(sides),
            "one side": sum(map(any, sides)),
            "both sides": sum(map(all, sides)),
            "both in one record": sum(bool(set.intersection(*some)) for some in at),
        }


def clean(task: StsTask, test: Sentences) -> StsTask:
    """Leave out the pairs with a near duplicate of either side in training."""
    kept = {
        path: [pair for pair in pairs if not (test.has(pair.first) or test.has(pair.second))]
        for path, pairs in task.files.items()
    }
    return StsTask(task.name, {path: pairs for path, pairs in kept.items() if pairs})


def top1(task: RetrievalTask, embed: Embed, asked: Sequence[bool]) -> Figure:
    """Measure how many of the sentences asked for find their group; groups are resampled."""
    hits = rank_group_mates(embed(task.sentences), task.groups).figures()["top1"]
    members = np.unique(task.groups, return_inverse=True)[1]
    right, all_of = np.bincount(members, hits * asked), np.bincount(members, asked)
    whole = {"top1": float(right.sum() / all_of.sum())}
    return Bootstrap().figures(
        task.name, len(all_of), whole, lambda counts: {"top1": counts @ right / (counts @ all_of)}
    )["top1"]


def measure(
    tasks: Sequence[Task], embed: Embed, tests: Mapping[str, Sentences], *, all_of: bool
) -> dict[str, Figure]:
    """Measure a model on all of the test sets, or without what was found in training."""
    found, sts = {}, {}
    for task in tasks:
        test = tests[task.name]
        if isinstance(task, RetrievalTask):
            asked = [all_of or not test.has(text) for text in task.sentences]
            found[task.name] = top1(task, embed, asked)
        else:
            sts[task.name] = (task if all_of else clean(task, test)).measure(embed, Bootstrap())
            found[task.name] = sts[task.name].figures["spearman"]
    mean = average(sts)
    return found | ({AVERAGE: mean.figures["spearman"]} if mean else {})


def paraphrase_tests(language: str) -> dict[str, list[list[str]]]:
    """Read the texts that are paraphrased, the first with their references."""
    results = sorted((Path(__file__).parent / "results").glob("reading*.json"))
    rows = [
        row
        for path in results
        if ("zh" in path.name) == (language == "zh")
        for row in load_report(path, 0)["rows"]
    ]
    files = [SHIPPED / name for name in TESTS[language]]
    return {f"{path.parent.name}/{path.stem}": [*records(path)] for path in files} | {
        "texts of the readings": [[text] for text in dict.fromkeys(row["text"] for row in rows)]
    }


def main() -> None:
    """Search, measure, print Markdown tables and save what was found."""
    parser = ReportParser(__doc__, "contamination", "language")
    parser.add_argument("--data", type=Path, required=True, help="folder of the training texts")
    parser.add_argument("--language", choices=TRAINING, default="en")
    parser.add_argument("--models", nargs="+", required=True, help="as in scripts/evaluate.py")
    for flag in ("prompts", "sts", "retrieval"):
        parser.add_argument(f"--{flag}", nargs="+", default=[], help="as in scripts/evaluate.py")
    given = parser.parse_args()
    args = EvaluationArguments(
        models=given.models, prompts=given.prompts, sts=given.sts, retrieval=given.retrieval
    )
    tasks = load_tasks(args)
    sets = {}
    for task in tasks:
        files = task.files.values() if isinstance(task, StsTask) else ()
        sets[task.name] = [*task.texts()], [pair[:2] for pairs in files for pair in pairs]
    for name, groups in paraphrase_tests(given.language).items():
        pairs = [(text, other) for text, *others in groups for other in others]
        sets[name] = [text for group in groups for text in group], pairs
    finder = Finder([*dict.fromkeys(plain(text) for some, _ in sets.values() for text in some)])
    found, places = search(finder, given.data, TRAINING[given.language])
    tests = {
        name: Sentences([*dict.fromkeys(texts)], pairs, finder, found)
        for name, (texts, pairs) in sets.items()
    }
    counts = {name: test.counts(places) for name, test in tests.items()}
    names = [name for name in next(iter(counts.values())) if "," not in name]
    print(
        layout(
            ["", *names],
            [[key, *(str(x[n]) for n in names)] for key, x in counts.items()],
            left=[0],
        )
    )
    figures: dict[str, dict[str, dict[str, Figure]]] = {"all": {}, "without": {}}
    for i, (name, path) in enumerate(args.model_paths().items()):
        prompt = args.prompts[i] if args.prompts else None
        embed = embed_once(load_sentence_transformer(path), tasks, prompt, args.batch_size)
        for part, rows in figures.items():
            rows[name] = measure(tasks, embed, tests, all_of=part == "all")
    shown = {(part, name): row for part, rows in figures.items() for name, row in rows.items()}
    heads = [f"{name}, {part}" for part, name in shown]
    lines = [
        [task, *(f"{100 * row[task].value:.2f}" for row in shown.values())]
        for task in next(iter(shown.values()))
    ]
    print(layout(["", *heads], lines, left=[0]))
    report = {"found": counts} | {part: tested(rows) for part, rows in figures.items()}
    save_report(given.output, report)


if __name__ == "__main__":
    main()
