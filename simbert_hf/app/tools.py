"""Functions behind the page's buttons: limits, a visitor's FAQ, its precision, its map."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import local
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from simbert_hf import CHINESE_MODEL, DEFAULT_MODEL
from simbert_hf.generation.synonyms import Options, default_models, load
from simbert_hf.index import Calibration, Faq, FaqIndex, Rate, read_faqs
from simbert_hf.index.calibration import OUT, RIGHT, WRONG
from simbert_hf.modeling.simbert import SimBert
from simbert_hf.rows import check_texts, unread
from simbert_hf.utils.textfiles import DataError

_visit = local()  # has ``warnings`` while a visitor's FAQ is read

MAX_CHARS = 500  # of a text
MAX_WRITTEN = 200  # paraphrases before ranking
MAX_BYTES = 2_000_000  # of an uploaded FAQ
MAX_ROWS = 2_000
FOR_SHELLS = {  # what readers advise those who have a shell: what helps a visitor
    r", or name it \(--.*\)": "",
    r" \(simbert index build .*\)": "",
    r", e\.g\. with: jq .* > out\.jsonl": "",
    r", perhaps by iconv .* utf-8": ": in Excel, as 'CSV UTF-8'",
    r" text, plain or packed as \.gz or \.xz": ": in Excel, as 'CSV UTF-8'",
}


def model_for(model: SimBert, texts: Sequence[str | None]) -> SimBert:
    """Return the package's Chinese model if the page has its English one and most are Chinese."""
    if model.name_or_path != DEFAULT_MODEL:
        return model
    chinese = default_models([text or "" for text in texts]).count(CHINESE_MODEL)
    return load(CHINESE_MODEL) if 2 * chinese > len(texts) else model


def check_text(model: SimBert, text: str | None) -> str:
    """Strip and check a text; an API caller may send None.

    Raises:
        ValueError: If the text is empty, longer than ``MAX_CHARS`` characters, or the model cannot
            read it.
    """
    text = (text or "").strip()
    if not text:
        raise ValueError("Write a sentence first.")
    if len(text) > MAX_CHARS:
        raise ValueError(f"The text has {len(text):,} characters; the limit is {MAX_CHARS}.")
    if unread(model.loaded_tokenizer(), check_texts(text)):
        raise ValueError("The model does not know half or more of the text's characters.")
    return text


def paraphrase(
    model: SimBert, text: str, n: int, k: int, **options: Unpack[Options]
) -> list[list[Any]]:
    """Return the k best of n paraphrases: text, score, cosine with the input.

    Args:
        model: A ``SimBert`` that can generate; see :func:`model_for`.
        text: At most ``MAX_CHARS`` characters.
        n: Number of candidates, at most ``MAX_WRITTEN``.
        k: Number of paraphrases returned.
        **options: Further options of :func:`simbert_hf.gen_synonyms`.

    Raises:
        ValueError: If the text is invalid, or only copies of it were generated.
    """
    n, k = min(max(int(n), 1), MAX_WRITTEN), min(max(int(k), 1), MAX_WRITTEN)
    model = model_for(model, [text])
    found = model.gen_synonyms(check_text(model, text), n, min(k, n), return_scores=True, **options)
    if not found:
        raise ValueError(
            "All candidates are copies, or change the facts: split a long sentence, or increase "
            "Written, in the options."
        )
    return [[p.text, round(p.score, 3), round(p.similarity, 3)] for p in found]


def compare(model: SimBert, one: str, other: str) -> float:
    """Return the cosine of two texts' vectors."""
    model = model_for(model, [one, other])
    vectors = model.encode([check_text(model, one), check_text(model, other)])
    return float(vectors[0] @ vectors[1])


@dataclass(frozen=True)
class Session:
    """A visitor's FAQ.

    Attributes:
        index: Its questions.
        calibration: How each question scores against the others when it is the query.
        places: The vectors' first two principal components. Shape: (N, 2).
        warnings: What to know about its rows, such as repeated ones.
    """

    index: FaqIndex
    calibration: Calibration
    places: NDArray[np.float32]
    warnings: tuple[str, ...]


