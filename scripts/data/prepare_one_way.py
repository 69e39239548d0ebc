"""Give people's sentences sources to be written from: a model's paraphrases of them.

What the model writes has slips, and what it learns to write from that has none (back-translation;
Sennrich et al. 2016, https://arxiv.org/abs/1511.06709). There are far more sentences than pairs.

    python scripts/data/prepare_one_way.py --model simbert-minilm-en --limit 80000 \
        --questions banking77/train.csv clinc150/train.csv --sentences tatoeba/en_sentences.txt.xz \
        --held_out english-held-out.jsonl scripts/data/questions_en/test_questions.jsonl \
        --written outputs/one-way.jsonl --target scripts/data/one_way_en/pairs.jsonl.gz

A fifth are questions, as long as there are any. What has been written to `--written` stays: run it
again to go on.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from random import Random

from prepare_tatoeba import texts_of, write_lines

from simbert_hf import SimBert
from simbert_hf.data import load_sentences
from simbert_hf.data.readers import fold

BLOCK = 1024  # sentences at a time
SHORTEST, LONGEST = 12, 100  # characters
QUESTIONS = 0.2
ALIKE = 0.8  # share of words in common from which a source teaches to copy


def draw(questions: Iterable[str], sentences: Iterable[str], hidden: set[str]) -> list[str]:
    """Shuffle both, and mix them; each text once, hidden ones never."""
    piles, seen, random = [], set(hidden), Random(0)
    for texts in (questions, sentences):
        pile = []
        for text in texts:
            if fold(text) not in seen and SHORTEST <= len(text) <= LONGEST:
                seen.add(fold(text))
                pile.append(text)
        random.shuffle(pile)
        piles.append(pile)
    mixed = []
    while any(piles):
        first, second = piles
        asked = not second or (first and random.random() < QUESTIONS)
        mixed.append((first if asked else second).pop())
    return mixed


def write(model: SimBert, texts: Sequence[str], seed: int) -> list[dict[str, str]]:
    """Paraphrase a block of texts, once each; those that nothing fits are left out."""
    found = model.gen_synonyms(sorted(texts, key=len), n=1, k=1, seed=seed)
    pairs = zip(found, sorted(texts, key=len), strict=True)
    return [{"source": source, "target": text} for some, text in pairs for source in some]


def likeness(text: str, other: str) -> float:
    """Share of the words of both that both have."""
    words, others = set(text.lower().split()), set(other.lower().split())
    return len(words & others) / len(words | others)


def main() -> None:
    """Write what is not written, and keep what teaches."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--questions", type=Path, nargs="+", required=True, help="text,label")
    parser.add_argument("--sentences", nargs="+", required=True, help="one a line")
    parser.add_argument("--held_out", type=Path, nargs="+", required=True, help="groups")
    parser.add_argument("--limit", type=int, required=True, help="sentences to paraphrase")
    parser.add_argument("--written", type=Path, required=True, help="keeps the paraphrases")
    parser.add_argument("--target", type=Path, required=True)
    args = parser.parse_args()
    rows = chain.from_iterable(list(csv.reader(file.open()))[1:] for file in args.questions)
    sentences = chain.from_iterable(map(load_sentences, args.sentences))
    hidden = {fold(text) for file in args.held_out for text in texts_of(file)}
    texts = draw((row[0] for row in rows), sentences, hidden)[: args.limit]
    args.written.touch()
    blocks = [json.loads(line) for line in args.written.read_text(encoding="utf-8").splitlines()]
    model = SimBert.from_pretrained(args.model)
    for number in range(len(blocks), -(-len(texts) // BLOCK)):
        blocks.append(write(model, texts[number * BLOCK : (number + 1) * BLOCK], number))
        with args.written.open("a", encoding="utf-8") as file:
            file.write(json.dumps(blocks[-1]) + "\n")
        print(f"{sum(map(len, blocks))} pairs", flush=True)
    pairs = chain.from_iterable(blocks)
    write_lines(args.target, [pair for pair in pairs if likeness(*pair.values()) < ALIKE])


if __name__ == "__main__":
    main()
