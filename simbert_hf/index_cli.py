"""The command ``simbert index``: build, change, search and calibrate an FAQ index."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from simbert_hf import DEFAULT_MODEL
from simbert_hf.utils.console import as_json, blocks_of, hanging, say, show, texts_of
from simbert_hf.utils.text import counted


def add_index(commands: Any) -> None:
    """Add the command ``index`` and its actions to the parser's commands."""
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
