"""How a model was trained, as its card tells it: by ``run.json``, recipes, log and samples."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import MISSING, fields
from enum import Enum
from pathlib import Path
from typing import Any

import yaml

from simbert_hf.evaluation.report import layout
from simbert_hf.modeling.loading import resolve_name
from simbert_hf.utils.atomic import write_json
from simbert_hf.utils.parsing import load_yaml
from simbert_hf.utils.textfiles import read_json

RUN = "run.json"
# Arguments that cards leave out: secrets, local paths, what follows from the others, and what does
# not affect the weights.
UNTOLD = frozenset(
    "token hub_token hub_model_id hub_private_repo hub_revision hub_strategy push_to_hub "
    "output_dir cache_dir run_name logging_dir resume_from_checkpoint disable_tqdm report_to "
    "use_cpu load_best_model_at_end greater_is_better local_rank ignore_data_skip".split()
)
EXAMPLES = "sample_sentences"  # shown as samples; without them, samples are of the user's data
MODEL_ID = re.compile(r"(\w[\w.-]*/)?\w[\w.-]*")  # on the Hub


def record_run(
    folder: Path,
    script: str,
    rows: int | None,
    arguments: Sequence[Any],
    preset: Container[str] = (),
    processes: int = 1,
) -> None:
    """Write ``run.json``: a run's arguments that differ from the defaults, and its size.

    Args:
        folder: The run's output directory.
        script: Name of the script.
        rows: Number of training examples; None if it is not known.
        arguments: Dataclasses of flags.
        preset: Names of flags with other defaults in that script; they are always recorded.
        processes: Number of training processes.
    """
    told: dict[str, Any] = {}
    for dataclass_ in arguments:
        for each in fields(dataclass_):
            default = each.default if each.default_factory is MISSING else each.default_factory()
            value = getattr(dataclass_, each.name)
            value = value.value if isinstance(value, Enum) else value
            plain = isinstance(value, str | int | float | bool | list | dict)
            changed = value not in (default, [], {}) or each.name in preset
            if plain and changed and each.name not in UNTOLD:
                told[each.name] = value
    content = {"script": script, "rows": rows, "processes": processes, "arguments": told}
    start = told.get("model_name_or_path")
    if start and MODEL_ID.fullmatch(start) and not Path(resolve_name(start)).exists():
        content["base_model"] = start
    write_json(folder / RUN, content)


def describe_run(folder: Path) -> dict[str, Any]:
    """Say how a run trained and what it measured, from its files; {} if there are none."""
    found: dict[str, Any] = {}
    together, public = "", None
    if (folder / RUN).exists():
        run = read_json(folder / RUN)
        arguments = {name: shortened(value) for name, value in run["arguments"].items()}
        public = arguments.pop(EXAMPLES, None)
        found["command"] = as_yaml(arguments).strip()
        found["script"] = run["script"]
        found["base_model"] = run.get("base_model")
        if (processes := run.get("processes", 1)) > 1:
            together = f", on {processes} processes together"
        size = "Examples" if run["rows"] is None else f"{run['rows']:,} examples"
        found["data"] = f"{size} of {', '.join(arguments.get('train_file', ['data']))}."
    if (folder / "trainer_state.json").exists():
        state = read_json(folder / "trainer_state.json")
        found["training"] = f"It made {state['global_step']:,} steps{together}."
        found["held_out"] = held_out_table(state["log_history"])
    if public and (folder / "paraphrases.md").exists():
        text = (folder / "paraphrases.md").read_text(encoding="utf-8")
        found["samples"] = re.split(r"(?m)^## ", text)[-1].partition("\n")[2].strip()
        found["sources"] = re.findall(r"(?m)^- (.+?) -> ", found["samples"])
    return found


def read_recipe(path: str) -> str:
    """Read the arguments in a recipe, except those that a run's record leaves out.

    Numbers stay as they are written: the revision 1.10 is not 1.1.

    Raises:
        DataError: If the file cannot be read, or holds no arguments.
    """
    content, written = load_yaml(Path(path))
    told = [
        f"{name}: {written[name].value}\n"
        if isinstance(value, int | float)
        else as_yaml({name: shortened(value)})
        for name, value in content.items()
        if name not in UNTOLD | {EXAMPLES}
    ]
    return f"# {Path(path).name}\n{''.join(told)}"


def as_yaml(arguments: Mapping[str, Any]) -> str:
    """Format arguments as in a YAML file for a script."""
    return yaml.safe_dump(arguments, allow_unicode=True, sort_keys=False)


def shortened(value: Any) -> Any:
    """Remove the folders of local files, which mean nothing to others."""
    if isinstance(value, list):
        return [shortened(item) for item in value]
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def held_out_table(log: Sequence[Mapping[str, Any]]) -> str:
    """Lay out the first and the last evaluation, the saved model's, of a log; empty without any."""
    measured = [line for line in log if any(name.startswith("eval_") for name in line)]
    chosen = [measured[0], measured[-1]] if len(measured) > 1 else measured
    if not chosen:
        return ""
    names = [name for name in chosen[-1] if name.startswith("eval_")]
    header = ["figure", *(f"step {line['step']:,}" for line in chosen[:-1]), "saved model"]
    rows = [
        [name.removeprefix("eval_"), *(f"{line.get(name, float('nan')):.4g}" for line in chosen)]
        for name in names
    ]
    return layout(header, rows)
