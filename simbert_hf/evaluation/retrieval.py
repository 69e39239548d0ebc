"""Retrieval inside a held-out set: every sentence ranks all the others."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from simbert_hf.data import load_groups
from simbert_hf.data.readers import DataFormat
from simbert_hf.evaluation.bootstrap import Bootstrap, Counts
from simbert_hf.evaluation.geometry import check_finite, check_two
from simbert_hf.evaluation.results import Embed, TaskResult
from simbert_hf.utils.arrays import Floats, Ints, Reals
from simbert_hf.utils.text import fold
from simbert_hf.utils.textfiles import check_exists, fault

logger = logging.getLogger(__name__)

KS = (1, 5, 10)
TIE = 1e-6  # float32 cosines nearer than this are equal: summation order changes them by that much
SCORES = 2**25  # scores held at a time, at most
FEW = 16  # group mates up to which comparing with each beats sorting scores among them


@dataclass(frozen=True)
class Ranks:
    """Where each sentence finds the others of its group.

    Attributes:
        first: Rank of the nearest of them, from 1; infinite without any. Shape: (N,).
        average_precision: Mean, over them, of the share of group mates up to their rank; 0 without
            any. Shape: (N,).
    """

    first: Floats
    average_precision: Floats

    def figures(self) -> dict[str, Floats]:
        """Return each sentence's share in top-k, MRR and MAP, by the name of the figure: (N,)."""
        hits = {f"top{k}": (self.first <= k).astype(np.float64) for k in KS}
        return hits | {"mrr": 1 / self.first, "map": self.average_precision}


