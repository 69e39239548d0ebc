"""Write model cards: what a model is, how it was trained, and what was measured."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from safetensors import safe_open

from simbert_hf import CHINESE_MODEL, DEFAULT_MODEL
from simbert_hf.evaluation.bootstrap import Figure
from simbert_hf.evaluation.report import TITLES, card_results, figure_cell, layout, title
from simbert_hf.evaluation.results import TaskResult
from simbert_hf.modeling.loading import model_name
from simbert_hf.run_record import describe_run, read_recipe
from simbert_hf.utils.atomic import whole
from simbert_hf.utils.parsing import flag
from simbert_hf.utils.textfiles import DataError, fault, read_json

logger = logging.getLogger(__name__)

TEMPLATE = Path(__file__).with_name("card_template.md")
MARK = "<!-- Written by simbert_hf."
UNMEASURED = "Nothing was measured."
TAGS = ("sentence-similarity", "feature-extraction", "simbert")
LANGUAGE = re.compile(r"[a-z]{2,3}|multilingual|code")  # as the Hub accepts them
SHOWN = 3  # samples of either kind
LINE = 36  # characters of an example in code
LM_HEADS = ("cls.predictions.transform.dense.weight", "generator_predictions.dense.weight")


@dataclass
class CardArguments:
    """Contents of a model card. What the run itself recorded need not be given."""

    model: str = flag("", "Directory of the model.")
    output: str = flag("", "Card to write (default: the model's README.md).")
    repo_id: str = flag("", "Hub id to load it by (default: the directory's name).")
    language: list[str] = flag([], "ISO codes, such as en zh.")
    license: str = flag("", "Licence as the Hub names it, such as apache-2.0.")
    base_model: str = flag("", "Hub id of the base model (default: the run's).")
    datasets: list[str] = flag([], "Hub ids of the data.")
    data: str = flag("", "About the data: what, whose, which licences.")
    recipes: list[str] = flag(
        [], "YAML files it was trained with, in order, if there is no run.json."
    )
    limits: str = flag("", "What it cannot do, in Markdown.")
    evaluation: str = flag("", "results.json of scripts/evaluate.py.")
    paraphrases: str = flag("", "paraphrases.json of scripts/evaluate_paraphrases.py.")
    peers: str = flag("", "paraphrase_peers.json of benchmarks: a comparison of training methods.")
    row: str = flag("", "Name of the model in these files (default: the directory's).")


# What the card reads of each flag's JSON file, at the top level and in its settings.
REPORTS = {
    "evaluation": (("models",), ("bootstrap",)),
    "paraphrases": (("rows", "judge", "sources", "samples"), ("k",)),
    "peers": (("rows", "judge", "sources"), ("k", "steps")),
}
HELP = {each.name: str(each.metadata["help"]).rstrip(".") for each in fields(CardArguments)}


def write_card(args: CardArguments) -> Path:
    """Write a model card, unless a card that was not generated is in its place.

    Raises:
        DataError: If a JSON file cannot be read, or does not contain the model.
        ValueError: If the directory holds no model, or a card that was not generated is there.
    """
    if not Path(args.model, "config.json").exists():
        raise ValueError(f"{args.model!r} is not a model's directory; give --model.")
    path = Path(args.output or Path(args.model, "README.md"))
    former = path.read_text(encoding="utf-8") if path.exists() else MARK
    if MARK not in former:
        raise ValueError(
            f"{path} was not written by this package; move it, or give another output."
        )
    card = make_card(args)
    if "\nmodel-index:" in former and "\nmodel-index:" not in str(card):
        logger.warning(
            "%s held evaluation figures, which the new card lacks: give --evaluation, or run "
            "evaluate.py --write_card true again.",
            path,
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    save_card(card, path)
    return path


def save_card(card: ModelCard, path: Path) -> None:
    """Write a card atomically: a former one stays if the disk is full."""
    with whole(path) as part:
        card.save(part)


def make_card(args: CardArguments) -> ModelCard:
    """Make a model card; arguments and errors as for :func:`write_card`.

    Example:
        >>> from simbert_hf import CharGru
        >>> folder = getfixture("tmp_path")
        >>> CharGru.for_texts(["a cat sat"], min_count=1).save_pretrained(folder)
        >>> card = make_card(CardArguments(model=str(folder), language=["en"], license="mit"))
        >>> card.data.license, card.data.pipeline_tag, "CharGru.from_pretrained" in card.text
        ('mit', 'sentence-similarity', True)
    """
    folder = Path(args.model)
    for code in args.language:
        if not LANGUAGE.fullmatch(code):
            raise ValueError(
                f"--language {code} is not an ISO language code: write en, zh or zho (not zh-CN)."
            )
    name = model_name(args.repo_id or folder)
    row = args.row or model_name(folder)
    results: list[EvalResult] = []
    samples: list[dict[str, Any]] = []
    content = describe_model(folder) | describe_run(folder)
    reports = {flag: read_report(flag, path) for flag in REPORTS if (path := getattr(args, flag))}
    if report := reports.get("evaluation"):
        results = card_results(read_tasks(find(report["models"], row, args.evaluation)))
        content["evaluation"] = evaluation_table(report, row)
    if report := reports.get("paraphrases"):
        content["samples"] = judged_samples(report, row)
        samples = report["samples"]
    content |= paraphrase_tables(reports)
    data = ModelCardData(
        language=args.language or None,
        license=args.license or None,
        base_model=args.base_model or content.get("base_model"),
        datasets=args.datasets or None,
        library_name="simbert_hf" if content["gru"] else "sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=[*TAGS, *(["paraphrase-generation"] if content["writes"] else [])],
        model_name=name,
        eval_results=results or None,
        widget=widget(samples) if len(samples) > 1 else None,
    )
    given = {"limits": args.limits} | ({"data": args.data} if args.data else {})
    given |= {"recipes": "---\n".join(map(read_recipe, args.recipes)).strip()}
    own = {"DEFAULT_MODEL": DEFAULT_MODEL, "CHINESE_MODEL": CHINESE_MODEL}
    same = [name for name, path in own.items() if Path(path).resolve() == folder.resolve()]
    shipped = same[0] if same and not args.repo_id else None
    loaded = shipped or f'"{args.repo_id or model_name(folder)}"'
    place = {"name": name, "shipped": shipped, "loaded": loaded}
    texts = [sample["text"] for sample in samples] or content.get("sources", [])
    short = (text for text in texts if len(text) < LINE and "\\" not in text)
    example = next(short, "how can i reset my password?").replace('"', "'")
    return ModelCard.from_template(
        data,
        template_path=str(TEMPLATE),
        **(content | given | place | {"example": example}),
    )


def paraphrase_tables(reports: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Lay out a judge's figures for the model's paraphrases, and for its peers'."""
    content: dict[str, Any] = {}
    judge = None
    if report := reports.get("paraphrases"):
        content["paraphrases"], judge = paraphrase_table(report), report["judge"]
    if report := reports.get("peers"):
        content["peers"] = paraphrase_table(report, judge)
        content["peer_steps"] = report["settings"]["steps"]
        judge = judge or report["judge"]
    if content:
        from simbert_hf.judging.report import legend  # needs the extra `eval`

        content["legend"] = legend(judge).strip()
    return content


