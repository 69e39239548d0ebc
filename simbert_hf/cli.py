"""The command ``simbert``: paraphrases, vectors, FAQ indexes and evaluation from a shell.

Results go to stdout (``--json``: one JSON object per line), progress and messages to stderr. Exit
codes: 0 for success, 1 (with a message) for errors, 2 for unknown flags and commands.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from simbert_hf import DEFAULT_MODEL, __version__
from simbert_hf.utils.script import drop_output, flush_output, print_utf8, sentence
from simbert_hf.utils.text import counted

BLOCK = 32  # texts handled together
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
    _add_index(commands)
    commands.add_parser("evaluate", help="measure models side by side", add_help=False)
    _add_app(commands)
    return parser


def say(text: str) -> None:
    """Write a line to stderr."""
    sys.stderr.write(f"{text}\n")


def show(lines: Iterable[str]) -> None:
    """Write lines to stdout, each as soon as it is available."""
    for line in lines:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def hanging(line: str) -> str:
    """Indent all lines of a text but the first, which stands behind its score."""
    return line.replace("\n", "\n" + 9 * " ")


def as_json(value: Any) -> str:
    """Return one line of JSON, null for NaN."""
    plain = json.loads(json.dumps(value), parse_constant=lambda _: None)
    return json.dumps(plain, ensure_ascii=False)


def lines_of(path: str, *, blanks: bool = False) -> list[str]:
    """Return the lines of a text file, or of stdin for ``-``; line i is text i.

    Raises:
        ValueError: If there are no lines, one is not UTF-8 or (without ``blanks``) is blank, or
            the file is a table or JSON.
    """
    from simbert_hf.utils.text import CONTROL
    from simbert_hf.utils.textfiles import check_plain, decode_lines, fault, read_lines

    name = "stdin" if path == "-" else path
    if path == "-" and sys.stdin is None:  # as under some schedulers
        raise ValueError("stdin is closed: redirect it, or give texts or a file.")
    if path == "-":
        lines = list(decode_lines(name, sys.stdin.buffer))
    else:
        check_plain(path)
        lines = list(read_lines(path))
    texts = (CONTROL.sub("", line).strip() for line in lines)
    blank = next((i for i, text in enumerate(texts, start=1) if not text), None)
    if blank is not None and not blanks:
        raise fault(name, blank, "is blank", "Write a text in every line")
    if not lines:
        raise fault(name, None, "holds no text", "Write one text per line")
    return lines


def texts_of(given: list[str], *, blanks: bool = False) -> list[str]:
    """Return the texts of a command line; without any, or for ``-``, the lines of stdin.

    Raises:
        ValueError: As :func:`lines_of` does, or if one is the name of a file.
    """
    if given in ([], ["-"]):
        return lines_of("-", blanks=blanks)
    named = (text for text in given if Path(text).suffix)
    if file := next(filter(os.path.isfile, named), None):  # Path.is_file fails on long texts
        raise ValueError(f"{file} is a file, not a text: for the texts in it, give < {file}.")
    return given


def blocks_of(texts: list[str]) -> Iterator[list[str]]:
    """Yield blocks of texts that are processed and shown together."""
    for start in range(0, len(texts), BLOCK):
        yield texts[start : start + BLOCK]


# Commands ---------------------------------------------------------------------------------------


def _add_synonyms(commands: Any) -> None:
    parser = commands.add_parser("synonyms", help="write paraphrases")
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="By default, lines of stdin.")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="Directory or Hub id of a SimBert.")
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
    from simbert_hf.generation.synonyms import gen_synonyms, load
    from simbert_hf.modeling.loading import quiet_transformers

    texts = texts_of(args.texts)
    with quiet_transformers():
        model = load(args.model)
    ours = {"command", "run", "texts", "model", "n", "k", "json"}  # the rest is for gen_synonyms
    options = {name: value for name, value in vars(args).items() if name not in ours}
    if options.get("top_k") == 0:  # a shell has no None
        options["top_k"] = None
    for block in blocks_of(texts):
        written = gen_synonyms(block, args.n, args.k, model=model, return_scores=True, **options)
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


def _add_index(commands: Any) -> None:
    index = commands.add_parser("index", help="build, change, search and calibrate an FAQ index")
    actions = index.add_subparsers(dest="action", required=True)
    for name, run, add_flags, about in (
        ("build", build, _build_flags, "make an index of questions and answers"),
        ("add", change, _rows_flags, "add rows"),
        ("update", change, _rows_flags, "replace rows that have the same ids"),
        ("remove", change, _remove_flags, "remove rows by their ids"),
        ("search", search, _search_flags, "find answers"),
        ("calibrate", calibrate, _calibrate_flags, "choose the threshold from labelled queries"),
    ):
        parser = actions.add_parser(name, help=about)
        parser.set_defaults(run=run)
        parser.add_argument("index", help="Directory of the index.")
        parser.add_argument("--json", action="store_true", help="JSON, one object per line.")
        if name != "build":
            parser.add_argument("--model", help="The model it was built with, if moved.")
        add_flags(parser)


def _column_flags(parser: argparse.ArgumentParser, names: Sequence[str]) -> None:
    add = partial(parser.add_argument, default=argparse.SUPPRESS, metavar="NAME")
    for name in names:
        add(f"--{name}_column", help=f"Column of the {name}.")


def _columns(args: argparse.Namespace) -> dict[str, str]:
    return {k.removesuffix("_column"): v for k, v in vars(args).items() if k.endswith("_column")}


def _rows_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("faqs", help="A .csv, .tsv, .jsonl or .parquet file.")
    _column_flags(parser, ("question", "answer", "group", "id"))


def _build_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default=DEFAULT_MODEL, help="Directory or Hub id.")
    parser.add_argument(
        "--kind",
        default="auto",
        choices=("auto", "flat", "hnsw", "ivf_pq"),
        help="Store of the vectors (%(default)s: by their number).",
    )
    parser.add_argument(
        "--votes", type=int, default=1, help="Questions that score an answer (%(default)s)."
    )
    parser.add_argument("--prompt", help='Prefix of every text, such as "query: " for E5.')
    parser.add_argument(
        "--augment", type=int, default=0, help="Paraphrases to add per question (%(default)s)."
    )
    _rows_flags(parser)


def build(args: argparse.Namespace) -> None:
    """Make an index and save it."""
    from simbert_hf.index import FaqIndex, augment, read_faqs
    from simbert_hf.index.saving import MANIFEST, check_place, is_index
    from simbert_hf.utils.checks import check_count
    from simbert_hf.utils.extras import require

    require("faiss", "index")  # before paraphrases are written
    place = Path(args.index)
    check_place(place)
    was = json.loads((place / MANIFEST).read_text("utf-8")) if is_index(place) else {}
    check_count("votes", args.votes)
    if args.augment:
        check_count("augment", args.augment, ", or 0 for none")
    source, columns = args.faqs, _columns(args)
    if args.augment:
        faqs = read_faqs(source, columns)
        say(f"writing paraphrases of {counted(len(faqs), 'question')}")
        source = augment(faqs, args.model, k=args.augment, progress=True, save_to=place)
        columns = {}
    options = {"store": args.kind, "votes": args.votes, "prompt": args.prompt, "save_to": place}
    index = FaqIndex.build(args.model, source, columns=columns, progress=True, **options)
    kind, size = getattr(index.store, "kind", ""), counted(len(index), "question")
    facts = {"index": args.index, "rows": len(index), "store": kind}
    facts |= {"recall_at_10": round(index.recall, 4)}
    text = f"{args.index}: {size}, {kind}, recall@10 {index.recall:.3f}"
    show([as_json(facts) if args.json else text])
    if was:
        calibration = " with its calibration" if was.get("calibration") else ""
        say(f"This replaced the index in {place}{calibration}.")
    say("The new index has no threshold: choose one with `simbert index calibrate`.")


def _remove_flags(parser: argparse.ArgumentParser) -> None:
    told = "As shown by search --json; put -- before an id like -x."
    parser.add_argument("ids", nargs="+", metavar="ID", help=told)


@contextmanager
def _changing(args: argparse.Namespace) -> Iterator[Any]:
    """Load an index and save the block's changes; concurrent changes take turns."""
    from simbert_hf.index import FaqIndex
    from simbert_hf.index.saving import check_place, read_manifest, turn

    place = Path(args.index)
    check_place(place)
    read_manifest(place)  # raises if there is none
    with turn(place):
        index = FaqIndex.load(place, args.model)
        yield index
        index.save(place)


