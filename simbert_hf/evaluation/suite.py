"""Load models and test sets by name, measure every model on every set, and write the report."""

from __future__ import annotations

import logging
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer
from sentence_transformers import __version__ as sentence_transformers_version

from simbert_hf import __version__
from simbert_hf.cards import add_results, read_card
from simbert_hf.data.groups import HUB_ID
from simbert_hf.data.scored import check_columns
from simbert_hf.encoders.loader import load_sentence_transformer
from simbert_hf.encoders.text_encoder import TextEncoder
from simbert_hf.encoders.vectorfiles import encoded
from simbert_hf.evaluation.bootstrap import Bootstrap
from simbert_hf.evaluation.pairs import PairTask, load_pair_task
from simbert_hf.evaluation.report import write_report
from simbert_hf.evaluation.results import Embed, Results, TaskResult
from simbert_hf.evaluation.retrieval import RetrievalTask, load_retrieval_task
from simbert_hf.evaluation.sts import AVERAGE, StsTask, average, load_sts_tasks
from simbert_hf.modeling.loading import model_name, resolve_name
from simbert_hf.utils.atomic import check_writable
from simbert_hf.utils.parsing import flag, parse_arguments
from simbert_hf.utils.textfiles import TABLES, fault, shorten, suffix_of

logger = logging.getLogger(__name__)

RESULTS = "results.json"

Task = StsTask | PairTask | RetrievalTask


@dataclass
class EvaluationArguments:
    """Models and the test sets to measure them on. A file or model is a path, or NAME=path."""

    models: list[str] = flag(
        [],
        "[NAME=]directories or Hub ids of anything that SentenceTransformer loads; all others are "
        "compared with the first.",
    )
    prompts: list[str] | None = flag(
        None, "Text prepended to each sentence, one per model; the model's own if not given."
    )
    sts: list[str] = flag(
        [],
        "[NAME=]files or folders of scored pairs. Files of one NAME, or of one SemEval year, are "
        "measured as one. Use the names STS-B and SICK-R for sets that join the average.",
    )
    pairs: list[str] = flag(
        [],
        "[NAME=]DEV,TEST: files of labelled pairs, thresholds chosen on the first; or TEST alone, "
        "without accuracy and F1.",
    )
    retrieval: list[str] = flag([], "[NAME=]files of groups, or of sentences and their classes.")
    columns: list[str] | None = flag(
        None,
        "Columns of the two sentences and the score or label, if not the usual names; for "
        "--retrieval two, the class and the sentence.",
    )
    output_dir: str = flag("outputs/evaluation", "Directory for the table, JSON and plots.")
    bootstrap: int = flag(1000, "Resamples for intervals and p-values; 0 for none.")
    seed: int = flag(0, "Seed of the resamples.")
    batch_size: int = flag(64, "Sentences per forward pass.")
    write_card: bool = flag(False, "Add the figures to the README.md of the first model, a folder.")

    def __post_init__(self) -> None:
        if not self.models:
            raise ValueError("There are no models to measure; give --models.")
        if not (self.sts or self.pairs or self.retrieval):
            raise ValueError("There are no test sets; give --sts, --pairs or --retrieval.")
        if self.prompts and len(self.prompts) != len(self.models):
            raise ValueError(
                f"--prompts has {len(self.prompts)} texts for {len(self.models)} models; give one "
                'per model, "" for none.'
            )
        if self.columns and len(self.columns) not in (2, 3):
            raise ValueError(
                f"--columns {' '.join(self.columns)}: give three (both sentences and the score or "
                "label), or for --retrieval two (class and sentence)."
            )
        Bootstrap(self.bootstrap, self.seed)  # raises if there are too few resamples
        for i, path in enumerate(self.model_paths().values()):
            self._check_model(path, with_card=self.write_card and i == 0)

    def _check_model(self, path: str, with_card: bool) -> None:
        if Path(path).is_dir():
            return
        if with_card or not HUB_ID.fullmatch(path):
            raise ValueError(
                f"--models: {path} is not a directory; this process runs in {Path.cwd()}"
            )

    def model_paths(self) -> dict[str, str]:
        """Return the models' paths by name; raise a ValueError if two share a name."""
        named = [split_name(item) for item in self.models]
        paths = {name or model_name(path): resolve_name(path) for name, path in named}
        if len(paths) < len(named):
            raise ValueError(f"Two of the models {self.models} share a name; write NAME=path.")
        return paths


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
    logging.getLogger("simbert_hf").setLevel(logging.INFO)
    name, path = next(iter(args.model_paths().items()))  # only the first model's card is written
    if args.write_card:
        read_card(path)
    folder = Path(args.output_dir)
    check_writable(folder / RESULTS)
    tasks = load_tasks(args)
    folder.mkdir(parents=True, exist_ok=True)
    # Saved after each model, so that one that fails does not lose the results before it; a repeated
    # call measures their vectors again, but does not make them.
    vectors = folder / "vectors.parts"
    results = evaluate(args, tasks, lambda found: found.save(folder / RESULTS), vectors)
    table = write_report(results, folder)
    if args.write_card:
        logger.info("figures added to %s", add_results(path, name, results.models[name]))
    shutil.rmtree(vectors, ignore_errors=True)
    return results, table


