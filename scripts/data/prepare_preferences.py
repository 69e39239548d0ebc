"""Make preferences out of a model's own paraphrases: grammatical ones to those with a slip.

Link Grammar, a parser of English (Debian's python3-link-grammar), tells which of the paraphrases of
each sentence it can read without leaving words out. The likest of these is preferred to each of the
four best others, if its cosine with the sentence is about as high.

    python scripts/data/prepare_preferences.py --model outputs/release/english-6-english_anchored \
        --held_out outputs/release/english-held-out.jsonl --written outputs/written.jsonl \
        --target scripts/data/preferences_en/preferences.jsonl.gz

What has been written is read again from `--written`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from link_grammar import Parser
from prepare_rated import likeness
from prepare_tatoeba import write_lines

from simbert_hf import SimBert
from simbert_hf.utils.script import run_script, script_parser
from simbert_hf.utils.text import fold
from simbert_hf.utils.textfiles import read_objects

HERE = Path(__file__).parent
DRAWN = {"questions_en": 3000, "tatoeba_en": 2000}  # sentences of each
WRITTEN, BLOCK = 24, 500  # paraphrases of each, and sentences at a time
LIKELIEST = 4  # of the rejected ones of a sentence
LOST = 0.05  # cosine that a preferred one may have less

Candidate = tuple[str, float, float]  # text, cosine with the source, mean log-probability


def texts_of(path: Path) -> list[str]:
    """Read the sentences of groups."""
    return [text for _, row in read_objects(path) for text in (row["text"], *row["synonyms"])]


def draw(held_out: Path) -> list[str]:
    """Draw sentences that are not held out, in the same order each time."""
    hidden, random, drawn = set(map(fold, texts_of(held_out))), Random(1), []
    for name, count in DRAWN.items():
        known = dict.fromkeys(texts_of(HERE / name / "pairs.jsonl.gz"))
        texts = [text for text in known if fold(text) not in hidden and 8 <= len(text) <= 100]
        random.shuffle(texts)
        drawn += texts[:count]
    random.shuffle(drawn)
    return drawn


def write(model: str, sources: Sequence[str], target: Path) -> None:
    """Paraphrase the sources into a file, each with its candidates, best first."""
    simbert, lines = SimBert.from_pretrained(model), []
    for first in range(0, len(sources), BLOCK):
        some = list(sources[first : first + BLOCK])
        found = simbert.gen_synonyms(
            some, WRITTEN, WRITTEN, strategy="sample", seed=first, return_scores=True
        )
        for text, row in zip(some, found, strict=True):
            candidates = [(one.text, one.similarity, one.log_prob) for one in row]
            lines.append(json.dumps({"text": text, "candidates": candidates}))
        print(f"{len(lines)} sentences", flush=True)
    target.write_text("\n".join(lines), encoding="utf-8")


def prefer(candidates: Sequence[Candidate], parses: Parser) -> Iterator[tuple[str, str]]:
    """Yield preferred and rejected paraphrases of a sentence."""
    good = [one for one in candidates if parses(one[0])]
    bad = [one for one in candidates if not parses(one[0])]
    for text, cosine, _ in bad[:LIKELIEST]:
        near = [one for one in good if one[1] >= cosine - LOST]
        if near:
            yield max(near, key=lambda one: likeness(one[0], text))[0], text


def main() -> None:
    """Write what is not written, read it, and keep what is preferred."""
    parser = script_parser(__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--held_out", type=Path, required=True, help="groups that stay unseen")
    parser.add_argument("--written", type=Path, required=True, help="keeps the paraphrases")
    parser.add_argument("--target", type=Path, required=True)
    args = parser.parse_args()
    if not args.written.exists():
        write(args.model, draw(args.held_out), args.written)
    parses, records = Parser(), []
    for line in args.written.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if parses(row["text"]):
            for chosen, rejected in prefer(row["candidates"], parses):
                records.append({"prompt": row["text"], "chosen": chosen, "rejected": rejected})
    Random(0).shuffle(records)
    write_lines(args.target, records)


if __name__ == "__main__":
    run_script(main)
