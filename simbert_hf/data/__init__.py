"""Files -> groups, pairs and triplets of sentences: text only."""

from __future__ import annotations

from simbert_hf.data.batching import LengthGroupedBatchSampler
from simbert_hf.data.grouping import DataReport
from simbert_hf.data.groups import labelled_sentences, load_groups, split_groups, usual_share
from simbert_hf.data.sampling import FixedPairs, Pair, PairDataset
from simbert_hf.data.scored import ScoredPair, load_labelled_pairs, load_scored_pairs
from simbert_hf.data.streams import PairStream
from simbert_hf.data.triplets import Triplet, load_one_way_pairs, load_triplets
from simbert_hf.utils.textfiles import DataError, load_sentences

__all__ = [
    "DataError",
    "DataReport",
    "FixedPairs",
    "LengthGroupedBatchSampler",
    "Pair",
    "PairDataset",
    "PairStream",
    "ScoredPair",
    "Triplet",
    "labelled_sentences",
    "load_groups",
    "load_labelled_pairs",
    "load_one_way_pairs",
    "load_scored_pairs",
    "load_sentences",
    "load_triplets",
    "split_groups",
    "usual_share",
]
