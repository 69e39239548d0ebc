"""What an index returns: hits, and replies with or without an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simbert_hf.index.faqs import Faq
from simbert_hf.index.ranking import Found


@dataclass(frozen=True)
class Hit:
    """An answer and how near its questions are.

    Attributes:
        score: Cosine of the query with the answer's nearest question, or mean of the nearest ones.
        answer: The answer of that question.
        question: The nearest question.
        id: Id of its row.
        group: Its group, if it has one.
        metadata: Metadata of its row.
    """

    score: float
    answer: str
    question: str
    id: str
    group: str | None
    metadata: Mapping[str, Any]


@dataclass(frozen=True)
class Reply:
    """An answer, or the reason why there is none.

    Attributes:
        answer: The answer; None if no score reaches the threshold.
        reason: Why there is an answer or none, in one sentence.
        hits: The best answers, best first; near misses if there is no answer.
    """

    answer: str | None
    reason: str
    hits: Sequence[Hit]


def make_hit(found: Found, faq: Faq) -> Hit:
    """Make a hit from a group that was found and its nearest row."""
    assert faq.id is not None
    return Hit(found.score, faq.answer, faq.question, faq.id, faq.group, faq.metadata)


def make_reply(hits: Sequence[Hit], threshold: float, *, is_read: bool = True) -> Reply:
    """Answer with the best hit, if its score reaches the threshold and the query could be read.

    Example:
        >>> hits = [Hit(0.5, "Yes.", "Is it?", "0", None, {})]
        >>> make_reply(hits, 0.5).answer, make_reply(hits, 0.6).reason
        ('Yes.', 'The best score, 0.5, is below the threshold 0.6.')
    """
    if not hits:
        return Reply(None, "The index is empty.", hits)
    if not is_read:
        return Reply(None, "The model cannot read half or more of the query.", hits)
    best = hits[0]
    if best.score >= threshold:
        reason = f"The score, {best.score:.4g}, reaches the threshold {threshold:.4g}."
        return Reply(best.answer, reason, hits)
    reason = f"The best score, {best.score:.4g}, is below the threshold {threshold:.4g}."
    return Reply(None, reason, hits)
