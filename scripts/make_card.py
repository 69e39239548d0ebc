"""Write a model's card from its run's own files and the JSON of its evaluations.

python scripts/make_card.py --model outputs/mine --language en --license apache-2.0 \
    --base_model org/start --evaluation outputs/evaluation/results.json \
    --paraphrases outputs/paraphrases/paraphrases.json --output model_cards/mine/README.md
(or: python scripts/make_card.py model_cards/mine/card.yaml)

Every training run writes a basic card to its directory; this one has more.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from simbert_hf.cards import CardArguments, write_card
from simbert_hf.utils.parsing import parse_arguments
from simbert_hf.utils.script import run_script


def main(argv: Sequence[str] | None = None) -> Path:
    """Write the card; return its path."""
    (args,) = parse_arguments((CardArguments,), argv)
    path = write_card(args)
    print(path)
    return path


if __name__ == "__main__":
    run_script(main)
