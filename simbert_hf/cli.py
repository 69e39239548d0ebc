"""The command ``simbert``: paraphrases, vectors, FAQ indexes and evaluation from a shell.

Results go to stdout (``--json``: one JSON object per line), progress and messages to stderr. Exit
codes: 0 for success, 1 (with a message) for errors, 2 for unknown flags and commands.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from simbert_hf import DEFAULT_MODEL, __version__
from simbert_hf.index_cli import add_index
from simbert_hf.utils.console import as_json, blocks_of, hanging, lines_of, say, show, texts_of
from simbert_hf.utils.script import drop_output, flush_output, print_utf8, sentence
from simbert_hf.utils.text import counted

NONE = "  (none that keeps the meaning; raise -n, or give --copying 0)"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code.

    Args:
        argv: Arguments; the command line's if None.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    if sys.stdout is None:
        say("simbert: stdout, where results go, is closed: redirect it to a file or a pipe.")
        return 1
    print_utf8()
    warnings.formatwarning = sentence
    try:
        if argv[:1] == ["evaluate"]:  # its flags are those of a dataclass
            evaluate(argv[1:])
            return 0
        args = read_arguments(argv)
        args.run(args)
    except BrokenPipeError:  # `simbert ... | head`
        drop_output()
    except (ValueError, OSError, ImportError) as error:
        say(f"simbert: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        flush_output()
    return 0


def read_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line, including texts after flags, which argparse alone rejects."""
    parser = make_parser()
    args, rest = parser.parse_known_args(argv)
    cut = rest.index("--") if "--" in rest else len(rest)
    if rest and (not hasattr(args, "texts") or any(text[:1] == "-" for text in rest[:cut])):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        args.texts += rest[:cut] + rest[cut + 1 :]  # after --, texts may begin with -
    return args


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of all commands but ``evaluate``, which makes its own."""
    parser = argparse.ArgumentParser(prog="simbert", description=__doc__.partition("\n")[0])
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    _add_synonyms(commands)
    _add_encode(commands)
    add_index(commands)
    commands.add_parser("evaluate", help="measure models side by side", add_help=False)
    _add_app(commands)
    return parser


# Commands ---------------------------------------------------------------------------------------


def _add_synonyms(commands: Any) -> None:
    parser = commands.add_parser("synonyms", help="write paraphrases")
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="By default, lines of stdin.")
    parser.add_argument("--model", help="Directory or Hub id; by default our English or Chinese.")
    parser.add_argument("-n", type=int, default=100, help="Candidates to generate (%(default)s).")
    parser.add_argument("-k", type=int, help="Paraphrases to show (20, or n if less).")
    parser.add_argument("--json", action="store_true", help="One JSON object per text.")
    parser.set_defaults(run=synonyms)
    options = parser.add_argument_group("options of gen_synonyms")
    add = partial(options.add_argument, default=argparse.SUPPRESS)
    add("--strategy", help="beam (the default), sample or without_replacement.")
    add("--seed", type=int, help="Seed, for reproducible samples.")
    add("--top_k", type=int, help="Sample from this many likeliest tokens (5); 0 for all.")
    add("--top_p", type=float, help="Of these, from the likeliest that add up to this.")
    add("--temperature", type=float, help="Above 1, samples vary more.")
    add("--max_new_tokens", type=int, help="Maximum tokens of a paraphrase (32).")
    add("--copying", type=float, help="Boost for copying names and numbers (1); 0 allows others.")
    add("--repeats", action="store_true", help="Allow long words to repeat.")
    add("--whole", dest="by_sentence", action="store_false", help="Do not split into sentences.")
    add("--fluency_weight", type=float, help="Cosine per nat of log-probability, either way (0.2).")
    add("--diversity", type=float, help="Penalty for similarity to better ones (0.2).")
    add("--min_similarity", type=float, help="Minimum cosine with the text.")


def synonyms(args: argparse.Namespace) -> None:
    """Write paraphrases of each text."""
    from simbert_hf.generation.synonyms import default_models, gen_synonyms, load
    from simbert_hf.modeling.loading import quiet_transformers

    texts = texts_of(args.texts)
    with quiet_transformers():
        for name in {*default_models(texts)} if args.model is None else [args.model]:
            load(name)
    ours = {"command", "run", "texts", "model", "n", "k", "json"}  # the rest is for gen_synonyms
    options = {name: value for name, value in vars(args).items() if name not in ours}
    if options.get("top_k") == 0:  # a shell has no None
        options["top_k"] = None
    for block in blocks_of(texts):
        written = gen_synonyms(
            block, args.n, args.k, model=args.model, return_scores=True, **options
        )
        for text, found in zip(block, written, strict=True):
            if args.json:
                show([as_json({"text": text, "paraphrases": [one._asdict() for one in found]})])
            else:
                lines = [f"  {one.score:.3f}  {one.text}" for one in found] or [NONE]
                show([text, *map(hanging, lines)])


def _add_encode(commands: Any) -> None:
    parser = commands.add_parser("encode", help="turn texts into vectors")
    parser.add_argument("input", help="A file with a text per line (.gz, .xz too), or - for stdin.")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="Directory or Hub id.")
    parser.add_argument("--output", required=True, type=Path, help=".npy or .parquet")
    parser.add_argument("--processes", type=int, default=1, help="One per GPU, else on the CPU.")
    parser.add_argument("--json", action="store_true", help="Report the result as JSON.")
    parser.set_defaults(run=encode)


def encode(args: argparse.Namespace) -> None:
    """Encode a file; resume if an earlier call was interrupted."""
    from simbert_hf.encoders.vectorfiles import check_output, encode_file

    check_output(args.output)
    texts = lines_of(args.input)
    facts = {"output": str(args.output), "texts": len(texts), "replaced": args.output.exists()}
    facts["resumed"] = encode_file(texts, args.model, args.output, processes=args.processes)
    show([as_json(facts) if args.json else f"{args.output}: {counted(len(texts), 'vector')}"])
    if facts["replaced"]:
        say(f"This replaced an earlier {args.output}.")


def evaluate(argv: Sequence[str]) -> None:
    """Evaluate models: takes the flags of ``scripts/evaluate.py``, and ``--json``."""
    from simbert_hf.evaluation.suite import EvaluationArguments, run_evaluation
    from simbert_hf.utils.parsing import make_parser

    if {"-h", "--help"} & set(argv):
        parser = make_parser((EvaluationArguments,), prog="simbert evaluate")
        parser.add_argument("--json", action="store_true", help="JSON instead of a table.")
        parser.print_help()
        return
    flags = [flag for flag in argv if flag != "--json"]
    results, table = run_evaluation(flags)
    show([as_json(results.to_json()) if len(flags) < len(argv) else table])


def _add_app(commands: Any) -> None:
    parser = commands.add_parser("app", help="serve the web page")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="Directory or Hub id of a SimBert.")
    parser.add_argument("--index", help="Directory of an FAQ index to answer from.")
    about = "Address to listen on (%(default)s: this machine only); 0.0.0.0 for all."
    parser.add_argument("--host", default="127.0.0.1", help=about)
    parser.add_argument("--port", type=int, default=7860, help="Port to listen on (%(default)s).")
    parser.set_defaults(run=app)


def app(args: argparse.Namespace) -> None:
    """Serve the web page."""
    from simbert_hf.app.page import launch

    launch(args.model, index=args.index, host=args.host, port=args.port)


if __name__ == "__main__":
    sys.exit(main())
