"""Files -> groups, pairs and triplets of sentences: text only."""

from __future__ import annotations

from simbert_hf.data.batching import LengthGroupedBatchSampler
from simbert_hf.data.groups import (
    labelled_sentences,
    load_groups,
    load_texts,
    split_groups,
    usual_share,
)
from simbert_hf.data.sampling import FixedPairs, Pair, PairDataset
from simbert_hf.data.scored import load_scored_pairs
from simbert_hf.data.streams import PairStream
from simbert_hf.data.triplets import Triplet, load_one_way_pairs, load_triplets
from simbert_hf.utils.textfiles import DataError, load_sentences

__all__ = [
    "DataError",
    "FixedPairs",
    "LengthGroupedBatchSampler",
    "Pair",
    "PairDataset",
    "PairStream",
    "Triplet",
    "labelled_sentences",
    "load_groups",
    "load_one_way_pairs",
    "load_scored_pairs",
    "load_sentences",
    "load_texts",
    "load_triplets",
    "split_groups",
    "usual_share",
]
