"""Groups -> pairs of two members, drawn anew each epoch; and fixed pairs.

Every draw depends only on (seed, epoch, row), so it is the same after a resume, in any worker and
with any number of processes. The data set keeps the epoch in shared memory, where worker processes
that outlive an epoch see it change, and a sampler reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NotRequired, TypedDict, TypeVar

import datasets
import numpy as np
import torch
from torch.utils.data import Dataset

from simbert_hf.utils.arrays import Hashes, Ints
from simbert_hf.utils.checks import is_finite
from simbert_hf.utils.text import fold


class Pair(TypedDict):
    """Two sentences: members of a group, or a pair from a file.

    Attributes:
        source: One sentence.
        target: The other; the same one for SimCSE without labels.
        group: Groups with the same number must not be negatives of each other.
        seed: For whatever else is random about this pair in this epoch: 0 to 2**63 - 1.
        negative: A hard negative of the source, in triplets only.
        target_group: In triplets, the target's number: equal sentences have equal numbers.
        negative_group: In triplets, the negative's number.
        score: How similar people found the two, in scored pairs only.
        label: The class of the source, in labelled sentences only.
        position: Where to resume after this pair, in streams only.
    """

    source: str
    target: str
    group: int
    seed: int
    negative: NotRequired[str]
    target_group: NotRequired[int]
    negative_group: NotRequired[int]
    score: NotRequired[float]
    label: NotRequired[int]
    position: NotRequired[Any]


# The keys of the groups of a triplet's sentences.
GROUP_OF = {"source": "group", "target": "target_group", "negative": "negative_group"}

Example = TypeVar("Example", covariant=True)


def mix(values: Hashes) -> Hashes:
    """Scramble bits (the finaliser of splitmix64): (N,)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def random_bits(seed: int, epoch: int, rows: Ints) -> Hashes:
    """Draw three random numbers for each row, which depend only on (seed, epoch, row): (3, N).

    Example:
        >>> a, b = random_bits(0, 1, np.array([5, 6])), random_bits(0, 1, np.array([6]))
        >>> a.shape, bool((a[:, 1:] == b).all())
        ((3, 2), True)
    """
    key = mix(np.array([seed], dtype=np.int64).astype(np.uint64))
    key = mix(key + np.uint64(epoch))
    streams = np.arange(1, 4, dtype=np.uint64)[:, None] * np.uint64(0x9E3779B97F4A7C15)
    return mix(mix(key + rows.astype(np.uint64)) + streams)


def _draw(bits: Hashes, sizes: Ints) -> tuple[Ints, Ints]:
    """Choose two different positions below each size, uniformly: (N,), (N,)."""
    if sizes.min(initial=2) < 2:
        raise ValueError("A group of one sentence makes no pair: drop it.")
    n = sizes.astype(np.uint64)
    first = bits[0] % n
    second = (first + np.uint64(1) + bits[1] % (n - np.uint64(1))) % n
    return first.astype(np.int64), second.astype(np.int64)


def make_pairs(texts: Sequence[Sequence[str]], groups: Sequence[int], bits: Hashes) -> list[Pair]:
    """Draw a pair from each of N groups by their (3, N) random bits."""
    first, second = _draw(bits, np.array([len(members) for members in texts]))
    return [
        Pair(source=members[a], target=members[b], group=int(group), seed=int(seed))
        for members, a, b, group, seed in zip(
            texts, first, second, groups, bits[2] >> np.uint64(1), strict=True
        )
    ]