def rank_group_mates(vectors: Reals, groups: Ints, chunk: int = 1024) -> Ranks:
    """Let every sentence rank all others by dot product, and find its group in the ranking.

    Ties (scores nearer than 1e-6) are broken against the model: sentences of other groups come
    first. Runs on a GPU if there is one.

    Args:
        vectors: Unit vectors, so that dot products are cosines. Shape: (N, D).
        groups: Group of each sentence. Shape: (N,).
        chunk: Queries scored at a time, fewer if there are very many sentences: memory is
            chunk * N.

    Raises:
        ValueError: If there are fewer than two sentences, or a vector is not finite.

    Example:
        >>> ranks = rank_group_mates(np.eye(3)[[0, 0, 1]], np.array([7, 7, 8]))
        >>> ranks.first, ranks.average_precision
        (array([ 1.,  1., inf]), array([1., 1., 0.]))
    """
    n = len(vectors)
    check_two(vectors)
    check_finite(vectors)
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    collection = torch.as_tensor(vectors, device=device)
    labels = np.unique(groups, return_inverse=True)[1]
    by_group = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[by_group], np.arange(labels.max() + 2))
    chunk = max(1, min(chunk, SCORES // n))
    found = []
    for begin in range(0, n, chunk):
        queries = np.arange(begin, min(begin + chunk, n))
        mates = _mates(queries, labels, by_group, starts).to(collection.device)
        scores = collection[begin : begin + chunk] @ collection.T
        found.append(_positions(scores, mates, begin).cpu())
    return Ranks(*torch.cat(found, dim=1).numpy())


def _mates(queries: Ints, labels: Ints, by_group: Ints, starts: Ints) -> Tensor:
    """Return the indices of each query's group, itself included, padded with -1: (Q, M)."""
    first, last = starts[labels[queries]], starts[labels[queries] + 1]
    places = first[:, None] + np.arange((last - first).max())
    inside = places < last[:, None]
    return torch.from_numpy(np.where(inside, by_group[np.where(inside, places, 0)], -1))


def _positions(scores: Tensor, mates: Tensor, begin: int) -> Tensor:
    """Return the rank of the nearest mate, and the average precision, of each query.

    The i-th nearest mate has rank i plus the number of sentences of other groups that score at
    least as high.

    Args:
        scores: Scores of all sentences for query q, the sentence begin + q; overwritten.
            Shape: (Q, N).
        mates: Shape: (Q, M).
        begin: Index of the first query.

    Returns:
        float64, shape: (2, Q).
    """
    queries = torch.arange(len(scores), device=scores.device)[:, None] + begin
    absent = (mates < 0) | (mates == queries)
    known = scores.gather(1, mates.clamp(min=0)).masked_fill(absent, torch.inf)
    known = (known - TIE).sort(dim=1).values  # ascending, the absent last
    scores.scatter_(1, mates.where(mates >= 0, queries), -torch.inf)  # leaves other groups only
    n_mates = (~absent).sum(dim=1, keepdim=True)
    order = n_mates - torch.arange(known.shape[1], device=scores.device)  # 1 for the nearest
    ranks = count_at_least(scores, known) + order
    ranks, order, n_mates = ranks.cpu(), order.cpu(), n_mates.cpu()  # Apple's GPUs lack float64
    ranks = ranks.double().where(order > 0, torch.inf)
    precisions = torch.where(order > 0, order / ranks, 0.0).sum(dim=1)
    return torch.stack([ranks.min(dim=1).values, precisions / n_mates[:, 0].clamp(min=1)])


def count_at_least(scores: Tensor, limits: Tensor) -> Tensor:
    """Count the scores of each row that are at least each of the row's limits.

    Args:
        scores: Shape: (Q, N).
        limits: Ascending. Shape: (Q, M).

    Returns:
        Integers, shape: (Q, M).

    Example:
        >>> count_at_least(torch.tensor([[0.1, 0.5, 0.9]]), torch.tensor([[0.5, 0.6]]))
        tensor([[2, 1]], dtype=torch.int32)
    """
    n_rows, n_limits = limits.shape
    if n_limits <= FEW:  # a comparison each is faster
        return torch.stack(
            [(scores >= limit).sum(1, dtype=torch.int32) for limit in limits.T[..., None]], dim=1
        )
    places = torch.searchsorted(limits, scores, right=True, out_int32=True)  # limits reached
    first = torch.arange(n_rows, device=scores.device)[:, None] * (n_limits + 1)
    reached = torch.bincount((places + first).flatten(), minlength=n_rows * (n_limits + 1))
    return reached.view(n_rows, -1).flip(1).cumsum(dim=1).flip(1)[:, 1:]


@dataclass(frozen=True)
class RetrievalTask:
    """A test set of distinct sentences in groups.

    Attributes:
        name: Name of the set in tables.
        sentences: Distinct sentences.
        groups: Group of each. Shape: (N,).

    Example:
        >>> from simbert_hf import DEFAULT_MODEL, SimBert
        >>> sentences = ["where is my card", "i lost my card", "i like tea", "tea is what i like"]
        >>> task = RetrievalTask("test", sentences, np.array([0, 0, 1, 1]))
        >>> encode = SimBert.from_pretrained(DEFAULT_MODEL).encode
        >>> task.measure(encode, Bootstrap(0)).figures["top1"].value
        1.0
    """

    name: str
    sentences: Sequence[str]
    groups: Ints

    def texts(self) -> Sequence[str]:
        """Return the sentences."""
        return self.sentences

    def measure(self, embed: Embed, bootstrap: Bootstrap) -> TaskResult:
        """Rank all by each; groups, not sentences, are resampled, as mates are not independent."""
        shares = rank_group_mates(embed(self.sentences), self.groups).figures()
        members = np.unique(self.groups, return_inverse=True)[1]
        sizes = np.bincount(members)
        sums = {name: np.bincount(members, share) for name, share in shares.items()}

        def statistic(counts: Counts) -> dict[str, Floats]:
            return {name: counts @ total / (counts @ sizes) for name, total in sums.items()}

        values = {name: float(share.mean()) for name, share in shares.items()}
        figures = bootstrap.figures(self.name, len(sizes), values, statistic)
        return TaskResult("retrieval", len(members), figures, facts={"groups": len(sizes)})


def load_retrieval_task(name: str | None, path: Path, columns: Sequence[str] = ()) -> RetrievalTask:
    r"""Read groups, pairs, synonyms, or a table of sentences and classes.

    Args:
        name: Name of the set; the stem of the file if None.
        path: What ``load_groups`` reads, or a table with the columns ``text`` and ``label``,
            ``category`` or ``intent``.
        columns: Names of the columns of classes and of sentences, if they are others.

    Raises:
        DataError: If the file cannot be read, or all sentences are in one group.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "intents.csv")
        ...     _ = path.write_text("text,label\nHi,greet\nHello,greet\nBye,part\nSo long,part\n")
        ...     task = load_retrieval_task(None, path)
        >>> task.name, task.sentences, task.groups
        ('intents', ('Hi', 'Hello', 'Bye', 'So long'), array([0, 0, 1, 1]))
    """
    check_exists(path)
    data_format: DataFormat = "groups" if columns else "auto"
    groups, report = load_groups(path, data_format=data_format, text_columns=columns or None)
    tell = logger.warning if report.one_member else logger.info  # one-member groups are only found
    tell("%s: %s", path, report)
    found = {fold(text): (text, row["group"]) for row in groups for text in row["texts"]}
    sentences, labels = zip(*found.values(), strict=True)
    if len(set(labels)) < 2:
        remedy = "Give at least two groups that share no sentences"
        raise fault(path, None, f"has all {len(sentences)} sentences in one group", remedy)
    name = name or path.name.split(".")[0]
    return RetrievalTask(name, sentences, np.array(labels, dtype=np.int64))
