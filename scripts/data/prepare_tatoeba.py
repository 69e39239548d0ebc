"""Make the demo's training data from a file of {"text", "synonyms"} records.

Each pair of sentences stands there in both directions; here each unordered pair stands once.

    python scripts/data/prepare_tatoeba.py en_synonyms.jsonl scripts/data/tatoeba_en/pairs.jsonl.gz
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from simbert_hf.utils.script import run_script, script_parser
from simbert_hf.utils.text import fold
from simbert_hf.utils.textfiles import read_objects


def unique_pairs(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield records whose pairs did not occur before, compared without case and white space."""
    seen: set[frozenset[str]] = set()
    for _, row in read_objects(path):
        text, *others = (text.strip() for text in (row["text"], *row["synonyms"]))
        synonyms = []
        for synonym in others:
            pair = frozenset((fold(text), fold(synonym)))
            if len(pair) == 2 and pair not in seen:
                seen.add(pair)
                synonyms.append(synonym)
        if synonyms:
            yield text, synonyms


def write_lines(target: Path, records: Sequence[dict[str, Any]]) -> None:
    """Write records, packed so that the same input gives the same bytes; print their number."""
    lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(lines.encode(), compresslevel=9, mtime=0))
    print(f"{len(records):,} records, {target.stat().st_size:,} bytes")


def write_records(target: Path, records: Sequence[dict[str, Any]]) -> None:
    """Write records of pairs; print the number of pairs, too."""
    write_lines(target, records)
    print(f"{sum(len(record['synonyms']) for record in records):,} pairs")


def main() -> None:
    """Make the records and write them."""
    parser = script_parser(__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    args = parser.parse_args()
    records = [{"text": a, "synonyms": rest} for a, rest in unique_pairs(args.source)]
    write_records(args.target, records)


if __name__ == "__main__":
    run_script(main)
