"""Vectors in Milvus, on a server or by Milvus Lite in this process; needs the extra ``milvus``."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from simbert_hf.utils.arrays import Ints, Vectors
from simbert_hf.utils.extras import require
from simbert_hf.utils.textfiles import DataError

pymilvus = require("pymilvus", "milvus")

logger = logging.getLogger(__name__)

BATCH = 1000  # vectors per request
MOST = 16_384  # results per query that Milvus allows


@contextmanager
def answering(failed: str = "The Milvus request failed") -> Iterator[None]:
    """Raise a ConnectionError if the server refuses a request or does not respond."""
    try:
        yield
    except pymilvus.MilvusException as error:
        raise ConnectionError(f"{failed}: {error.message}") from error


class MilvusVectors:
    """Vectors in a Milvus collection, for indexes beyond one machine.

    Only one process may write, but others may read meanwhile, and a kill loses no more than what
    was not saved: added vectors are left out of others' searches until the save that counts them,
    and removed ones are deleted after the save that omits them. Save the index in one folder: a
    copy of that, or a second one, is of no use after further changes.

    Args:
        uri: ``http://host:19530``, or a path ending in ``.db`` for Milvus Lite.
        collection: Name of a collection that does not exist yet.
        token: ``user:password`` or a key; if None, the environment variable ``MILVUS_TOKEN``. It is
            never saved.
        index_type: Milvus's index type; ``AUTOINDEX`` lets Milvus choose, ``FLAT`` is exact.
        timeout: Seconds to wait for the server.

    Raises:
        ConnectionError: If Milvus does not respond.
        ValueError: If the collection exists.
    """

    shared = True

    def __init__(
        self,
        uri: str,
        collection: str,
        *,
        token: str | None = None,
        index_type: str = "AUTOINDEX",
        timeout: float = 10,
    ) -> None:
        token = os.environ.get("MILVUS_TOKEN", "") if token is None else token
        self._connect(uri, collection, token, index_type, timeout)
        self._check_free()

    def _connect(
        self, uri: str, collection: str, token: str, index_type: str, timeout: float = 10
    ) -> None:
        failed = f"Milvus at {uri} does not respond"
        if "://" not in uri:
            uri = os.fspath(Path(uri).resolve())
            failed = f"Milvus Lite cannot open {uri}, which one process at a time may use"
        self.facts = {"type": "milvus", "uri": uri, "collection": collection}
        self.facts["index_type"] = index_type
        self.collection = collection
        self._count = 0  # vectors ever added
        self._deleted = 0  # of these, vectors no longer on the server
        self._set_removed(set())  # vectors to be deleted
        self._last: Vectors | None = None  # the last vector, if it was added here
        with answering(failed):
            self.client = pymilvus.MilvusClient(uri, token=token, timeout=timeout)

    @classmethod
    @answering()
    def open(cls, facts: Mapping[str, Any], removed: Ints) -> MilvusVectors:
        """Open the collection that :meth:`save` described.

        ``MILVUS_TOKEN`` is sent only if ``MILVUS_URI`` names the same server.

        Args:
            facts: The description.
            removed: The vectors that were removed before the save. Shape: (N,).

        Raises:
            DataError: If it does not exist, or does not hold the vectors that were saved.
        """
        # An index may come from anyone and names its own server, which must not get this token.
        trusted = os.environ.get("MILVUS_URI", "").rstrip("/") == facts["uri"].rstrip("/")
        if not trusted and os.environ.get("MILVUS_TOKEN"):
            logger.warning("To send MILVUS_TOKEN to %s, set MILVUS_URI to this.", facts["uri"])
        token = os.environ.get("MILVUS_TOKEN", "") if trusted else ""
        store = cls.__new__(cls)
        store._connect(facts["uri"], facts["collection"], token, facts["index_type"])
        remedy = "Rebuild the index."
        if not store.client.has_collection(store.collection):
            raise DataError(
                f"Milvus at {facts['uri']} has no collection {store.collection!r}. {remedy}"
            )
        store.client.load_collection(store.collection)
        store._count = facts["count"]
        due = store._count - len(removed)
        left = store._left(removed.tolist()) if store.stored() > due else set()
        extra = store.stored() - due  # counted anew, as a writer may be deleting them
        if not 0 <= extra <= len(left):
            raise DataError(
                f"The collection {store.collection!r} holds {due + extra:,} vectors, but {due:,} "
                f"were saved. {remedy}"
            )
        store._deleted = len(removed) - len(left)
        store._set_removed(left)
        return store

    def _set_removed(self, numbers: set[int]) -> None:
        """Write the search's condition too, as that takes long where many are removed."""
        living = f" and id not in {sorted(numbers)}" if numbers else ""  # Ctrl-C may come here
        self._removed, self._living = numbers, living

    def _left(self, numbers: Sequence[int]) -> set[int]:
        """Find those of some vectors that are on the server."""
        parts = (numbers[start : start + BATCH] for start in range(0, len(numbers), BATCH))
        found = (self.client.get(self.collection, ids=part, output_fields=["id"]) for part in parts)
        return {row["id"] for rows in found for row in rows}

    @answering()
    def stored(self, where: str = "<") -> int:
        """Count the vectors on the server; with ``>=`` those beyond the ones added here."""
        chosen = f"id {where} {self._count}"
        rows = self.client.query(self.collection, filter=chosen, output_fields=["count(*)"])
        return int(rows[0]["count(*)"])

    def _delete(self, numbers: Sequence[int]) -> None:
        for start in range(0, len(numbers), BATCH):
            self.client.delete(self.collection, ids=list(numbers[start : start + BATCH]))

    def _check_own(self) -> None:
        """Raise a DataError if another process has changed the collection."""
        extra = self.stored() - (self._count - self._deleted - len(self._removed))
        own = 0 <= extra <= len(self._removed)  # a failed deletion may have been done
        if own and self._last is not None:
            [last] = self.vectors(np.array([self._count - 1]))
            own = not self.stored(">=") and np.allclose(last, self._last)
        if not own:
            raise DataError(
                f"Another process has changed the collection {self.collection!r}: load the index "
                "again, repeat the changes, and let one process write."
            )

    @answering()
    def save(self, folder: Path) -> dict[str, Any]:
        """Return what is needed to open the collection again; the vectors are on the server.

        Raises:
            DataError: If another process has changed them.
        """
        self.client.flush(self.collection)
        self._check_own()
        return {**self.facts, "count": self._count}

    @answering("The index is saved, but vectors that it omits could not be deleted")
    def settle(self, removed: Ints) -> None:
        """Delete what was removed, once a save omits it; see :class:`VectorStore`."""
        self._set_removed(self._removed & set(removed.tolist()))
        self._delete(sorted(self._removed))
        self._deleted = len(removed)
        if self._count - 1 in self._removed:
            self._last = None
        self._set_removed(set())

    @property
    def exact(self) -> bool:
        """Whether a search is a scan of all vectors."""
        return self.facts["index_type"] == "FLAT"

    def __len__(self) -> int:
        return self._count

    @answering()
    def add(self, vectors: Vectors) -> None:
        """Append unit vectors; the first call creates the collection. Shape: (N, D).

        Until it is filled, it has another name, and one that a killed process left is dropped.

        Raises:
            DataError: If another process has changed the collection.
        """
        name = self.collection
        if first := not self._count:
            name = f"{name}_begun"
            self._create(name, vectors.shape[1])
        else:
            if self._last is None:  # what a killed process or a failed call has left
                self.client.delete(self.collection, filter=f"id >= {self._count}")
            self._check_own()
            self._last = None  # until all are there
        try:
            for start in range(0, len(vectors), BATCH):
                part = enumerate(vectors[start : start + BATCH], self._count + start)
                rows = [{"id": i, "vector": vector} for i, vector in part]
                self.client.insert(name, rows)
            if "://" not in self.facts["uri"]:  # Milvus Lite scans what is not flushed, row by row
                self.client.flush(name)
            if first:
                self.client.rename_collection(name, self.collection)
                name = self.collection  # else that may be another's
                self.client.load_collection(name)
        except BaseException:  # a Ctrl-C too
            with suppress(pymilvus.MilvusException):  # or a search would find rows unknown here
                if first:
                    self.client.drop_collection(name)
                else:
                    self._delete(range(self._count, self._count + len(vectors)))
            raise
        self._count += len(vectors)
        self._last = vectors[-1]

    @answering()
    def _check_free(self) -> None:
        if self.client.has_collection(self.collection):
            raise ValueError(
                f"Milvus already has a collection {self.collection!r}; name another, or drop it."
            )

    def _create(self, name: str, dim: int) -> None:
        self._check_free()
        if self.client.has_collection(name):
            self.client.drop_collection(name)
        schema = self.client.create_schema(auto_id=False)
        schema.add_field("id", pymilvus.DataType.INT64, is_primary=True)
        schema.add_field("vector", pymilvus.DataType.FLOAT_VECTOR, dim=dim)
        index = self.client.prepare_index_params()
        index.add_index("vector", index_type=self.facts["index_type"], metric_type="IP")
        self.client.create_collection(
            name, schema=schema, index_params=index, consistency_level="Strong"
        )

    def remove(self, numbers: Ints) -> None:
        """Exclude vectors from all further searches. Shape: (N,)."""
        self._set_removed(self._removed | set(numbers.tolist()))

    @answering()
    def search(self, vectors: Vectors, k: int) -> tuple[Vectors, Ints]:
        """Find the k nearest of each query: (Q, D) -> cosines and numbers, (Q, k) each."""
        scores = np.full((len(vectors), k), -np.inf, dtype=np.float32)
        numbers = np.full((len(vectors), k), -1, dtype=np.int64)
        wanted = f"id < {self._count}{self._living}"  # not what another process is adding
        for start in range(0, len(vectors), BATCH):  # a server takes 16,384 queries at most
            found = self.client.search(
                self.collection,
                data=list(vectors[start : start + BATCH]),
                limit=min(k, MOST),
                filter=wanted,
                output_fields=["id"],
            )
            for i, hits in enumerate(found, start):
                scores[i, : len(hits)] = [hit["distance"] for hit in hits]
                numbers[i, : len(hits)] = [hit["id"] for hit in hits]
        return scores, numbers

    @answering()
    def vectors(self, numbers: Ints) -> Vectors:
        """Return stored vectors: (N,) -> (N, D); raise a DataError if another process has some."""
        rows = self.client.get(self.collection, ids=numbers.tolist(), output_fields=["vector"])
        by_id = {row["id"]: row["vector"] for row in rows}
        if gone := set(numbers.tolist()) - by_id.keys():
            raise DataError(
                f"The collection {self.collection!r} lacks vector {min(gone)}, which another "
                "process has removed: load the index again."
            )
        return np.array([by_id[number] for number in numbers.tolist()], dtype=np.float32)

    def close(self) -> None:
        """Close the connection."""
        self.client.close()
