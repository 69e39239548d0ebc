"""An encoder of this package, as it is in memory, inside sentence-transformers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import InputModule
from sentence_transformers.sentence_transformer.modules import Normalize
from torch import Tensor, nn

from simbert_hf.modeling.embedding import Embedder
from simbert_hf.objectives import model_inputs
from simbert_hf.rows import check_texts


def as_sentence_transformer(model: Embedder) -> SentenceTransformer:
    """Build a SentenceTransformer around a model (the same weights, not a copy).

    It cannot be saved and loaded as such: sentence-transformers refuses foreign modules.
    """
    modules: list[nn.Module] = [EmbedderModule(model), Normalize()]
    return SentenceTransformer(modules=modules, device=str(model.device))


class EmbedderModule(InputModule):
    """An encoder of this package as the first module of a SentenceTransformer."""

    def __init__(self, model: Embedder) -> None:
        super().__init__()
        self.model = model
        self.max_seq_length = model.max_length

    def preprocess(
        self, inputs: Sequence[Any], prompt: str | None = None, **_: Any
    ) -> dict[str, Tensor | Any]:
        """Turn texts into padded rows.

        Raises:
            TypeError: If a text is not a string.
            ValueError: If a text is empty: a GRU has no state for it.
        """
        texts = [(prompt or "") + text for text in check_texts(inputs)]
        rows = self.model.rows
        batch: dict[str, Tensor | Any] = dict(rows.pad(rows.sources(texts, self.max_seq_length)))
        return batch

    def forward(self, features: dict[str, Tensor | Any], **_: Any) -> dict[str, Tensor | Any]:
        """Add the sentence vectors."""
        vectors = self.model(**model_inputs(features)).sentence_embedding
        return features | {"sentence_embedding": vectors}

    def get_embedding_dimension(self) -> int:
        """Dimension of a sentence vector."""
        return self.model.dimension

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Write the encoder, to be loaded with its own ``from_pretrained``."""
        self.model.save_pretrained(output_path)
