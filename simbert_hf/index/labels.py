"""Find where labelled queries should lead in an index, and whether they do."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from simbert_hf.encoders.text_encoder import TextEncoder
from simbert_hf.index.calibration import OUT, RIGHT, WRONG
from simbert_hf.index.faqs import KEYS, Place, Query
from simbert_hf.index.ranking import Found
from simbert_hf.index.table import FaqTable
from simbert_hf.utils.text import fold
from simbert_hf.utils.textfiles import fault, shorten

logger = logging.getLogger(__name__)


def leave_questions(asked: Mapping[Place, Query], table: FaqTable) -> dict[Place, Query]:
    """Leave out the queries, keyed by file and line, that are questions of the index.

    Raises:
        DataError: If none is left.
    """
    own = table.questions
    others = {place: query for place, query in asked.items() if fold(query.text) not in own}
    if not others:
        problem = f"all {len(asked):,} are questions of the index"
        raise fault("the queries", None, problem, "Word them differently")
    if len(others) < len(asked):
        left = len(asked) - len(others)
        logger.warning("left out %d of %d queries: they are in the index", left, len(asked))
    return others


def leave_unread(asked: Mapping[Place, Query], encoder: TextEncoder) -> dict[Place, Query]:
    """Leave out the queries that a model cannot read: they get no answer at any threshold.

    Raises:
        DataError: If none is left.
    """
    unread = set(encoder.unread([query.text for query in asked.values()]))
    others = {place: query for place, query in asked.items() if query.text not in unread}
    if not others:
        remedy = "Use a model trained on their language"
        raise fault("the queries", None, "the model cannot read any of them", remedy)
    if unread:
        left = len(asked) - len(others)
        logger.warning("left out %d of %d queries: the model cannot read them", left, len(asked))
    return others


def codes_of(place: Place, query: Query, table: FaqTable) -> set[int] | None:
    """Return a query's expected groups, None if out of scope; raise a DataError if none exists."""
    if not query.in_scope:
        return None
    given = {key: value for key in KEYS if (value := getattr(query, key))}
    found = {
        key: table.codes_of(key, value)
        or table.codes_of(key, value.removesuffix(".0"))  # beside blanks, pandas writes 1 as 1.0
        or table.codes_of(key, f"{value}.0")
        for key, value in given.items()
    }
    for key, codes in found.items():
        if not codes:
            problem = f"leads to the {key} {shorten(given[key])}, which is not in the index"
            raise fault(*place, problem, f"Correct the {key}, or leave it empty for none")
    common = set.intersection(*found.values())
    if not common:
        problem = f"its {' and '.join(given)} lead to different answers"
        raise fault(*place, problem, "Correct them, or leave one of them out")
    return common


def kind_of(found: Sequence[Found], codes: set[int] | None) -> int:
    """Return whether the best answer found is right or wrong, or the query is out of scope."""
    if codes is None:
        return OUT
    return RIGHT if found and found[0].code in codes else WRONG
