"""Names in English by how often people write them with a capital: simbert_hf/generation/names.txt.

python scripts/data/prepare_names.py tatoeba/en_sentences.txt.xz wiki/en_sentences.txt.xz
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from simbert_hf.utils.atomic import write_text
from simbert_hf.utils.script import run_script, script_parser
from simbert_hf.utils.textfiles import read_lines

NAMES = Path(__file__).parents[2] / "simbert_hf" / "generation" / "names.txt"
WORD = re.compile(r"(?<=[a-z,;] )(?:[A-Z]?[a-z]+)\b")  # within a sentence
LEAST = 40  # times with a capital
OTHERWISE = 0.01  # of these, at most so many more times without


def main() -> None:
    """Count, and write the names in the order of the alphabet."""
    parser = script_parser(__doc__)
    parser.add_argument("files", nargs="+", help="Sentences, one a line.")
    words = Counter[str]()
    for file in parser.parse_args().files:
        for sentence in read_lines(file):
            words.update(WORD.findall(sentence))
    names = [
        word.lower()
        for word, count in words.items()
        if count >= LEAST and word[0].isupper() and words[word.lower()] <= OTHERWISE * count
    ]
    write_text(NAMES, "".join(f"{name}\n" for name in sorted(names)))
    print(f"{NAMES}: {len(names):,} names")


if __name__ == "__main__":
    run_script(main)