def split_name(item: str) -> tuple[str | None, str]:
    """Split ``NAME=path``.

    Example:
        >>> split_name("STS-B=data/test.csv"), split_name("data/a=b.csv")
        (('STS-B', 'data/test.csv'), (None, 'data/a=b.csv'))
    """
    name, equals, path = item.partition("=")
    if not equals or {"/", os.sep} & {*name} or Path(item.partition(",")[0]).exists():
        return None, item
    return name, path


def load_tasks(args: EvaluationArguments) -> list[Task]:
    """Read all test sets.

    Raises:
        DataError: If a file cannot be read, or nothing can be measured on it.
        ValueError: If two sets share a name, or no file has the given columns.
    """
    columns: Sequence[str] = args.columns or ()
    of_groups: Sequence[str] = ()
    if args.retrieval and len(columns) == 2:
        columns, of_groups = (), columns
    sts = [(name, file) for name, path in map(split_name, args.sts) for file in files_of(path)]
    pairs = [(name, [*map(Path, paths.split(","))]) for name, paths in map(split_name, args.pairs)]
    for _, files in pairs:
        if len(files) > 2:
            raise ValueError(
                f"--pairs {','.join(map(str, files))}: give two files, DEV,TEST, or one."
            )
    check_columns(columns, [file for _, file in sts] + [file for _, some in pairs for file in some])
    tasks: list[Task] = [*load_sts_tasks(sts, columns)]
    for name, (*dev, test) in pairs:
        tasks.append(load_pair_task(name, test, dev[0] if dev else None, columns))
    for name, path in map(split_name, args.retrieval):
        tasks.append(load_retrieval_task(name, Path(path), of_groups))
    names = [task.name for task in tasks]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(
            f"Two test sets are named {', '.join(sorted(twice))}; give each its own NAME."
        )
    return tasks


def files_of(path: str) -> Iterator[Path]:
    """Yield a file, or the tables in a folder; raise a DataError if it holds none."""
    if not Path(path).is_dir():
        yield Path(path)
        return
    found = sorted(file for file in Path(path).iterdir() if suffix_of(file) in TABLES)
    if not found:
        raise fault(path, None, "holds no tables", f"Put {', '.join(TABLES)} files into it")
    yield from found


def evaluate(
    args: EvaluationArguments,
    tasks: Sequence[Task],
    after_each: Callable[[Results], object] = lambda results: None,
    folder: Path | None = None,
) -> Results:
    """Measure every model on every test set.

    Args:
        args: The models.
        tasks: The test sets.
        after_each: Is called with the results so far.
        folder: Where to keep vectors, for a repeated call after a kill.

    Raises:
        DataError: If a vector is zero or not finite; names its sentence.
    """
    bootstrap = Bootstrap(args.bootstrap, args.seed)
    versions = {"simbert_hf": __version__, "sentence_transformers": sentence_transformers_version}
    models: dict[str, dict[str, TaskResult]] = {}
    results = Results(models, asdict(args) | {"versions": versions})
    for i, (name, path) in enumerate(args.model_paths().items()):
        model = load_sentence_transformer(path)
        prompt = args.prompts[i] if args.prompts else None
        embed = embed_once(model, tasks, prompt, args.batch_size, folder and folder / name)
        logger.info("%s: measuring", name)
        models[name] = {task.name: task.measure(embed, bootstrap) for task in tasks}
        mean = average(models[name])
        if mean is not None:
            models[name][AVERAGE] = mean
        after_each(results)
        del model, embed  # before the next is loaded
    return results


def embed_once(
    model: SentenceTransformer,
    tasks: Sequence[Task],
    prompt: str | None,
    batch_size: int,
    place: Path | None = None,
) -> Embed:
    """Encode each distinct sentence of all test sets once, after the prompt, or the model's own.

    Vectors are kept beside ``place``, if given, and used if they are there.

    Returns:
        Sentences ``-> `` unit vectors: (N, D).

    Raises:
        DataError: If a vector is zero or not finite.
    """
    texts = list(dict.fromkeys(text for task in tasks for text in task.texts()))
    row = {text: i for i, text in enumerate(texts)}
    logger.info("encoding %d different sentences", len(row))
    encoder = TextEncoder(model, batch_size=batch_size, prompt=prompt)
    if foreign := encoder.unread(texts):
        logger.warning(
            "the model cannot read %d of %d sentences, such as %s: the figures are of little value",
            *(len(foreign), len(row), shorten(foreign[0])),
        )
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # of these sentences
        shown = logger.isEnabledFor(logging.INFO)
        if place is None:
            vectors = encoder(texts, show_progress_bar=shown)
        else:
            kept = encoded(texts, encoder, place, discard=True, keep=True, progress=shown)
            with kept as (files, _):
                vectors = np.concatenate([np.load(file) for file in files])
    return lambda texts: vectors[[row[text] for text in texts]]