def change(args: argparse.Namespace) -> None:
    """Add, update or remove rows of an index."""
    with _changing(args) as index:
        if args.action == "remove":
            index.remove(args.ids)
        else:
            getattr(index, args.action)(args.faqs, columns=_columns(args))
    facts = {"index": args.index, "rows": len(index)}
    show([as_json(facts) if args.json else f"{args.index}: {counted(len(index), 'question')}"])
    if index.calibration:
        say("Its threshold is unchanged: recalibrate it once many rows have changed.")


def _search_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("texts", nargs="*", metavar="QUERY", help="By default, lines of stdin.")
    parser.add_argument("-k", type=int, default=5, help="Answers to show (%(default)s).")
    parser.add_argument("--threshold", type=float, help="By default, the calibrated one.")


def search(args: argparse.Namespace) -> None:
    """Answer each query, or show the near misses."""
    from simbert_hf.index.faq_index import NEVER, FaqIndex
    from simbert_hf.utils.text import CONTROL

    texts = texts_of(args.texts, blanks=True)
    index = FaqIndex.load(args.index, args.model)
    known = args.threshold is not None or index.calibration is not None
    if not known:
        say("The index has no threshold, so these are the nearest answers, right or wrong.")
    for block in blocks_of(texts):
        replies = index.answer(block, threshold=args.threshold if known else NEVER, k=args.k)
        for text, reply in zip(block, replies, strict=True):
            decided = known or not reply.hits  # else there is no decision to show
            told = {"answer": reply.answer, "reason": reply.reason} if decided else {}
            if args.json:
                hits = [asdict(hit) for hit in reply.hits]
                show([as_json({"query": text, **told, "hits": hits})])
            else:
                near = (f"  {hit.score:.3f}  {hit.answer}  ({hit.question})" for hit in reply.hits)
                shown = CONTROL.sub("", text)
                show([shown, *([reply.reason] if told else []), *map(hanging, near)])


