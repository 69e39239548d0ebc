"""Data and batches of P groups of K sentences each, for in-batch mining."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import datasets
import numpy as np
import torch
from pyarrow.compute import list_value_length
from torch import Tensor

from simbert_hf.collators import TextCollator
from simbert_hf.data.sampling import EpochDataset, check_groups
from simbert_hf.utils.arrays import Ints


class Members(TypedDict):
    """Sentences that mean the same.

    Attributes:
        texts: K sentences, or fewer if the group has no more.
        group: Number of the group; members of the same one must not be each other's negatives.
    """

    texts: list[str]
    group: int


class MemberDataset(EpochDataset[Members]):
    """Groups split into parts of K sentences; split anew each epoch, by (seed, epoch, row) alone.

    A group of n sentences gives n // K parts, so that an epoch sees nearly every sentence once; one
    of fewer than K sentences gives a single part.

    Args:
        groups: A data set of groups.
        size: K, the number of sentences per part.
        seed: Seed of the splits.

    Raises:
        ValueError: If K is below 2.

    Example:
        >>> texts = [["a", "b", "c", "d", "e"], ["x", "y"]]
        >>> groups = datasets.Dataset.from_dict({"texts": texts, "group": [0, 1]})
        >>> parts = MemberDataset(groups, size=2, seed=0)
        >>> [part["texts"] for part in parts]
        [['c', 'e'], ['d', 'a'], ['y', 'x']]
    """

    def __init__(self, groups: datasets.Dataset, size: int = 2, seed: int = 0) -> None:
        if size < 2:
            raise ValueError(f"{size} sentences per group make no positive pair; give at least 2.")
        super().__init__(seed)
        check_groups(groups)
        self.groups = groups
        self.size = size
        texts = groups.with_format("arrow")[:]["texts"]  # combined, they may exceed an array's 2 GB
        sizes = list_value_length(texts).to_numpy().astype(np.int64)
        parts = np.maximum(sizes // size, 1)
        self._row = np.repeat(np.arange(len(sizes)), parts)
        self._part = np.arange(len(self._row)) - np.repeat(np.cumsum(parts) - parts, parts)
        self._sizes = sizes

    def __len__(self) -> int:
        return len(self._row)

    def __getitems__(self, indices: Sequence[int]) -> list[Members]:
        """Draw several parts in one read of the data set; called by a DataLoader."""
        parts = [range(len(self))[i] for i in indices]
        rows, at = np.unique(self._row[parts], return_inverse=True)  # a large group only once
        found = self.groups[rows]
        texts, groups = found["texts"], found["group"]
        return [
            Members(texts=[texts[i][j] for j in self._drawn(part)], group=groups[i])
            for part, i in zip(parts, at, strict=True)
        ]

    def _drawn(self, part: int) -> Ints:
        """Places of a part's sentences in their group: (K,)."""
        row, start = int(self._row[part]), int(self._part[part]) * self.size
        rng = np.random.default_rng([self.seed, self.epoch, row])
        return rng.permutation(self._sizes[row])[start : start + self.size]


class MemberCollator(TextCollator):
    """Collates parts of groups into padded rows, those of a part side by side."""

    def __call__(self, parts: Sequence[Members]) -> dict[str, Tensor]:
        """Build one batch of B rows, P * K if every part is complete.

        Returns:
            ``input_ids``, ``attention_mask`` and, if the tokenizer returns them,
            ``token_type_ids``: (B, L); ``groups``: (B,).
        """
        batch = self.pad(text for part in parts for text in part["texts"])
        batch["groups"] = torch.tensor([part["group"] for part in parts for _ in part["texts"]])
        return batch

    def lengths(self, parts: Sequence[Members]) -> Ints:
        """Count the tokens of the longest sentence of each of N parts: (N,)."""
        found = self.row_lengths(text for part in parts for text in part["texts"])
        sizes = np.array([len(part["texts"]) for part in parts])
        return np.maximum.reduceat(found, np.cumsum(sizes) - sizes)
