"""FAQ and paraphrase retrieval that knows when not to answer."""

from __future__ import annotations

from simbert_hf.encoders.text_encoder import TextEncoder
from simbert_hf.index.augment import augment
from simbert_hf.index.calibration import Calibration, Rate, Rates
from simbert_hf.index.faq_index import FaqIndex
from simbert_hf.index.faqs import Faq, Query, read_faqs, read_queries
from simbert_hf.index.replies import Hit, Reply
from simbert_hf.index.stores import FaissVectors, VectorStore

__all__ = [
    "Calibration",
    "FaissVectors",
    "Faq",
    "FaqIndex",
    "Hit",
    "Query",
    "Rate",
    "Rates",
    "Reply",
    "TextEncoder",
    "VectorStore",
    "augment",
    "read_faqs",
    "read_queries",
]
