"""Stores of vectors: faiss in this process, flat, HNSW or IVF-PQ by their number.

A store numbers its vectors 0, 1, 2, ... as they are added and never renumbers them: what is removed
leaves a gap that no search returns.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from simbert_hf.utils.arrays import Ints, Vectors
from simbert_hf.utils.checks import check_choice
from simbert_hf.utils.extras import require
from simbert_hf.utils.textfiles import fault, shorten

KINDS = ("flat", "hnsw", "ivf_pq")
HNSW_FROM, IVF_FROM = 100_000, 1_000_000  # vectors
IVF_LEAST = 10_000
EF_SEARCH = 128  # candidates an HNSW search keeps
WALKED = 128  # cost of one more result of such a search, in vectors that a scan reads
PROBES = 32  # lists of an IVF that a search reads
IVF_BLOCK = 2**15  # vectors added at a time; of more, Ctrl-C would leave parts of unequal length
RESCORED = 16  # candidates of the product quantizer for each vector wanted
TRAINING_POINTS = 64  # vectors per IVF list that k-means looks at
CLUSTERING_ROUNDS = 10  # of k-means
FILE = "vectors.faiss"
# What an index of each kind consists of, from the outside in
PARTS = {
    "flat": ["IndexFlat"],
    "hnsw": ["IndexHNSWFlat", "IndexFlat"],
    "ivf_pq": ["IndexRefine", "IndexIVFPQ", "IndexFlat", "IndexScalarQuantizer"],
}
INSIDE = ("base_index", "quantizer", "refine_index", "storage")  # faiss's names of parts


class _Faiss:
    """faiss, imported when it is used; untyped: its stubs lack selectors and most parameters."""

    def __getattr__(self, name: str) -> Any:
        return getattr(require("faiss", "index"), name)


faiss = _Faiss()


class VectorStore(Protocol):
    """Interface of a store for the vectors of an index."""

    shared: bool  # whether other processes see what is added before a save

    @property
    def exact(self) -> bool:
        """Whether a search is a scan of all vectors."""

    def __len__(self) -> int:
        """Return how many vectors were ever added, including removed ones."""

    def add(self, vectors: Vectors) -> None:
        """Append unit vectors; the first call also sets the dimension. Shape: (N, D)."""

    def remove(self, numbers: Ints) -> None:
        """Exclude vectors from all further searches. Shape: (N,)."""

    def search(self, vectors: Vectors, k: int) -> tuple[Vectors, Ints]:
        """Find the k nearest of each query: descending cosines, and numbers, -1 where none is left.

        Shapes: (Q, D) -> (Q, k), (Q, k).
        """

    def vectors(self, numbers: Ints) -> Vectors:
        """Return stored vectors, perhaps rounded: (N,) -> (N, D)."""

    def save(self, folder: Path) -> dict[str, Any]:
        """Write what is not stored elsewhere into a folder; return what is needed to open it."""

    def settle(self, removed: Ints) -> None:
        """Do what must wait until a save is complete, which omits these vectors. Shape: (N,)."""


class FaissVectors:
    """Vectors in a faiss index in this process.

    Args:
        kind: ``flat`` scans all of them and is exact. ``hnsw`` walks a graph (Malkov & Yashunin
            2016, https://arxiv.org/abs/1603.09320). ``ivf_pq`` reads some clusters of product codes
            (Jégou et al. 2011) and rescores the best by half-precision vectors, which can stay on
            disk. ``auto`` picks one of these when the first vectors are added: below 100,000, below
            1,000,000, and beyond.

    Raises:
        ImportError: If faiss, of the extra ``index``, is not installed.
        ValueError: If there is no such kind.

    Example:
        >>> store = FaissVectors()
        >>> store.add(np.eye(3, dtype=np.float32))
        >>> store.remove(np.array([1]))
        >>> store.search(np.eye(3, dtype=np.float32)[:1], 3)
        (array([[  1.,   0., -inf]], dtype=float32), array([[ 0,  2, -1]]))
    """

    shared = False

    def __init__(self, kind: str = "auto") -> None:
        check_choice("kind", kind, ("auto", *KINDS))
        require("faiss", "index")  # before hours of encoding
        self.kind = kind
        self._index: Any = None
        self._mapped = False
        self._set_removed(np.empty(0, dtype=np.int64))

    def _set_removed(self, numbers: Ints) -> None:
        """Keep faiss's selector too, as building it takes long where many vectors are removed."""
        gaps = faiss.IDSelectorBatch(numbers) if len(numbers) else None  # Ctrl-C may come here
        selector = faiss.IDSelectorNot(gaps) if len(numbers) else None
        self._removed, self._gaps, self._selector = numbers, gaps, selector

    def __getstate__(self) -> dict[str, Any]:
        """Leave out faiss's selectors, which cannot be copied."""
        return {**self.__dict__, "_gaps": None, "_selector": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state
        self._set_removed(state["_removed"])

    @classmethod
    def load(cls, folder: Path, kind: str, removed: Ints, *, mmap: bool = True) -> Self:
        """Open what :meth:`save` wrote; with ``mmap``, only what is read gets into memory.

        Raises:
            DataError: If it is not a faiss index of that kind.
        """
        store, mmap = cls(kind), mmap and _can_map(folder / FILE)
        store._index = _read(folder / FILE, mmap)
        if why := misfit(store._index, kind):
            raise fault(folder / FILE, None, f"is damaged: {why}", "Rebuild the index")
        store._mapped = mmap
        store._set_removed(removed)
        return store

    def save(self, folder: Path) -> dict[str, Any]:
        """Write the index in faiss's own format.

        Raises:
            OSError: If it cannot be written, as on a full disk, of which faiss itself would not
                always tell.
        """
        with (folder / FILE).open("wb") as file:
            faiss.write_index(self._index, faiss.PyCallbackIOWriter(file.write))
        return {"type": "faiss", "kind": self.kind}

    def settle(self, removed: Ints) -> None:
        """Do nothing: removed vectors are only left out."""

    @property
    def exact(self) -> bool:
        """Whether a search is a scan of all vectors."""
        return self.kind == "flat"

    def __len__(self) -> int:
        return self._index.ntotal if self._index is not None else 0

    def add(self, vectors: Vectors) -> None:
        """Append unit vectors; the first call also trains an IVF-PQ's clusters. Shape: (N, D)."""
        if self._index is None:
            self.kind = kind_for(len(vectors)) if self.kind == "auto" else self.kind
            index = make_index(self.kind, *vectors.shape)
            index.train(vectors)
        elif self._mapped:  # faiss aborts the process when vectors are added to a mapped index
            index = faiss.deserialize_index(faiss.serialize_index(self._index))
        else:
            index = self._index
        block = IVF_BLOCK if self.kind == "ivf_pq" else max(1, len(vectors))
        for start in range(0, len(vectors), block):
            index.add(vectors[start : start + block])
        self._index, self._mapped = index, False

    def remove(self, numbers: Ints) -> None:
        """Exclude vectors from all further searches. Shape: (N,)."""
        self._set_removed(np.union1d(self._removed, numbers))

    def search(self, vectors: Vectors, k: int) -> tuple[Vectors, Ints]:
        """Find the k nearest of each query: (Q, D) -> cosines and numbers, (Q, k) each.

        Where removed vectors get in the way of an approximate search, all vectors are scanned.
        """
        living = len(self) - len(self._removed)
        if self.kind == "hnsw":
            scores, numbers = self._walk(vectors, k, living)
        else:
            scores, numbers = self._index.search(vectors, k, params=self._parameters(PROBES))
        lacking = np.flatnonzero((numbers >= 0).sum(axis=1) < min(k, living))
        if len(lacking) and not self.exact:
            scores[lacking], numbers[lacking] = self._scan(vectors[lacking], k)
        scores[numbers < 0] = -np.inf
        return scores, numbers

    def _walk(self, vectors: Vectors, k: int, living: int) -> tuple[Vectors, Ints]:
        """Search a graph among all vectors, as a walk would end at those that it must leave out."""
        fetch = k
        if len(self._removed):
            fetch = max(k, 2 * k * len(self) // max(1, living))
            if fetch * WALKED > living:
                return self._scan(vectors, k)
        wide = faiss.SearchParametersHNSW(efSearch=max(EF_SEARCH, 2 * fetch))
        scores, numbers = self._index.search(vectors, fetch, params=wide)
        numbers[np.isin(numbers, self._removed)] = -1
        first = np.argsort(numbers < 0, axis=1, kind="stable")[:, :k]  # the living, in order
        return np.take_along_axis(scores, first, 1), np.take_along_axis(numbers, first, 1)

    def _scan(self, vectors: Vectors, k: int) -> tuple[Vectors, Ints]:
        """Scan all vectors."""
        index, params = self._index, faiss.SearchParameters(sel=self._selector)
        if self.kind == "hnsw":
            index = faiss.downcast_index(index.storage)
        else:
            params = self._parameters(faiss.downcast_index(index.base_index).nlist)
        scores, numbers = index.search(vectors, k, params=params)
        return scores, numbers

    def _parameters(self, probes: int) -> Any:
        if self.kind == "flat":
            return faiss.SearchParameters(sel=self._selector)
        probe = faiss.SearchParametersIVF(sel=self._selector, nprobe=probes)
        return faiss.IndexRefineSearchParameters(k_factor=RESCORED, base_index_params=probe)

    def vectors(self, numbers: Ints) -> Vectors:
        """Return stored vectors, in half precision from an IVF-PQ: (N,) -> (N, D)."""
        return np.stack([self._index.reconstruct(int(number)) for number in numbers])


def kind_for(count: int) -> str:
    """Pick the kind of index for a number of vectors.

    Example:
        >>> [kind_for(count) for count in (10, 100_000, 1_000_000)]
        ['flat', 'hnsw', 'ivf_pq']
    """
    if count < HNSW_FROM:
        return "flat"
    return "hnsw" if count < IVF_FROM else "ivf_pq"


def check_kind(kind: str, count: int) -> None:
    """Raise a ValueError if an IVF-PQ has too few vectors for its clusters and codes."""
    if kind == "ivf_pq" and count < IVF_LEAST:
        raise ValueError(
            f"An ivf_pq index needs at least {IVF_LEAST:,} vectors, but there are {count:,}: use "
            "flat or hnsw."
        )


def make_index(kind: str, count: int, dim: int) -> Any:
    """Make an empty faiss index for about ``count`` vectors of ``dim`` numbers.

    Raises:
        ValueError: If they are too few for an IVF-PQ, or cannot be split into its codes.
    """
    metric = faiss.METRIC_INNER_PRODUCT
    if kind != "ivf_pq":
        spec = "Flat" if kind == "flat" else "HNSW32"
        return faiss.index_factory(dim, spec, metric)
    check_kind(kind, count)
    if dim % 8:
        raise ValueError(
            f"An ivf_pq index needs a dimension divisible by 8, but the vectors have {dim}: use "
            "flat or hnsw."
        )
    lists = 2 ** round(np.log2(4 * np.sqrt(count)))
    index = faiss.index_factory(dim, f"IVF{lists},PQ{dim // 8}x8,Refine(SQfp16)", metric)
    clusters = faiss.downcast_index(faiss.downcast_index(index).base_index)
    clusters.cp.max_points_per_centroid = TRAINING_POINTS
    clusters.cp.niter = CLUSTERING_ROUNDS
    clusters.cp.min_points_per_centroid = 1  # below 39, faiss warns
    return index


def measure_recall(store: VectorStore, vectors: Vectors, k: int = 10, queries: int = 256) -> float:
    """Measure which share of the k nearest a store finds, against a scan of all its vectors.

    Args:
        store: Holds the vectors, none removed.
        vectors: The same vectors. Shape: (N, D).
        k: Number of nearest vectors.
        queries: Number of evenly spaced vectors used as queries; they do not count as results.

    Returns:
        Recall at k; a vector as near as the k-th counts as one of the nearest.
    """
    asked = np.unique(np.linspace(0, len(vectors) - 1, queries, dtype=np.int64))
    k = min(k, len(vectors) - 1)
    if k == 0:
        return 1.0
    _, found = store.search(vectors[asked], k + 1)
    hits = 0
    for number, row in zip(asked, found, strict=True):
        scores = vectors @ vectors[number]
        scores[number] = -np.inf
        nearest = np.partition(scores, -k)[-k]
        others = row[(row >= 0) & (row != number)][:k]
        hits += int((scores[others] >= nearest - 1e-6).sum())
    return hits / (k * len(asked))


def misfit(index: Any, kind: str) -> str:
    """Say how a faiss index differs from those of a kind; an empty string if it does not.

    faiss trusts what a file says of its parts: where their sizes differ, it reads and writes beyond
    the ends of arrays.

    Example:
        >>> misfit(make_index("hnsw", 100, 8), "hnsw"), misfit(make_index("flat", 100, 8), "hnsw")
        ('', "its parts are ['IndexFlat'], not ['IndexHNSWFlat', 'IndexFlat']")
    """
    parts = list(parts_of(index))
    names = [type(part).__name__.removesuffix("IP") for part in parts]
    if names != PARTS.get(kind):
        return f"its parts are {names}, not {PARTS.get(kind)}"
    if not all(part.is_trained for part in parts):
        return "it is not trained"
    if any(part.metric_type != faiss.METRIC_INNER_PRODUCT for part in parts):
        return "it does not compare by cosine"
    coders = [getattr(part, name) for part in parts for name in ("pq", "sq") if hasattr(part, name)]
    if len({part.d for part in (*parts, *coders)}) > 1:
        return "its parts differ in their dimension"
    lists = parts[1] if kind == "ivf_pq" else None
    rows = {part.ntotal for part in parts if lists is None or part is not parts[2]}
    arrays = (part for part in parts if isinstance(part, faiss.IndexFlatCodes))
    whole = all(part.codes.size() == part.ntotal * part.code_size for part in arrays)
    if len(rows) > 1 or not whole or (lists and not holds_rows(lists, *rows)):
        return "its parts differ in their number of vectors"
    return ""


def parts_of(index: Any) -> Iterator[Any]:
    """Yield a faiss index and those inside it, as what they are."""
    whole = faiss.downcast_index(index)
    yield whole
    for name in INSIDE:
        if (inner := getattr(whole, name, None)) is not None:
            yield from parts_of(inner)


def holds_rows(index: Any, count: int) -> bool:
    """Whether the lists of an IVF-PQ fit it, and name vectors 0 to ``count`` only."""
    lists, sizes = index.invlists, (index.code_size, index.pq.code_size)
    if {lists.nlist, index.quantizer.ntotal} != {index.nlist} or {*sizes} != {lists.code_size}:
        return False
    filled = ((i, lists.list_size(i)) for i in range(lists.nlist))
    ids = (faiss.rev_swig_ptr(lists.get_ids(i), size) for i, size in filled if size)
    return all(some.min() >= 0 and some.max() < count for some in ids)


def _can_map(path: Path) -> bool:
    """Whether faiss can open a file by itself: on Windows, it knows ASCII names only."""
    return os.name != "nt" or str(path).isascii()


def _read(path: Path, mmap: bool) -> Any:
    try:
        if mmap:
            return faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
        with path.open("rb") as file:
            return faiss.read_index(faiss.PyCallbackIOReader(file.read))
    except (RuntimeError, MemoryError) as error:  # the latter of sizes that the file claims
        reason = str(error).strip().rpartition("\n")[2][:80]
        raise fault(path, None, f"is not a faiss index ({reason})", "Rebuild the index") from None


def store_from(facts: Mapping[str, Any], folder: Path, removed: Ints, *, mmap: bool) -> Any:
    """Open the store that :meth:`VectorStore.save` described; raise a DataError if it is bad."""
    if facts["type"] == "faiss":
        kind = facts["kind"]
        if kind not in KINDS:
            problem = f"has its vectors in an unknown kind of faiss index, {shorten(kind)}"
            raise fault(folder.parent, None, problem, "Rebuild it")
        return FaissVectors.load(folder, kind, removed, mmap=mmap)
    if facts["type"] != "milvus":
        problem = f"has its vectors in an unknown kind of store, {shorten(facts['type'])}"
        raise fault(folder.parent, None, problem, "Rebuild it with faiss or Milvus")
    from simbert_hf.index.milvus import MilvusVectors

    return MilvusVectors.open(facts, removed)
