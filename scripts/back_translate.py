"""Generate sources for sentences: a model's paraphrases, from which it then learns to write them.

python scripts/back_translate.py --model_name_or_path DIR_OR_ID --sentences_file sentences.txt \
    --output_file one_way.jsonl

Sentences are far more plentiful than pairs. The model's paraphrases have mistakes, but the
sentences that it learns to write from them have none (back-translation; Sennrich et al. 2016,
https://arxiv.org/abs/1511.06709): train_simbert.py --one_way_file. A stopped run resumes where it
was; a note beside the file (.work.json) records its inputs.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from simbert_hf import DEFAULT_MODEL, SimBert
from simbert_hf.data import DataError, load_sentences
from simbert_hf.encoders.text_encoder import fingerprint
from simbert_hf.generation.synonyms import load
from simbert_hf.mining.pairs import different
from simbert_hf.utils.atomic import make_room, write_json, write_text
from simbert_hf.utils.locks import alone
from simbert_hf.utils.script import run_script, script_parser
from simbert_hf.utils.text import counted
from simbert_hf.utils.textfiles import fault, read_json, read_objects

BLOCK = 512  # sentences between two writes to the file


def written(path: Path, blocks: Mapping[str, int]) -> tuple[list[str], int]:
    """Read what a stopped run has written, except for its last block, which may be incomplete.

    Returns:
        The lines, and the number of the block to resume with.

    Raises:
        DataError: If the lines belong to other sentences.
    """
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    lines = text.split("\n")[:-1]
    rows = zip(lines, read_objects(path), strict=False)  # the last line may be incomplete
    found = [blocks.get(str(row.get("target")), -1) for _, (_, row) in rows]
    if -1 in found:
        problem = "does not belong to these sentences"
        raise fault(path, found.index(-1) + 1, problem, "Name another --output_file")
    last = max(found, default=0)
    return [line for line, block in zip(lines, found, strict=True) if block < last], last


def claim(path: Path, work: Mapping[str, object]) -> None:
    """Record a file's inputs, or check that they are the same.

    Raises:
        DataError: If it was made from other sentences or another model, seed or share, or from
            unknown inputs.
    """
    note = path.with_name(f"{path.name}.work.json")
    known = read_json(note) if note.exists() else {}
    if path.exists() and known != work:
        other = [name for name in {**known, **work} if known.get(name) != work.get(name)]
        what = f"differs from this run in {', '.join(other)}" if known else "has no note of its run"
        raise DataError(f"{path} {what}: name another --output_file.")
    write_json(note, work)


def back_translate(model: SimBert, texts: Sequence[str], seed: int, most: float) -> list[str]:
    """Paraphrase each text once; skip failures and pairs that share too many words."""
    found = model.gen_synonyms(list(texts), n=1, strategy="sample", seed=seed)
    return [
        json.dumps({"source": source, "target": text}, ensure_ascii=False)
        for sources, text in zip(found, texts, strict=True)
        for source in sources
        if shared(source, text) <= most
    ]


def shared(text: str, other: str) -> float:
    """Return the share of the words of two texts that are in both.

    Example:
        >>> shared("Is it late?", "is it so late?")
        0.75
    """
    words, others = set(text.lower().split()), set(other.lower().split())
    return len(words & others) / len(words | others)


def append(path: Path, lines: Sequence[str]) -> None:
    """Append lines to a file, and wait until they are on the disk."""
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in lines))
        file.flush()
        os.fsync(file.fileno())


def generate(args: argparse.Namespace, texts: Sequence[str]) -> None:
    """Generate and write what is missing."""
    blocks = {text: i // BLOCK for i, text in enumerate(texts)}
    lines, first = written(args.output_file, blocks)
    model = load(args.model_name_or_path)
    digest = sha256("\n".join(texts).encode()).hexdigest()
    work = {"model": fingerprint(model), "seed": args.seed, "max_overlap": args.max_overlap}
    claim(args.output_file, work | {"sentences": digest})
    for start in range(first * BLOCK, len(texts), BLOCK):
        some = texts[start : start + BLOCK]
        new = back_translate(model, some, args.seed + start, args.max_overlap)
        if start == first * BLOCK:  # the former last block is kept until now
            write_text(args.output_file, "".join(f"{line}\n" for line in [*lines, *new]))
        else:
            append(args.output_file, new)
        done = f"{start + len(some):,} of {counted(len(texts), 'sentence')}"
        print(f"{done}: {counted(len(new), 'pair')}", flush=True)


def main(argv: Sequence[str] | None = None) -> None:
    """Read the command line and the sentences; write pairs."""
    parser = script_parser(__doc__)
    add = parser.add_argument
    own = Path(DEFAULT_MODEL).name
    add("--model_name_or_path", default=own, help="The model that paraphrases.")
    add("--sentences_file", required=True, nargs="+", help="Sentences, one per line.")
    add("--output_file", required=True, type=Path, help=".jsonl: columns source and target.")
    add("--max_overlap", type=float, default=0.8, help="Maximum share of words in common.")
    add("--seed", type=int, default=0, help="Seed of the samples.")
    args = parser.parse_args(argv)
    if not 0 <= args.max_overlap <= 1:
        raise ValueError(
            f"--max_overlap {args.max_overlap} is not a share: give a number from 0 to 1."
        )
    if args.output_file.suffix != ".jsonl":
        raise ValueError(f"--output_file {args.output_file}: name a .jsonl file for the pairs.")
    make_room(args.output_file, args.sentences_file)
    texts = different([text for file in args.sentences_file for text in load_sentences(file)])
    out = args.output_file
    with alone(out.with_name(f"{out.name}.lock"), out) as free:  # two runs would append each block
        if not free:
            raise ValueError(
                f"--output_file {out} is in use by another process: wait for it, or name another "
                "file."
            )
        generate(args, texts)


if __name__ == "__main__":
    run_script(main)