class EpochDataset(Dataset[Example]):
    """A data set whose examples are drawn anew each epoch."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self._epoch = torch.tensor(0).share_memory_()  # worker processes see it change

    @property
    def epoch(self) -> int:
        """The current epoch, whose examples are drawn."""
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """Draw the examples of this epoch from now on, in every worker process."""
        self._epoch.fill_(epoch)

    @property
    def rows(self) -> int:
        """Number of rows that examples are drawn from: those of an epoch, or more."""
        return len(self)

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, index: int) -> Example:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Example]:
        """Return several examples; a DataLoader calls this."""
        raise NotImplementedError


def check_groups(groups: object) -> None:
    """Raise a TypeError unless an object is a data set of groups."""
    if not {"texts", "group"} <= {*(getattr(groups, "column_names", None) or ())}:
        raise TypeError(
            f"groups is a {type(groups).__name__} without columns `texts` and `group`: give the "
            "data set that `load_groups` returns first."
        )


class PairDataset(EpochDataset[Pair]):
    """A pair from each group; a new one each epoch.

    Args:
        groups: A data set of groups.
        seed: Random seed for the choice of pairs.

    Example:
        >>> groups = datasets.Dataset.from_dict({"texts": [["Hi", "Hello", "Hey"]], "group": [0]})
        >>> pairs = PairDataset(groups, seed=0)
        >>> pairs[0]["source"], pairs[0]["target"]
        ('Hello', 'Hey')
        >>> pairs.set_epoch(1)
        >>> pairs[0]["source"], pairs[0]["target"]
        ('Hey', 'Hi')
    """

    def __init__(self, groups: datasets.Dataset, seed: int = 0) -> None:
        super().__init__(seed)
        check_groups(groups)
        self.groups = groups

    def __len__(self) -> int:
        return len(self.groups)

    def __getitems__(self, indices: Sequence[int]) -> list[Pair]:
        """Draw several pairs with one access to the data set; a DataLoader calls this."""
        rows = [range(len(self))[i] for i in indices]
        columns = self.groups[rows]
        bits = random_bits(self.seed, self.epoch, np.array(rows))
        return make_pairs(columns["texts"], columns["group"], bits)


class FixedPairs(EpochDataset[Pair]):
    """Pairs that stay the same: a sentence with itself, triplets or scored pairs.

    Args:
        columns: ``source`` and ``target``, and optionally ``negative``, ``score`` or ``label``, of
            equal length; or a ``datasets.Dataset`` of such columns, which is read into memory.
            Rows whose sources are equal, except in case and white space, form a group; targets and
            negatives of triplets are numbered in the same way. A ``group`` or ``seed`` is replaced.
        seed: Random seed for each pair's ``seed``, a new one each epoch.

    Raises:
        TypeError: If a sentence is not a string, or a score not a finite number.
        ValueError: If there is no source or no target, or columns differ in length.

    Example:
        >>> pairs = FixedPairs({"source": ["Hi", "Bye"], "target": ["Hi", "Bye"]})
        >>> pairs[1]["source"], pairs[1]["target"], pairs[1]["group"]
        ('Bye', 'Bye', 1)
    """

    def __init__(
        self, columns: Mapping[str, Sequence[Any]] | datasets.Dataset, seed: int = 0
    ) -> None:
        super().__init__(seed)
        columns = columns.to_dict() if isinstance(columns, datasets.Dataset) else columns
        if not isinstance(columns, Mapping):
            raise TypeError(
                f"columns is a {type(columns).__name__}: give lists by name, or a datasets.Dataset."
            )
        if not {"source", "target"} <= {*columns}:
            raise ValueError(f"Pairs need columns source and target; these are {[*columns]}.")
        self.columns = dict(columns)
        sizes = {name: len(column) for name, column in columns.items()}
        if len(set(sizes.values())) > 1:
            raise ValueError(f"Columns of pairs must be equally long; these are: {sizes}.")
        for name in columns.keys() & {*GROUP_OF, "score"}:
            check_column(name, columns[name])
        number: dict[str, int] = {}
        self._groups = {
            name: [number.setdefault(fold(text), len(number)) for text in columns[side]]
            for side, name in GROUP_OF.items()
            if side == "source" or "negative" in columns
        }

    def __len__(self) -> int:
        return len(self._groups["group"])

    def __getitems__(self, indices: Sequence[int]) -> list[Pair]:
        """Return several pairs; a DataLoader calls this."""
        rows = [range(len(self))[i] for i in indices]
        seeds = random_bits(self.seed, self.epoch, np.array(rows))[2] >> np.uint64(1)
        columns = self.columns | self._groups
        pairs: list[Any] = [
            {name: column[i] for name, column in columns.items()} | {"seed": int(seed)}
            for i, seed in zip(rows, seeds, strict=True)
        ]
        return pairs


def check_column(name: str, values: Iterable[Any]) -> None:
    """Raise a TypeError unless a column holds sentences or, if its name is score, numbers."""
    for i, value in enumerate(values):
        if name != "score" and not isinstance(value, str):
            raise TypeError(f"{name} {i} is {type(value).__name__} {value!r:.40}; pass strings.")
        if name == "score" and not is_finite(value):
            raise TypeError(f"score {i} is {value!r:.40}; pass finite numbers, or drop the pair.")