def read_report(flag: str, path: str) -> dict[str, Any]:
    """Read the JSON file of a flag; raise a DataError if there is none, or it is another flag's."""
    if not Path(path).is_file():
        raise fault(path, None, "is not a file", f"--{flag} is for {HELP[flag]}")
    report = read_json(Path(path))
    parts, settings = REPORTS[flag]
    lacks = [part for part in parts if part not in report]
    lacks += [name for name in settings if name not in report.get("settings", {})]
    if lacks:
        raise fault(path, None, f"has no {lacks[0]!r}", f"--{flag} is for {HELP[flag]}")
    return report


def widget(samples: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return examples for the model's page: a sentence, its paraphrases, and another sentence."""
    found = []
    for sample, other in zip(samples[:SHOWN], [*samples[1:], samples[0]], strict=False):
        sentences = [*sample["references"][:2], other["text"]]
        found.append({"source_sentence": sample["text"], "sentences": sentences})
    return found


def add_results(model_dir: str | Path, model: str, tasks: Mapping[str, TaskResult]) -> Path:
    """Add a model's results to the metadata of its ``README.md``, and keep others there.

    Args:
        model_dir: Directory of the model; a model of this package without a card gets one.
        model: Name of the model, for a card without one.
        tasks: Its results by test set.

    Raises:
        DataError: If there is a card that cannot be read.
    """
    card = read_card(model_dir) or _new_card(Path(model_dir))
    new = card_results(tasks)
    measured = {_identity(result) for result in new}
    data: Any = card.data  # a ModelCardData, typed as its parent
    kept = [old for old in data.eval_results or [] if _identity(old) not in measured]
    data.eval_results = kept + new
    data.model_name = data.model_name or model
    if data.eval_results and MARK in card.text:
        card.text = card.text.replace(UNMEASURED, "The figures are in this card's metadata.")
    path = Path(model_dir, "README.md")
    save_card(card, path)
    return path


def _new_card(folder: Path) -> ModelCard:
    path = folder / "config.json"
    config = read_json(path) if path.exists() else {}
    if "sentence_pooling" in config or config.get("model_type") == "char_gru":
        return make_card(CardArguments(model=str(folder)))
    return ModelCard(f"---\n{{}}\n---\n\n# {model_name(folder)}\n")


def read_card(model_dir: str | Path) -> ModelCard | None:
    """Read a model's ``README.md``; None if it has none.

    Raises:
        DataError: If its metadata cannot be read.
    """
    path = Path(model_dir, "README.md")
    if not path.exists():
        return None
    try:
        return ModelCard.load(path)
    except (ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        remedy = "Fix the metadata between its --- lines, or move the file away"
        raise fault(path, None, f"is not a model card ({error!r})", remedy) from error


def _identity(result: EvalResult) -> tuple[object, ...]:
    return *result.unique_identifier, result.metric_type


# Tables of evaluations ---------------------------------------------------------------------------


def evaluation_table(report: Mapping[str, Any], name: str) -> str:
    """Lay out the figures of ``results.json``, this model's first, with intervals."""
    models = {name: report["models"][name], **report["models"]}
    rows = []
    for test_set, task in models[name].items():
        for metric in task["figures"]:
            shown = [of[test_set]["figures"][metric] for of in models.values()]
            cells = [figure_cell(metric, each["value"], each["interval"]) for each in shown]
            label = title(test_set, task["lacks"])
            rows.append([label, f"{task['size']:,}", TITLES[metric], *cells])
    note = (
        "All figures but alignment and uniformity are times 100; brackets: 95 % intervals of "
        f"{report['settings']['bootstrap']} bootstrap resamples."
    )
    return f"{layout(['test set', 'n', 'figure', *models], rows)}\n\n{note}"


def read_tasks(tasks: Mapping[str, Any]) -> dict[str, TaskResult]:
    """Turn a model's part of ``results.json`` into results without resamples."""
    return {
        name: TaskResult(
            task["kind"],
            task["size"],
            {metric: Figure(figure["value"]) for metric, figure in task["figures"].items()},
            lacks=task["lacks"],
        )
        for name, task in tasks.items()
    }


def paraphrase_table(report: Mapping[str, Any], known: Mapping[str, Any] | None = None) -> str:
    """Lay out the figures of ``paraphrases.json`` with controls, and those of a judge not known."""
    from simbert_hf.judging.report import judged_by, markdown_table  # needs the extra `eval`

    table = markdown_table(report["rows"], report["settings"]["k"])
    judge = report["judge"]
    if judge and judge == known:
        judge = {**judge, "figures": {}}
    lines = judged_by(judge, report["rows"], report.get("related_models", {}))
    return "\n".join([table, "", f"Sources: {report['sources']}.", "", *lines])


def judged_samples(report: Mapping[str, Any], name: str) -> str:
    """Show the first best paraphrases that the judge accepts, and some that it refuses."""
    from simbert_hf.judging.report import cell, escape

    threshold = report["judge"]["threshold"] if report["judge"] else None
    kinds: dict[bool, list[str]] = {True: [], False: []}
    for sample in report["samples"]:
        for text, score in find(sample["paraphrases"], name, "the paraphrases")[:1]:
            scored = "" if threshold is None else f" ({cell(score, '.2f')})"
            line = f"- {escape(sample['text'])} -> {escape(text)}{scored}"
            kinds[threshold is None or score >= threshold].append(line)
    good, bad = (lines[:SHOWN] for lines in (kinds[True], kinds[False]))
    if threshold is None:
        return "\n".join(["The first best paraphrases, as they come:", "", *good])
    head = f"The first best paraphrases that the judge accepts (from {threshold:.2f} on):"
    tail = "and the first that it refuses:" if bad else "It refuses none of the best."
    return "\n".join([head, "", *good, "", tail, "", *bad]).strip()


def find(content: Mapping[str, Any], name: str, where: str) -> Any:
    """Return an entry; raise a DataError if there is none."""
    if name not in content:
        raise DataError(f"{where} has no {name!r}; give --row one of {', '.join(content)}.")
    return content[name]


# The model ---------------------------------------------------------------------------------------


def describe_model(folder: Path) -> dict[str, Any]:
    """Say what kind of model a directory holds, and how large it is."""
    config = read_json(folder / "config.json")
    weights = [safe_open(path, "pt") for path in sorted(folder.glob("model*.safetensors"))]
    shapes = {name: w.get_slice(name).get_shape() for w in weights for name in w.keys()}  # noqa: SIM118
    parameters = sum(math.prod(shape) for shape in shapes.values())
    dimension = config.get("whitening_dim") or config.get("hidden_size")
    kind = config.get("model_type", "unknown")
    facts = {
        "architecture": f"{kind}, {config.get('num_hidden_layers', 1)} layers",
        "parameters": f"{parameters / 1e6:.1f} M",
        "vector": f"{dimension} dimensions, pooling {config.get('sentence_pooling', 'its own')}",
        "longest text": f"{longest(folder, config)} tokens",
    }
    return {
        "facts": facts,
        "dimension": dimension,
        "gru": kind == "char_gru",
        "bert": kind in ("bert", "electra", "roformer"),  # loaded as a SimBert
        "writes": any(name.endswith(LM_HEADS) for name in shapes),
    }


def longest(folder: Path, config: Mapping[str, Any]) -> int | str:
    """Find the longest row in tokens: the tokenizer's limit, at most the position embeddings'."""
    path = folder / "tokenizer_config.json"
    limits = [config.get("max_length"), config.get("max_position_embeddings")]
    limits += [read_json(path).get("model_max_length")] if path.exists() else []
    return min([limit for limit in limits if limit and limit > 0], default="unknown")
