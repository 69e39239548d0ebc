"""Parsing a command line into dataclasses: flags, over a YAML file, over a preset."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn, TypeVar, get_args, get_type_hints

import yaml
from transformers import HfArgumentParser, TrainingArguments

from simbert_hf.utils.textfiles import DataError, fault, shorten
from simbert_hf.utils.training_flags import check_training

Presets = Mapping[str, Mapping[str, Any]]
T = TypeVar("T")


def flag(default: T, about: str, choices: Sequence[str] | None = None) -> T:
    """Make a dataclass field that is a flag, as :class:`HfArgumentParser` expects it.

    Args:
        default: Default value; a list is copied.
        about: Help text.
        choices: All accepted values; None for any.
    """
    metadata: dict[str, Any] = {"help": about} | ({"choices": choices} if choices else {})
    given: Any = (
        {"default_factory": default.copy} if isinstance(default, list) else {"default": default}
    )
    return field(**given, metadata=metadata)


def parse_arguments(
    types: Sequence[Any], argv: Sequence[str] | None = None, presets: Presets | None = None
) -> tuple[Any, ...]:
    """Parse flags into dataclasses: ``[config.yaml] [--preset NAME] [--flag value ...]``.

    A flag overrides the YAML file, which overrides the preset.

    Args:
        types: Dataclasses whose fields are the flags.
        argv: Arguments; the command line's if None.
        presets: The defaults that each ``--preset`` changes; one is named ``modern``. None if
            there is no such flag.

    Returns:
        One instance per type.

    Raises:
        ValueError: If the preset, a flag or a key of the YAML file is unknown, or training with
            these flags is impossible.
    """
    rest = list(sys.argv[1:] if argv is None else argv)
    parser = make_parser(types)
    if presets:
        about = "A set of defaults; flags and the YAML file override it."
        parser.add_argument("--preset", choices=sorted(presets), default="modern", help=about)
    nothing: list[str] = []
    if rest and rest[0].endswith((".yaml", ".yml")):
        rest[:1], nothing = read_yaml(Path(rest[0]), parser)
    if presets:
        parser.set_defaults(**presets[chosen_preset(rest, presets)])
    _set_to_none(parser, nothing, types)
    namespace, unknown = parser.parse_known_args(rest)  # before the dataclasses find more
    if unknown:
        raise ValueError(_unknown(unknown[0], parser))
    parsed = parser.parse_args_into_dataclasses(rest)[: len(types)]
    flags = (each[2:].partition("=")[0] for each in rest if each.startswith("--"))
    given = {flag.replace("-", "_") for flag in flags}
    for arguments in parsed:
        if isinstance(arguments, TrainingArguments):
            if "do_eval" in given and not namespace.do_eval and arguments.do_eval:
                raise ValueError("--do_eval false: give --eval_strategy no.")  # which sets it
            check_training(arguments, given)
            drop_steps_of_preset(arguments, given)
    return tuple(parsed)


def _set_to_none(parser: argparse.ArgumentParser, names: Sequence[str], types: Any) -> None:
    """Make None the default of arguments that are ``null`` in a YAML file."""
    hints = {name: hint for kind in types for name, hint in get_type_hints(kind).items()}
    for name in names:
        if parser.get_default(name) in (None, ""):
            continue
        if type(None) not in get_args(hints.get(name)):
            raise ValueError(f"{name} cannot be null; leave it out for its default.")
        parser.set_defaults(**{name: None})


class Parser(HfArgumentParser):
    """Reports errors in one line, without some hundred lines of usage."""

    def error(self, message: str) -> NoReturn:
        """Print the message and exit with code 2."""
        self.exit(2, f"{self.prog}: {message}; see --help.\n")


def make_parser(types: Sequence[Any], prog: str | None = None) -> Parser:
    """Make a parser whose flags are the fields of dataclasses."""
    about = "Flags, or one YAML file with the same names, followed by flags."
    parser = Parser(tuple(types), prog=prog, description=about, allow_abbrev=False)
    if any(issubclass(kind, TrainingArguments) for kind in types):
        parser.set_defaults(output_dir="")  # not transformers' trainer_output: "" is refused
    return parser


def _unknown(text: str, parser: argparse.ArgumentParser) -> str:
    """Describe an unknown argument, and suggest what may have been meant."""
    flags = [action.option_strings[0] for action in parser._actions[1:]]
    if not text.startswith("-"):
        first = " A YAML file must come first." if text.endswith((".yaml", ".yml")) else ""
        return f"{text!r} follows no flag, such as {flags[0]} {text}; see --help.{first}"
    name = text.partition("=")[0]
    return f"There is no {name}; see --help.{suggestion(name, flags)}"


def suggestion(name: str, known: Sequence[str]) -> str:
    """Ask whether one of the known names was meant, if any is similar to this one.

    Example:
        >>> suggestion("batch_size", ["device_batch_size", "seed"]), suggestion("sead", ["seed"])
        (' Is it device_batch_size?', ' Is it seed?')
    """
    bare = name.lstrip("-")
    found = [each for each in known if bare in each and len(bare) > 2]
    found = found or [each for each in known if name.startswith(each)]
    # At 0.6, --group_by_length would be --max_length.
    found = found or get_close_matches(name, known, 1, 0.65)
    return f" Is it {' or '.join(found[:4])}?" if found else ""


def drop_steps_of_preset(args: TrainingArguments, given: set[str]) -> None:
    """Undo a preset's evaluation or save steps if flags ask for another strategy."""
    defaults = {known.name: known.default for known in fields(args)}
    for what in ("eval", "save"):
        name = f"{what}_steps"
        if getattr(args, f"{what}_strategy") != "steps" and name not in given:
            setattr(args, name, defaults[name])