def read_upload(path: str | os.PathLike[str]) -> list[Faq]:
    """Read an uploaded ``.csv``, ``.tsv`` or ``.jsonl`` file, and delete it, valid or not.

    Raises:
        DataError: If it is gone or too large, or where :func:`simbert_hf.index.read_faqs` raises
            it; messages show only its name, as its folder does not concern the visitor.
    """
    file = Path(path)
    if not file.is_file():
        raise DataError("The file has already been read and deleted; choose it again.")
    try:
        if (size := file.stat().st_size) > MAX_BYTES:
            raise DataError(f"The file has {size:,} bytes; the limit is {MAX_BYTES:,}.")
        with _unlogged():  # open_session warns of the same
            faqs = read_faqs(file)
    except DataError as error:
        raise _for_visitors(str(error).replace(str(file), file.name)) from None
    finally:
        file.unlink(missing_ok=True)
    if len(faqs) > MAX_ROWS:
        raise DataError(f"The file has {len(faqs):,} rows; the limit is {MAX_ROWS:,}.")
    return faqs


def _for_visitors(told: str) -> DataError:
    for advice, other in FOR_SHELLS.items():
        told = re.sub(advice, other, told)
    return DataError(told)


@contextmanager
def _unlogged() -> Iterator[list[str]]:
    """Yield a list of this thread's warnings about an FAQ: they may quote it, so none is logged."""
    _visit.warnings = []
    try:
        yield _visit.warnings
    finally:
        del _visit.warnings


def _is_logged(record: logging.LogRecord) -> bool:
    told: list[str] | None = getattr(_visit, "warnings", None)
    if told is not None:
        told.append(record.getMessage())
    return told is None


for _name in ("faqs", "encoding"):
    logging.getLogger(f"simbert_hf.index.{_name}").addFilter(_is_logged)


def open_session(model: SimBert, rows: Sequence[Faq | dict[str, str]]) -> Session:
    """Index a visitor's FAQ, and measure it on itself; see :func:`model_for`.

    Raises:
        DataError: If a row is invalid.
    """
    with _unlogged():  # and the index warns of the same
        questions = [faq.question for faq in read_faqs(rows)]
    with _unlogged() as warnings:
        try:
            index = FaqIndex.build(model_for(model, questions), rows)
        except DataError as error:
            raise _for_visitors(str(error)) from None
    vectors = index.store.vectors(np.arange(len(index)))
    calibration = leave_one_out(index.faqs(), vectors)
    return Session(index, calibration, main_directions(vectors), tuple(warnings))


def leave_one_out(faqs: Sequence[Faq], vectors: NDArray[np.float32]) -> Calibration:
    """Query the FAQ with each of its questions, leaving that question out.

    A question is answered correctly if the nearest other one has its answer; one whose answer has
    no other question should find none, so it counts as out of scope.

    Args:
        faqs: The rows.
        vectors: Unit vectors of their questions. Shape: (N, D).

    Example:
        >>> faqs = [Faq("a", "1"), Faq("b", "1"), Faq("c", "2")]
        >>> found = leave_one_out(faqs, np.array([[1, 0], [0.8, 0.6], [0, 1]], dtype=np.float32))
        >>> found.kinds.tolist(), found.scores.round(2).tolist()
        ([0, 0, 2], [0.8, 0.8, 0.6])
    """
    names = [faq.leads_to for faq in faqs]
    _, codes, sizes = np.unique(names, return_inverse=True, return_counts=True)
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -1)
    nearest = cosines.argmax(axis=1)
    kinds = np.where(codes[nearest] == codes, RIGHT, WRONG)
    kinds[sizes[codes] == 1] = OUT
    scores = cosines.max(axis=1).astype(np.float64)
    threshold = float(np.median(scores))
    return Calibration(scores, kinds.astype(np.int8), "precision", 0.9, threshold, None)


def main_directions(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the first two principal components of vectors: (N, D) -> (N, 2)."""
    centred = vectors - vectors.mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    found = (left * sizes)[:, :2]
    return np.pad(found, ((0, 0), (0, 2 - found.shape[1]))).astype(np.float32)


def describe(calibration: Calibration, threshold: float) -> str:
    """Say what a threshold does to the FAQ's own questions, each asked without itself."""
    rates = calibration.at(threshold)
    parts = [
        f"{_share(rates.answered)} of the questions that another row answers get an answer",
        f"{_share(rates.precision)} of all answers are right",
        f"{_share(rates.false_accepts)} of the questions that no other row answers get one",
    ]
    known = [part for part in parts if not part.startswith("none")]
    return f"At {threshold:.2f}, each question asked without itself: " + "; ".join(known) + "."


def _share(rate: Rate) -> str:
    if not rate.count:
        return "none"
    return f"{rate.value:.0%} [{rate.low:.0%}, {rate.high:.0%}]"
