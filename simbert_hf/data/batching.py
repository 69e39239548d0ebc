"""Batches of similar length, measured in tokens, so that there is little padding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from accelerate.data_loader import prepare_data_loader
from torch.utils.data import DataLoader, Sampler

from simbert_hf.data.sampling import EpochDataset
from simbert_hf.utils.arrays import Ints
from simbert_hf.utils.text import counted
from simbert_hf.utils.textfiles import DataError

Measure = Callable[[Sequence[Any]], Ints]


class Collator(Protocol):
    """Turns examples into tensors, and knows how long their rows will be."""

    def __call__(self, examples: Sequence[Any], /) -> dict[str, Any]:
        """Build one batch."""

    def lengths(self, examples: Sequence[Any], /) -> Ints:
        """Count the tokens of the longest row that each of N examples makes: (N,)."""


class LengthGroupedBatchSampler(Sampler[list[int]]):
    """Batches of random examples of similar length, for one of several processes.

    A random order is dealt to the processes. Each cuts its part into windows, sorts each window by
    the length of the examples drawn this epoch, cuts it into batches, and shuffles these, in the
    same order in all processes: so their batches of a step are of similar length, and none waits
    for another. The epoch is the data set's. Lengths are in tokens: English pairs sorted by
    characters are padded to 1.34 x their tokens, by tokens to 1.04 x.

    Args:
        dataset: Examples; its epoch is the sampler's.
        batch_size: Examples per batch.
        lengths: Counts the tokens of each example's longest row, as a collator's ``lengths``.
        seed: Random seed for the order of the batches.
        window: Batches per window: 1 is a random order; more save more padding.
        drop_last: Leave out the examples that do not fill a batch for each process, different ones
            each epoch; else some are repeated, so that all processes have equally many.
        process: Number of this process, from 0.
        processes: Number of processes.
        even_tokens: Cut windows into batches of equally many tokens (including padding) instead of
            examples. An average batch has ``batch_size`` examples, so that the number of steps per
            epoch stays the same; the smallest has two (unless ``batch_size`` is 1). The processes'
            batches of a step have equally many examples, for which each counts the tokens of all.

    Raises:
        DataError: If the examples do not fill one batch for each process.
        ValueError: If a number is out of range, or ``even_tokens`` cannot work with the others.

    Example:
        >>> import datasets
        >>> from simbert_hf.data.sampling import PairDataset
        >>> texts = [[x, x.upper()] for x in ("a", "bbbb", "c", "d")]
        >>> groups = datasets.Dataset.from_dict({"texts": texts, "group": range(4)})
        >>> def characters(pairs):
        ...     return np.array([len(pair["source"]) for pair in pairs])
        >>> pairs = PairDataset(groups)
        >>> sampler = LengthGroupedBatchSampler(pairs, 2, characters, even_tokens=True)
        >>> sorted(sorted(batch) for batch in sampler)
        [[0, 2], [1, 3]]
    """

    def __init__(
        self,
        dataset: EpochDataset[Any],
        batch_size: int,
        lengths: Measure,
        seed: int = 0,
        window: int = 50,
        drop_last: bool = True,
        process: int = 0,
        processes: int = 1,
        even_tokens: bool = False,
    ) -> None:
        if batch_size < 1 or window < 1:
            raise ValueError(f"batch_size {batch_size} and window {window} must be at least 1.")
        if not 0 <= process < processes:
            raise ValueError(f"process {process} is out of range: there are {processes}, from 0.")
        if even_tokens and (window == 1 or not drop_last):
            raise ValueError(
                "Batches of even tokens are cut from sorted windows, none of them incomplete: "
                "give a length window above 1, and drop the last batch."
            )
        if drop_last and len(dataset) < processes * batch_size:
            shared = f" for each of {processes} processes" if processes > 1 else ""
            raise DataError(
                f"{counted(len(dataset), 'example')} cannot fill a batch of {batch_size}{shared}; "
                f"give more data{', fewer processes' if shared else ''} or a smaller batch "
                "(--per_device_train_batch_size)."
            )
        self.dataset = dataset
        self.batch_size = batch_size
        self.lengths = lengths
        self.seed = seed
        self.window = window
        self.drop_last = drop_last
        self.process = process
        self.processes = processes
        self.even_tokens = even_tokens

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the data set, and thereby of this sampler."""
        self.dataset.set_epoch(epoch)

    def __len__(self) -> int:
        size = self.processes * self.batch_size
        return len(self.dataset) // size if self.drop_last else -(-len(self.dataset) // size)

    def __iter__(self) -> Iterator[list[int]]:
        rng = np.random.default_rng([self.seed, self.dataset.epoch])
        order = rng.permutation(len(self.dataset))
        n = self.processes
        if self.drop_last:
            order = order[: len(self) * n * self.batch_size]
        else:
            order = np.resize(order, -(-len(order) // n) * n)  # wraps around
        size = self.window * self.batch_size
        if self.even_tokens:
            for start in range(0, len(order), n * size):
                yield from self._even_window(order[start : start + n * size], rng)
        else:
            order = order[self.process :: n]
            for start in range(0, len(order), size):
                yield from self._window(order[start : start + size], rng)

    def _window(self, rows: Ints, rng: np.random.Generator) -> list[list[int]]:
        if self.window > 1:
            rows = self._sorted(rows)[0]
        batches = np.split(rows, range(self.batch_size, len(rows), self.batch_size))
        full = len(rows) // self.batch_size  # an incomplete one stays last
        return [batches[i].tolist() for i in (*rng.permutation(full), *range(full, len(batches)))]

    def _even_window(self, rows: Ints, rng: np.random.Generator) -> list[list[int]]:
        """Cut the rows of all processes into steps, and take this process's part of each."""
        rows, lengths = self._sorted(rows)
        steps = len(rows) // (self.processes * self.batch_size)
        least = min(self.batch_size, 2)
        cut = np.split(rows, even_cuts(lengths, steps, self.processes, least))
        return [cut[i][self.process :: self.processes].tolist() for i in rng.permutation(steps)]

    def _sorted(self, rows: Ints) -> tuple[Ints, Ints]:
        """Sort rows by their lengths; return both, (N,) each."""
        lengths = self.lengths(self.dataset.__getitems__(rows.tolist()))
        order = np.argsort(lengths, kind="stable")
        return rows[order], lengths[order]


def even_cuts(lengths: Ints, parts: int, multiple: int = 1, least: int = 1) -> Ints:
    """Cut sorted rows into parts whose padded sizes (rows times the longest) are about even.

    Args:
        lengths: Lengths of the rows, ascending. Shape: (N,), N at least
            ``parts * multiple * least``.
        parts: Number of parts.
        multiple: Each part's number of rows is a multiple of this.
        least: The minimum size of a part, in multiples.

    Returns:
        Where all parts but the first begin. Shape: (parts - 1,).

    Example:
        >>> even_cuts(np.array([1, 1, 1, 1, 2, 2, 4]), 3).tolist()
        [4, 6]
    """
    known = lengths.clip(min=1).tolist()
    low, high = 0, len(known) * known[-1]
    cut = partial(_cut, known, parts, multiple, least)
    while high - low > 1:  # the smallest size that every part can keep to
        size = (low + high) // 2
        low, high = (low, size) if cut(size)[0] == 0 else (size, high)
    return np.array(cut(high)[1:])


def _cut(lengths: list[int], parts: int, multiple: int, least: int, size: int) -> list[int]:
    """Fill parts up to a padded size, the longest rows first; return where they begin."""
    end, begins = len(lengths), []
    for left in range(parts - 1, -1, -1):
        rows = max(size // lengths[end - 1] // multiple, least) * multiple
        end -= min(rows, end - left * least * multiple)
        begins.append(end)
    return begins[::-1]


def own_loader(loader: DataLoader[Any], device: torch.device | None) -> DataLoader[Any]:
    """Let accelerate move batches to a device (None: do not), without sharding them."""
    return prepare_data_loader(
        loader, device, num_processes=1, process_index=0, put_on_device=device is not None,
        dispatch_batches=False, non_blocking=True,
    )  # fmt: skip
