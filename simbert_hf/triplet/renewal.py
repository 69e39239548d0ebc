"""Triplets whose negatives are mined again by the model in training, every so many steps."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from accelerate import PartialState
from accelerate.utils import broadcast_object_list

from simbert_hf.data import FixedPairs, load_triplets
from simbert_hf.data.sampling import EpochDataset, Pair
from simbert_hf.data.triplets import Triplet
from simbert_hf.mining.negatives import MiningSettings, mine_triplets, write_triplets
from simbert_hf.modeling.embedding import evaluating
from simbert_hf.training.saving import CheckpointPart

logger = logging.getLogger(__name__)

MINED = "mined.csv"  # in a checkpoint


class RenewedTriplets(EpochDataset[Pair]):
    """Triplets of groups; an epoch is the training between two minings.

    Args:
        groups: A data set of groups.
        size: Number of triplets per epoch, drawn from the mined ones.
        seed: Seed of the draws.

    Example:
        >>> from simbert_hf.data.triplets import Triplet
        >>> groups = datasets.Dataset.from_dict({"texts": [["Hi", "Hello"]], "group": [0]})
        >>> renewed = RenewedTriplets(groups, size=3)
        >>> renewed.renew([Triplet("Hi", "Hello", "Bye")])
        >>> len(renewed), renewed[2]["negative"]
        (3, 'Bye')
    """

    def __init__(self, groups: datasets.Dataset, size: int, seed: int = 0) -> None:
        super().__init__(seed)
        self.groups = groups
        self.size = size
        self.mined: Sequence[Triplet] = ()
        self._drawn = FixedPairs({"source": (), "target": (), "negative": ()})

    def renew(self, mined: Sequence[Triplet]) -> None:
        """Draw this epoch's triplets from newly mined ones, each once before any twice."""
        self.mined = mined
        rng = np.random.default_rng([self.seed, self.epoch])
        rounds = -(-self.size // len(mined))
        order = np.concatenate([rng.permutation(len(mined)) for _ in range(rounds)])[: self.size]
        columns = zip(*(mined[i] for i in order), strict=True)
        names = ("source", "target", "negative")
        self._drawn = FixedPairs(dict(zip(names, columns, strict=True)), self.seed)

    @property
    def rows(self) -> int:
        """Number of sentences, each of which may be an anchor."""
        return sum(map(len, self.groups["texts"]))

    def __len__(self) -> int:
        return self.size

    def __getitems__(self, indices: Sequence[int]) -> list[Pair]:
        """Return several triplets; called by a DataLoader."""
        return self._drawn.__getitems__(indices)


class Renewal(CheckpointPart):
    """Mines before each epoch; a run resumed within one uses the triplets of its checkpoint.

    Args:
        triplets: The triplets to renew.
        steps: Steps per epoch.
        settings: What counts as a hard negative.
    """

    def __init__(self, triplets: RenewedTriplets, steps: int, settings: MiningSettings) -> None:
        self.triplets = triplets
        self.steps = steps
        self.settings = settings
        self.checkpoint: Path | None = None

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Renew the triplets."""
        epoch, done = divmod(state.global_step, self.steps)
        self.triplets.set_epoch(epoch)
        found: list[Any] = [None]
        if PartialState().is_main_process:  # for all
            resumed = self.checkpoint if done else None
            found = [load_triplets(resumed / MINED) if resumed else self._mine(kwargs["model"])]
        self.triplets.renew(broadcast_object_list(found)[0])

    def _mine(self, model: Any) -> list[Triplet]:
        seed = self.triplets.seed + self.triplets.epoch
        with evaluating(model):
            encoder = model.sentence_transformer()
            mined = mine_triplets(self.triplets.groups, encoder, self.settings, seed=seed)
        logger.info("mined %s triplets", f"{len(mined):,}")
        return mined

    def load(self, directory: Path) -> None:
        """Remember the checkpoint that the run resumes from."""
        self.checkpoint = directory

    def save(self, directory: Path) -> None:
        """Write the triplets into a checkpoint."""
        if PartialState().is_main_process:
            write_triplets(directory / MINED, self.triplets.mined)
