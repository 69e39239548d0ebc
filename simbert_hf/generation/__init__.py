"""Paraphrases: decoding, ranking, and spelling them as their text."""

from __future__ import annotations

from simbert_hf.generation.synonyms import Paraphrase, gen_synonyms

__all__ = [
    "Paraphrase",
    "gen_synonyms",
]
