"""Make preferences and groups out of paraphrases that a reader rated.

To each paraphrase that is not good, one that is good (the reader's own, too) is preferred: the one
most like it, so that they differ in little but the fault. The good ones make a group with the text.

    python scripts/data/prepare_rated.py scripts/data/rated_en/ratings*.jsonl.gz outputs/rated
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from pathlib import Path
from random import Random
from typing import Any

from prepare_tatoeba import write_lines

from simbert_hf.utils.script import run_script, script_parser
from simbert_hf.utils.text import CJK
from simbert_hf.utils.textfiles import read_objects

GOOD = 2  # the highest rating
WORD = re.compile(rf"[{CJK}]|[^\s{CJK}]+")  # or a character of Chinese or Japanese


def likeness(text: str, other: str) -> float:
    """Return the share of words that two sentences have in common, in order."""
    return SequenceMatcher(None, WORD.findall(text), WORD.findall(other)).ratio()


def good_ones(row: Mapping[str, Any]) -> list[str]:
    """Return the good paraphrases of a sentence, the reader's own last."""
    rated = zip(row["candidates"], row["ratings"], strict=True)
    return [text for text, rating in rated if rating == GOOD] + row["own"]


def prefer(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield preferred and rejected paraphrases of a sentence."""
    good = good_ones(row)
    for text, rating in zip(row["candidates"], row["ratings"], strict=True):
        if good and rating < GOOD:
            yield max(good, key=lambda one: likeness(one, text)), text


def main() -> None:
    """Read ratings and write both files."""
    parser = script_parser(__doc__)
    parser.add_argument("ratings", type=Path, nargs="+", help="files")
    parser.add_argument("target", type=Path, help="folder")
    args = parser.parse_args()
    rows = [row for path in args.ratings for _, row in read_objects(path)]
    preferences = [
        {"prompt": row["text"], "chosen": chosen, "rejected": rejected}
        for row in rows
        for chosen, rejected in prefer(row)
    ]
    Random(0).shuffle(preferences)
    write_lines(args.target / "preferences.jsonl.gz", preferences)
    groups = [{"text": row["text"], "synonyms": good} for row in rows if (good := good_ones(row))]
    write_lines(args.target / "groups.jsonl.gz", groups)


if __name__ == "__main__":
    run_script(main)