def chosen_preset(argv: Sequence[str], presets: Presets) -> str:
    """Return the preset that the flags name; raise a ValueError if it is unknown."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--preset", default="modern")
    preset: str = parser.parse_known_args(list(argv))[0].preset
    if preset not in presets:
        raise ValueError(f"Unknown preset {preset!r}; choose one of {', '.join(sorted(presets))}.")
    return preset


class _Loader(yaml.SafeLoader):
    """Reads 1e-6 as a number (which YAML 1.1 writes 1.0e-6), and refuses repeated names."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for name, _ in node.value:
            if (text := str(name.value)) in seen:
                problem = f"{text} is given twice"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=name.start_mark)
            seen.add(text)
        return super().construct_mapping(node, deep)


_FLOAT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789"))


def load_yaml(path: Path) -> tuple[dict[str, Any], dict[str, yaml.Node]]:
    """Read a YAML file of argument values: as Python's, and as they are written.

    Raises:
        DataError: If the file cannot be read, or is not a mapping.
    """
    if not path.exists():
        raise DataError(f"There is no file {path}.")
    try:
        loader = _Loader(path.read_text(encoding="utf-8"))  # a safe one
        written = loader.get_single_node()
        content = None if written is None else loader.construct_document(written)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise DataError(f"{path} cannot be read as YAML: {error}") from error
    if not (isinstance(written, yaml.MappingNode) and isinstance(content, dict)):
        raise DataError(
            f"{path} holds no arguments: it must be a mapping, with `name: value` on each line."
        )
    return content, {name.value: value for name, value in written.value}


def read_yaml(path: Path, parser: argparse.ArgumentParser) -> tuple[list[str], list[str]]:
    """Read a YAML file of a parser's arguments.

    Texts and numbers are taken as they are written: YAML would read the revision 1.10 as 1.1, and
    in a list of sentences "no" as false. A list with a text that begins with "-", which the parser
    would take for a flag, becomes the parser's default.

    Returns:
        Flags, and the names of arguments that are set to None.

    Raises:
        DataError: If the file cannot be read, is not a mapping, or has a list where one value
            belongs, or anything but texts and numbers in a list.
        ValueError: If it names an unknown argument.
    """
    content, written = load_yaml(path)
    known = {action.dest: action for action in parser._actions}
    unknown = sorted(map(str, content.keys() - known.keys()))
    if unknown:
        meant = suggestion(unknown[0], sorted(known))
        names = ", ".join(unknown)
        raise ValueError(f"{path} names unknown arguments: {names}; see --help.{meant}")
    flags: list[str] = []
    for name, value in content.items():
        if isinstance(value, list):
            line = written[name].start_mark.line + 1
            if len(value) > 1 and known[name].nargs not in ("+", "*"):
                raise fault(path, line, f"{name} is a list", "Give one value")
            if strange := [item for item in value if isinstance(item, list | dict | None)]:
                problem = f"{name} holds {shorten(strange[0])}, which is not a text"
                raise fault(path, line, problem, "Put the text in quotes, or drop it")
            texts = [item.value for item in written[name].value]
            if known[name].nargs == "+" and any(text.startswith("-") for text in texts):
                parser.set_defaults(**{name: texts})
                known[name].required = False
            elif texts:
                flags += [f"--{name}", *texts]
        elif value is False and name.endswith("_strategy"):
            flags.append(f"--{name}=no")  # which YAML reads as false
        elif value is not None:
            text = str(value) if isinstance(value, bool) else written[name].value
            flags.append(f"--{name}={json.dumps(value) if isinstance(value, dict) else text}")
    return flags, [name for name, value in content.items() if value is None]
