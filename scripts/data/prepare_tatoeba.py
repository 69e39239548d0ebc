"""Make the demo's training data from a file of {"text", "synonyms"} records.

Each pair of sentences stands there in both directions; here each unordered pair stands once.

    python scripts/data/prepare_tatoeba.py en_synonyms.jsonl scripts/data/tatoeba_en/pairs.jsonl.gz
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

from simbert_hf.readers import normalize
from simbert_hf.textfiles import read_objects


def unique_pairs(path: Path) -> Iterator[dict[str, object]]:
    """Yield records whose pairs did not occur before, compared without case and white space."""
    seen: set[frozenset[str]] = set()
    for _, row in read_objects(path):
        text, synonyms = str(row["text"]).strip(), []
        for synonym in row["synonyms"]:  # type: ignore[attr-defined]
            pair = frozenset((normalize(text), normalize(synonym)))
            if len(pair) == 2 and pair not in seen:
                seen.add(pair)
                synonyms.append(synonym.strip())
        if synonyms:
            yield {"text": text, "synonyms": synonyms}


def main() -> None:
    """Write the records, packed so that the same input gives the same bytes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    args = parser.parse_args()
    records = list(unique_pairs(args.source))
    lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    args.target.parent.mkdir(parents=True, exist_ok=True)
    args.target.write_bytes(gzip.compress(lines.encode(), compresslevel=9, mtime=0))
    pairs = sum(len(record["synonyms"]) for record in records)  # type: ignore[arg-type]
    print(f"{len(records):,} records, {pairs:,} pairs, {args.target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
