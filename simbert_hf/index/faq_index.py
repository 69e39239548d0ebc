"""FaqIndex: search questions, answer queries, and know when not to answer."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, Self, overload

import numpy as np

from simbert_hf.encoders.text_encoder import TextEncoder, saved_name
from simbert_hf.index.calibration import TARGETS, Calibration, calibrate_scores, check_target
from simbert_hf.index.encoding import encode_questions, encoded_questions
from simbert_hf.index.faqs import (
    Columns,
    Faq,
    QuerySource,
    Source,
    as_key,
    check_question,
    completed,
    read_faqs,
    read_queries,
    why_no_question,
)
from simbert_hf.index.labels import codes_of, kind_of, leave_questions, leave_unread
from simbert_hf.index.locks import ReadWriteLock
from simbert_hf.index.opening import open_index
from simbert_hf.index.ranking import Found, nearest_groups
from simbert_hf.index.replies import Hit, Reply, make_hit, make_reply
from simbert_hf.index.saving import check_known, check_place, write_index
from simbert_hf.index.stores import FaissVectors, VectorStore, check_kind, measure_recall
from simbert_hf.index.table import FILE, FaqTable
from simbert_hf.rows import holds_texts
from simbert_hf.utils.arrays import Vectors
from simbert_hf.utils.checks import check_count
from simbert_hf.utils.text import counted
from simbert_hf.utils.textfiles import DataError, shorten

logger = logging.getLogger(__name__)

NEVER = 2.0  # a threshold that no cosine reaches


class FaqIndex:
    """Questions with their answers and vectors, created by :meth:`build` or :meth:`load`.

    Changes happen in memory, each call entirely or not at all; :meth:`save` writes them. Threads
    may share an index: a search sees a change entirely or not at all, and changes, saves and
    calibrations run one at a time. The model must be safe to call from several threads, as SimBert
    and SentenceTransformer models are.

    Attributes:
        encoder: Embeds questions and queries.
        store: The vectors.
        votes: Number of an answer's nearest questions that score it.
        calibration: Result of the last :meth:`calibrate`, or None.
        recall: Share of the 10 nearest questions that the store found when it was built.

    Example:
        >>> from torch import nn
        >>> class Letters(nn.Module):  # stands for a SimBert
        ...     def encode(self, texts, **options):
        ...         counts = [[text.count(letter) for letter in "abdehimoprstw"] for text in texts]
        ...         return np.array(counts) / np.linalg.norm(counts, axis=1, keepdims=True)
        >>> faqs = [Faq("how do i reset my password", "Press it."), Faq("what time is it", "Late.")]
        >>> index = FaqIndex.build(Letters(), faqs)
        >>> index.search("how can i reset my password?", k=1)[0].answer
        'Press it.'
        >>> index.answer("where is the cat", threshold=0.99).reason
        'The best score, 0.74, is below the threshold 0.99.'
    """

    def __init__(
        self,
        encoder: TextEncoder,
        table: FaqTable,
        store: VectorStore,
        *,
        votes: int = 1,
        calibration: Calibration | None = None,
        recall: float = 1.0,
    ) -> None:
        self.encoder = encoder
        self.store = store
        self.votes = votes
        self.calibration = calibration
        self.recall = recall
        self._table = table
        self._saved: dict[Path, str] = {}  # directory -> the data that this index loaded or saved
        self._changing = ReadWriteLock()  # one change, save or calibration at a time
        self._switching = ReadWriteLock()  # no search while store and table hold different rows

    # ------------------------------------------------------------------ making, saving, loading

    @classmethod
    def build(
        cls,
        model: Any,
        faqs: Source,
        *,
        columns: Columns | None = None,
        store: VectorStore | str = "auto",
        votes: int = 1,
        batch_size: int = 64,
        prompt: str | None = None,
        progress: bool = False,
        save_to: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Build an index.

        Args:
            model: What :class:`TextEncoder` takes: a SimBert, a SentenceTransformer or a path.
            faqs: What :func:`read_faqs` takes: rows, a CSV or JSONL file, a ``datasets.Dataset``.
            columns: Maps our column names to those of ``faqs`` where they differ.
            store: ``auto``, ``flat``, ``hnsw`` or ``ivf_pq`` for faiss, or an empty store such as
                :class:`simbert_hf.index.milvus.MilvusVectors`.
            votes: Score an answer by the mean cosine of this many of its nearest questions; more
                than 1 helps where answers have many questions.
            batch_size: Texts per forward pass.
            prompt: Prepended to every question and query, as E5 needs it (``"query: "``); if None,
                a SentenceTransformer's default prompt. It is saved with the index.
            progress: Show a progress bar on stderr.
            save_to: Directory to :meth:`save` the index to. Vectors are kept there meanwhile: after
                a kill, the same call goes on where it stopped.

        Raises:
            DataError: If the rows cannot be used, or the model cannot read most of the questions.
            ValueError: If there are too few rows for ``ivf_pq``, the store is not empty, the
                directory holds something else, or another process builds an index there.
        """
        check_count("votes", votes)
        if save_to is not None:
            check_place(Path(save_to))
        rows = read_faqs(faqs, columns)
        place = FaissVectors(store) if isinstance(store, str) else store
        check_kind(getattr(place, "kind", ""), len(rows))  # before hours of encoding
        if len(place):
            raise ValueError(f"The store already holds {len(place)} vectors; pass an empty one.")
        encoder = TextEncoder(model, batch_size=batch_size, prompt=prompt)
        table = FaqTable().with_rows(rows)
        with encoded_questions(encoder, rows, save_to, progress=progress) as vectors:
            place.add(vectors)
            recall = 1.0 if place.exact else measure_recall(place, vectors)
            index = cls(encoder, table, place, votes=int(votes), recall=recall)
            if save_to is not None:
                index.save(save_to)
        return index

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the index to a directory, replacing the one there.

        A killed process or a full disk leaves the old index intact. What another process, or a
        copy of this index, has saved there since this one was loaded is not overwritten.

        Raises:
            DataError: If there is such a save.
            ValueError: If the directory holds something else.
            OSError: If the index cannot be written.
        """
        place = Path(path).absolute()
        with self._changing.writing():
            write_index(place, self._write, self._saved)
            self.store.settle(self._table.removed)

    def _write(self, folder: Path) -> dict[str, Any]:
        self._table.write(folder / FILE)
        return {
            "model": {
                "name": saved_name(self.encoder.name),
                "fingerprint": self.encoder.fingerprint,
                "dtype": self.encoder.dtype,
                "prompt": self.encoder.prompt,
            },
            "store": self.store.save(folder),
            "rows": len(self._table),
            "votes": self.votes,
            "recall": self.recall,
            "calibration": self.calibration and self.calibration.to_json(),
        }

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        model: Any = None,
        *,
        mmap: bool = True,
        batch_size: int = 64,
    ) -> Self:
        """Load a saved index, even while another process saves it.

        Args:
            path: Its directory.
            model: The model that built it, in any precision; if None, loaded by its saved name.
            mmap: Leave vectors on disk until they are needed.
            batch_size: Texts per forward pass.

        Raises:
            DataError: If there is no complete index, or another model built it.
            OSError: If the model cannot be loaded.
        """
        encoder, table, store, facts = open_index(Path(path), model, mmap, batch_size)
        calibration = facts["calibration"] and Calibration.from_json(facts["calibration"])
        votes, recall = facts["votes"], facts["recall"]
        index = cls(encoder, table, store, votes=votes, calibration=calibration, recall=recall)
        index._saved[Path(path).absolute()] = facts["data"]
        return index

    # ------------------------------------------------------------------ asking

    @overload
    def search(self, query: str, k: int = 5) -> list[Hit]: ...  # type: ignore[overload-overlap]
    @overload
    def search(self, query: Sequence[str], k: int = 5) -> list[list[Hit]]: ...
    def search(self, query: str | Sequence[str], k: int = 5) -> list[Hit] | list[list[Hit]]:
        """Find the k nearest answers, best first.

        Args:
            query: One query, or several.
            k: Number of answers; each counts once, however many of its questions are near.

        Returns:
            Hits; for several queries, a list of such lists.

        Raises:
            DataError: If a query is not a string, is empty, too long or holds control characters.
        """
        check_count("k", k)
        vectors = self._embed(listed(query))
        with self._switching.reading():
            found = self._nearest(vectors, k)
            table = self._table
        rows = iter(table.faqs([hit.number for row in found for hit in row]))
        hits = [[make_hit(one, next(rows)) for one in row] for row in found]
        return hits[0] if isinstance(query, str) else hits

    def _embed(self, queries: Sequence[str]) -> Vectors:
        texts = [check_question("the query", None, text) for text in queries]
        return self.encoder(texts) if texts else np.empty((0, 0), dtype=np.float32)

    def _nearest(self, vectors: Vectors, k: int) -> list[list[Found]]:
        return nearest_groups(self.store, self._table.groups, vectors, k, self.votes)

    @overload
    def answer(  # type: ignore[overload-overlap]
        self, query: str, *, threshold: float | None = None, k: int = 5
    ) -> Reply: ...
    @overload
    def answer(
        self, query: Sequence[str], *, threshold: float | None = None, k: int = 5
    ) -> list[Reply]: ...
    def answer(
        self, query: str | Sequence[str], *, threshold: float | None = None, k: int = 5
    ) -> Reply | list[Reply]:
        """Answer a query, or say why not.

        A query that the model cannot read half of, such as an emoji, gets no answer; one that is
        empty, too long or holds control characters or half of one gets neither an answer nor hits.

        Args:
            query: One query, or several.
            threshold: Minimum score for an answer; the calibrated one if None.
            k: Number of best answers that the reply lists.

        Raises:
            DataError: If a query is not a string.
            ValueError: If there is no threshold, or it is not a number.
        """
        if threshold is None:
            if self.calibration is None:
                raise ValueError("There is no threshold: calibrate the index, or give one.")
            threshold = self.calibration.threshold
        if not isinstance(threshold, Real) or not abs(threshold) <= NEVER:
            raise ValueError(f"threshold={threshold!r} is not a score: give a cosine such as 0.8.")
        queries = listed(query)
        faults = [why_no_question(text) for text in queries]
        asked = [text for text, why in zip(queries, faults, strict=True) if not why]
        found = iter(self.search(asked, k))
        unread = set(self.encoder.unread(asked))
        replies = [
            Reply(None, f"The query {why}.", [])
            if why
            else make_reply(next(found), threshold, is_read=text not in unread)
            for text, why in zip(queries, faults, strict=True)
        ]
        return replies[0] if isinstance(query, str) else replies

    def calibrate(
        self,
        queries: QuerySource,
        *,
        false_accept_rate: float | None = None,
        precision: float | None = None,
        columns: Columns | None = None,
    ) -> Calibration:
        """Choose the threshold from labelled queries.

        Queries that are questions of the index would find themselves, and those that the model
        cannot read get no answer: they are left out, and the log says how many.

        Args:
            queries: What :func:`read_queries` takes: queries, each with the id, group or answer
                that it should lead to, or none.
            false_accept_rate: Maximum share of out-of-scope queries that are answered.
            precision: Alternatively, the minimum share of answers that are right; it depends on how
                many of the queries are out of scope.
            columns: Maps our column names to those of ``queries`` where they differ.

        Returns:
            The calibration, which the index keeps. Calibrate again when many rows have changed.

        Raises:
            DataError: If a label is not in the index, or all queries are its own questions.
            ValueError: If not exactly one target is given, or it cannot be reached.
        """
        wanted = dict(zip(TARGETS, (false_accept_rate, precision), strict=True))
        given = {name: value for name, value in wanted.items() if value is not None}
        if len(given) != 1:
            raise ValueError("Give exactly one of false_accept_rate and precision.")
        ((target, value),) = given.items()
        asked = read_queries(queries, columns)
        with self._changing.writing():
            asked = leave_unread(leave_questions(asked, self._table), self.encoder)
            labels = [codes_of(place, query, self._table) for place, query in asked.items()]
            some = np.array([kind_of([], codes) for codes in labels])  # before all are encoded
            check_target(some, target, value)
            found = self._nearest(self._embed([query.text for query in asked.values()]), 1)
            kinds = [kind_of(row, codes) for row, codes in zip(found, labels, strict=True)]
            scores = [row[0].score if row else -1.0 for row in found]  # none if it is empty
            self.calibration = calibrate_scores(scores, kinds, target, value)
            return self.calibration

    # ------------------------------------------------------------------ changing

    def __len__(self) -> int:
        return len(self._table.living)

    def __repr__(self) -> str:
        kind, model = getattr(self.store, "kind", type(self.store).__name__), self.encoder.name
        size = counted(len(self), "question")
        return f"FaqIndex({size}, {kind}, model {model or 'unnamed'})"

    def faqs(self) -> list[Faq]:
        """Return all rows, in the order in which they were added."""
        table = self._table
        return table.faqs(table.living)

    def add(self, faqs: Source, *, columns: Columns | None = None) -> None:
        """Add rows, encoding only these; warn of questions that the index already holds.

        Raises:
            DataError: If the rows cannot be used, the model cannot read most of the questions, or
                an id is already in the index.
        """
        rows = read_faqs(faqs, columns)
        with self._changing.writing():
            table = self._table.with_rows(rows)
            if known := self._table.holds([row.question for row in rows]):
                same = {row.question for row in rows if row.answer in known.get(row.question, ())}
                logger.warning(
                    "The index already holds %d of these questions, %d with the same answer, such "
                    "as %s: the old rows stay beside the new ones. Update or remove those that "
                    "these replace.",
                    *(len(known), len(same), shorten(next(iter(known)))),
                )
            self._switch(table, encode_questions(self.encoder, rows, progress=False))

    def remove(self, ids: str | int | Iterable[str | int]) -> None:
        """Remove rows, and the paraphrases that ``augment`` generated from them.

        No search finds them again, and their text is gone with the next save.
        After removing very many, rebuild: ``FaqIndex.build(model, index.faqs())`` drops their
        vectors too, and picks the kind of store for what is left.

        Raises:
            DataError: If an id is not in the index.
        """
        with self._changing.writing():
            several = not isinstance(ids, str) and isinstance(ids, Iterable)
            numbers = self._numbers(ids if several else [ids])  # type: ignore[arg-type,list-item]
            self._switch(self._table.without(numbers), removed=numbers)

    def update(self, faqs: Source, *, columns: Columns | None = None) -> None:
        """Replace the rows with the same ids, and remove paraphrases generated from the old ones.

        The group and other columns that a row does not name stay as they were; None clears a
        column, but not the group.

        Raises:
            DataError: If the rows cannot be used, the model cannot read most of the questions, or
                an id is missing or not in the index.
        """
        rows = read_faqs(faqs, columns)
        if any(row.id is None for row in rows):
            raise DataError("A row to update has no id. Give each the id of the row it replaces.")
        with self._changing.writing():
            numbers = self._numbers(str(row.id) for row in rows)
            former = {row.id: row for row in self._table.faqs(numbers)}
            rows = [completed(row, former[row.id]) for row in rows]
            table = self._table.without(numbers).with_rows(rows)
            self._switch(table, encode_questions(self.encoder, rows, progress=False), numbers)

    def _switch(
        self, table: FaqTable, added: Vectors | None = None, removed: Sequence[int] = ()
    ) -> None:
        if self.store.shared:  # else only a save can overwrite what others have saved
            for place, known in self._saved.items():
                check_known(place, known)
        with self._switching.writing():
            try:
                if added is not None:
                    self.store.add(added)
                if removed:
                    self.store.remove(np.asarray(removed, dtype=np.int64))
                self._table = table
            except BaseException:  # a Ctrl-C too, which faiss obeys only once vectors are added
                gaps = np.arange(len(self._table), len(self.store))
                self._table = self._table.with_gaps(len(gaps))
                self.store.remove(gaps)
                raise

    def _numbers(self, ids: Iterable[str | int]) -> list[int]:
        known = self._table.number_of
        named = list(dict.fromkeys(map(as_key, ids)))
        if missing := [one for one in named if one not in known]:
            raise DataError(f"The index has no row {shorten(missing[0])}. Check the id.")
        return self._table.with_paraphrases([known[one] for one in named])


def listed(query: str | Iterable[str]) -> list[str]:
    """Return one or several queries as a list.

    Raises:
        DataError: If it is neither.

    Example:
        >>> listed("where is it?"), listed(("a", "b"))
        (['where is it?'], ['a', 'b'])
    """
    if not holds_texts(query):
        raise DataError(f"The query is {shorten(query)}: give a string, or a list of strings.")
    return [query] if isinstance(query, str) else list(query)
