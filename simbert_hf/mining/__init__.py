"""Training data out of raw text: hard negatives, and paraphrases of one another."""

from __future__ import annotations

from simbert_hf.mining.negatives import MiningSettings, mine_triplets
from simbert_hf.mining.pairs import PairSettings, mine_groups

__all__ = [
    "MiningSettings",
    "PairSettings",
    "mine_groups",
    "mine_triplets",
]
