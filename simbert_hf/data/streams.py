"""Streams of pairs: split among processes and workers, shuffled, and resumed from a small state.

What a reader (one worker of one process) yields next depends only on its :class:`Position`: the
order of the files on (seed, epoch), the order within a window of rows on the rows' own draws. So
there is no buffer to save. To resume, it skips the rows already read in unfinished files, without
making pairs of them, and reads one window again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from math import gcd
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import datasets
import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from simbert_hf.data.batching import Measure, own_loader
from simbert_hf.data.sampling import Pair, make_pairs, mix, random_bits
from simbert_hf.utils.arrays import Hashes, Ints
from simbert_hf.utils.textfiles import DataError

SHARDS_AT_ONCE = 10  # shards that fill a window, as files are often sorted or differ in origin

Place = tuple[int, int]  # shards done, rows of the next one done


class Position(NamedTuple):
    """Where a reader resumes.

    Attributes:
        worker: Number of the DataLoader's worker, 0 without workers.
        workers: Number of workers.
        epoch: Epoch of this reader.
        lanes: The place in each of its lanes of shards when the window began; empty at the start.
        taken: Pairs of the window that were yielded.
        begun: Pairs that were in an unfinished batch when the window began.
        order: Checksum of the window's order, which must be the same after a resume.
    """

    worker: int
    workers: int
    epoch: int = 0
    lanes: tuple[Place, ...] = ()
    taken: int = 0
    begun: int = 0
    order: int = 0


class PairStream(IterableDataset[Pair]):
    """Pairs of a streamed data set of groups, epoch after epoch, without end.

    R readers (the workers of all processes) split the S shards into g = gcd(R, S) sets. Each set
    has R / g readers, of which each keeps every (R / g)-th row, so that in each epoch one reader
    yields a row. A reader that is done begins its next epoch, for which the shards are dealt anew,
    without waiting: none ends before the others, which would hang them, and no row is dropped.

    Args:
        groups: A streamed data set of groups.
        seed: Random seed for the choice and order of pairs.
        buffer_size: Rows in the window that is shuffled, taken from ten shards in turn.
        process: Number of this process, from 0.
        processes: Number of processes.

    Example:
        >>> groups = datasets.Dataset.from_dict({"texts": [["Hi", "Hello"]], "group": [7]})
        >>> stream = PairStream(groups.to_iterable_dataset())
        >>> for pair in stream.epoch(0):
        ...     print(pair["source"], pair["target"], pair["group"])
        Hello Hi 7
    """

    def __init__(
        self,
        groups: datasets.IterableDataset,
        seed: int = 0,
        buffer_size: int = 10_000,
        process: int = 0,
        processes: int = 1,
    ) -> None:
        self.groups = groups
        self.seed = seed
        self.buffer_size = buffer_size
        self.process = process
        self.processes = processes
        self.batch_size = 1
        self._lengths: Measure | None = None
        self._given: dict[int, Position] = {}  # by worker, the most recent last

    def group_by_length(self, batch_size: int, lengths: Measure) -> None:
        """Group consecutive pairs within a window into batches of similar length.

        Args:
            batch_size: Pairs per batch.
            lengths: Counts the tokens of each pair's longest row, as a collator's ``lengths``.
        """
        self.batch_size, self._lengths = batch_size, lengths

    def __iter__(self) -> Iterator[Pair]:
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        if self._given:  # the worker whose turn it was comes first
            worker = (worker + 1 + list(self._given)[-1]) % workers
        position = self._given.get(worker, Position(worker, workers))
        barren = 0
        while barren < 20 * self.processes * workers:  # its shards may be empty in some epochs
            barren += 1
            last = position
            for pair in self._epoch(position):
                barren = 0
                last = pair["position"]
                yield pair
            begun = (last.begun + last.taken) % self.batch_size
            position = Position(worker, workers, position.epoch + 1, begun=begun)
        raise DataError("The stream contains no group that can be trained on.")

    def epoch(self, number: int, worker: int = 0, workers: int = 1) -> Iterator[Pair]:
        """Yield one epoch's pairs of this process, or of one of its workers."""
        return self._epoch(Position(worker, workers, number))

    def sharing(self, workers: int = 1) -> str:
        """Describe how the shards are split among all readers."""
        shards, readers = self.groups.num_shards, self.processes * max(workers, 1)
        sets = gcd(shards, readers)
        if sets == readers:
            return f"{shards} shards, {readers} readers: each reads {shards // readers} of its own"
        return (
            f"{shards} shards, {readers} readers (workers of all processes): {readers // sets} "
            f"read the same {shards // sets} and keep their share of the rows; with a multiple of "
            f"{readers} shards, each would be read once"
        )

    def check_process(self, process: int, processes: int) -> None:
        """Raise a ValueError if this stream is not that process's part."""
        if (self.process, self.processes) != (process, processes):
            raise ValueError(
                f"The stream is for process {self.process} of {self.processes}, but this is "
                f"process {process} of {processes}: give PairStream its process and processes."
            )

    # ------------------------------------------------------------------ state

    def took(self, position: Position) -> None:
        """Record that the pairs up to this position were used."""
        self._given.pop(position.worker, None)
        self._given[position.worker] = position

    def save(self, folder: Path) -> None:
        """Write to a checkpoint where this process resumes."""
        given = list(self._given.values())
        state = {"stream": self._identity(given[-1].workers), "given": given}
        self._file(folder).write_text(json.dumps(state) + "\n", encoding="utf-8")

    def load(self, folder: Path, workers: int = 0) -> None:
        """Resume from a checkpoint.

        Args:
            folder: The checkpoint.
            workers: Number of the DataLoader's workers, which must not have changed.

        Raises:
            ValueError: If it belongs to another stream or to other readers.
        """
        file = self._file(folder)
        if not file.exists():
            raise ValueError(
                f"{file} is missing: {folder} has fewer processes, or no stream. Resume with as "
                "many processes as saved it, or start over with --resume_from_checkpoint false."
            )
        self._given.clear()
        state = json.loads(file.read_text(encoding="utf-8"))
        for name, value in self._identity(max(workers, 1)).items():
            if state["stream"].get(name) != value:
                raise ValueError(
                    f"{file} has a stream with {name} {state['stream'].get(name)}, this one has "
                    f"{value}: resume with the same files, seed, batch, processes and workers."
                )
        for worker, of, epoch, lanes, *rest in state["given"]:
            self.took(Position(worker, of, epoch, tuple(map(tuple, lanes)), *rest))

    def _identity(self, workers: int) -> dict[str, int]:
        return {
            "shards": self.groups.num_shards,
            "workers": workers,
            "seed": self.seed,
            "buffer_size": self.buffer_size,
            "processes": self.processes,
            "batch_size": self.batch_size,
            "grouped": self._lengths is not None,
        }

    def _file(self, folder: Path) -> Path:
        return folder / f"stream-{self.process}.json"

    # ------------------------------------------------------------------ reading

    def _epoch(self, position: Position) -> Iterator[Pair]:
        begun = position.begun
        for lanes, texts, groups in self._windows(position):
            bits = random_bits(self.seed, position.epoch, np.array(groups))
            pairs = make_pairs(texts, groups, bits)
            order = self._order(pairs, bits, -begun % self.batch_size)
            known = crc32(np.array(order).tobytes())
            skipped = position.taken if lanes == position.lanes else 0
            if skipped and known != position.order:
                raise DataError(
                    "The stream's sentences are not where the checkpoint left them: resume with "
                    "the same files (--sentences_file, --preferences_file and --one_way_file, "
                    "too), tokenizer, weights, --max_length and --max_chars."
                )
            for taken, i in enumerate(order[skipped:], start=skipped + 1):
                at = position._replace(lanes=lanes, taken=taken, begun=begun, order=known)
                yield {**pairs[i], "position": at}
            begun = (begun + len(order)) % self.batch_size

    def _order(self, pairs: list[Pair], bits: Hashes, first: int) -> list[int]:
        """Shuffle a window of N pairs by their (3, N) random bits, similar lengths together.

        The first ones complete a batch and the last ones begin another: these are random.
        """
        order: Ints = np.argsort(mix(bits[0]))
        if self._lengths is None:
            return list(order)
        whole = max(len(order) - first, 0) // self.batch_size * self.batch_size
        ends, middle = np.split(order, [first]), order[first : first + whole]
        middle = middle[np.argsort(self._lengths(pairs)[middle], kind="stable")]
        batches = middle.reshape(-1, self.batch_size)
        batches = batches[np.argsort(bits[1, batches[:, 0]])]
        return [*ends[0].tolist(), *batches.flatten().tolist(), *ends[1][whole:].tolist()]

    def _windows(
        self, position: Position
    ) -> Iterator[tuple[tuple[Place, ...], list[list[str]], list[int]]]:
        """Yield where each window begins, and its rows."""
        shards, kept, step = self._share(position)
        n = min(SHARDS_AT_ONCE, len(shards))
        places = list(position.lanes) or [(0, 0)] * n
        rows = max(1, self.buffer_size // n)
        lanes = {i: self._read(shards[i::n], places[i], rows) for i in range(n)}
        begin = position.lanes
        texts: list[list[str]] = []
        groups: list[int] = []
        while lanes:
            for i, lane in list(lanes.items()):
                columns, row, places[i] = next(lane, ({}, 0, places[i]))
                if not columns:
                    del lanes[i]
                    continue
                mine = slice((kept - row - position.epoch) % step, None, step)
                texts += columns["texts"][mine]
                groups += columns["group"][mine]
            if texts and (len(texts) >= self.buffer_size or not lanes):
                yield begin, texts, groups
                texts, groups, begin = [], [], tuple(places)

    def _share(self, position: Position) -> tuple[list[int], int, int]:
        """Deal the shards of an epoch: those of this reader, and which of how many rows it keeps.

        The rows rotate with the epochs, as shard sizes need not be multiples of the step.
        """
        shards, readers = self.groups.num_shards, self.processes * position.workers
        reader, sets = position.worker * self.processes + self.process, gcd(shards, readers)
        order = random_bits(self.seed, position.epoch, -1 - np.arange(shards))[0].argsort()
        return order[reader % sets :: sets].tolist(), reader // sets, readers // sets

    def _read(
        self, shards: list[int], place: Place, rows: int
    ) -> Iterator[tuple[dict[str, list[Any]], int, Place]]:
        """Yield some rows of the shards at a time, the first one's number, and the place after."""
        done, row = place
        for i in range(done, len(shards)):
            shard = self.groups.shard(self.groups.num_shards, shards[i])
            for columns in shard.skip(row).iter(rows):  # not split by workers, unlike __iter__
                read = len(columns["group"])
                yield columns, row, (i, row + read) if read == rows else (i + 1, 0)
                row += read
            row = 0


def stream_loader(
    stream: PairStream,
    batch_size: int,
    collate: Callable[[Any], dict[str, Any]],
    device: torch.device | None = None,
    **options: Any,
) -> DataLoader[Any]:
    """Batch a stream; each batch has a ``position``, where to resume after it.

    Args:
        stream: The stream of this process.
        batch_size: Pairs per batch.
        collate: Turns pairs into a dictionary.
        device: Where the batches go; None leaves them on the CPU.
        **options: Options of the DataLoader.
    """
    positioned = partial(_positioned, collate)
    plain = DataLoader(stream, batch_size, collate_fn=positioned, **options)
    return own_loader(plain, device)


def _positioned(collate: Callable[[Any], dict[str, Any]], pairs: list[Pair]) -> dict[str, Any]:
    """Collate a batch, and add the position of its last pair."""
    return {**collate(pairs), "position": pairs[-1]["position"]}
