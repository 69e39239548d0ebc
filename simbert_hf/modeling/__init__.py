"""SimBert, the encoders beside it, and what makes their checkpoints."""

from __future__ import annotations

from simbert_hf.modeling.encoder import SentenceEncoder
from simbert_hf.modeling.simbert import SimBert, SimBertConfig, SimBertOutput

__all__ = [
    "SentenceEncoder",
    "SimBert",
    "SimBertConfig",
    "SimBertOutput",
]