def _calibrate_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("queries", help="A file of queries with their ids, groups or answers.")
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--false_accept_rate", type=float, help="Maximum, on out-of-scope queries.")
    target.add_argument("--precision", type=float, help="Minimum, among the answers.")
    parser.add_argument("--plot", type=Path, help="Plot scores and rates (.png, .svg).")
    _column_flags(parser, ("query", "id", "group", "answer"))


def calibrate(args: argparse.Namespace) -> None:
    """Choose a threshold and save it in the index."""
    if args.plot:
        from simbert_hf.utils.plots import check_picture

        check_picture(args.plot)
    with _changing(args) as index:
        found = index.calibrate(
            args.queries,
            false_accept_rate=args.false_accept_rate,
            precision=args.precision,
            columns=_columns(args),
        )
    rates = asdict(found.rates)
    if args.json:
        facts = {"threshold": found.threshold, "interval": found.interval, "auroc": found.auroc}
        show([as_json(facts | rates)])
    else:
        show([f"threshold {found.threshold:.4f}", *_rate_lines(rates)])
    if args.plot:
        from simbert_hf.index.plots import plot_calibrations

        plot_calibrations({Path(args.index).name: found}, args.plot)


def _rate_lines(rates: dict[str, dict[str, float]]) -> Iterator[str]:
    for name, rate in rates.items():
        words = name.replace("_", " ")
        interval = f"[{rate['low']:.3f}, {rate['high']:.3f}]"
        found = f"{rate['value']:.3f} {interval} of {rate['count']:,}"
        yield f"{words:14} {found if rate['count'] else 'not known'}"


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
