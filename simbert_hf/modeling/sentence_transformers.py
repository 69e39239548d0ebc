"""Use an in-memory encoder of this package in sentence-transformers.

KeyBERT and BERTopic look for that name in a model's type, which holds this module's; without it,
they take another model without a word.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import InputModule
from sentence_transformers.sentence_transformer.modules import Normalize
from torch import Tensor, nn

from simbert_hf.gru import CharGru, CharGruConfig
from simbert_hf.modeling.checkpoint import update_json
from simbert_hf.modeling.embedding import Embedder
from simbert_hf.modeling.encoder import load_encoder
from simbert_hf.modeling.modules import CONFIG
from simbert_hf.modeling.reading import read_config
from simbert_hf.objectives import model_inputs
from simbert_hf.rows import check_texts


class EmbedderTransformer(SentenceTransformer):
    """A SentenceTransformer around a model: it shares its weights and is saved and loaded like it.

    Args:
        model: The encoder, or its directory, which SentenceTransformerTrainer passes to load the
            best one. What is set on the wrapper, such as prompts, is saved with it.
        **_: Other arguments of SentenceTransformer, which are ignored.
    """

    def __init__(self, model: Embedder | str | os.PathLike[str], **_: Any) -> None:
        if isinstance(model, str | os.PathLike):
            model = load_embedder(model)
        modules: list[nn.Module] = [EmbedderModule(model), Normalize()]
        super().__init__(modules=modules, device=str(model.device))

    def save(
        self,
        path: str | None,
        model_name: str | None = None,
        create_model_card: bool = True,
        train_datasets: list[str] | None = None,
        safe_serialization: bool = True,
    ) -> None:
        """Write the model's own directory and a sentence-transformers model card.

        Raises:
            ValueError: If pickles are requested, or modules were added, which cannot be saved.
        """
        if path is None:
            return
        if not safe_serialization:
            raise ValueError("Weights are written as safetensors only.")
        if [type(module) for module in self] != [EmbedderModule, Normalize]:
            raise ValueError(
                "Only the model itself is saved, not modules added to it: to train those, save "
                "the model first and load it with SentenceTransformer(folder)."
            )
        first: Any = self[0]
        first.model.save_pretrained(path)
        settings = Path(path, CONFIG)
        if settings.exists():  # a GRU has none
            update_json(settings, self._get_model_config())
        if create_model_card:
            self._create_model_card(path, model_name, train_datasets)


def load_embedder(path: str | os.PathLike[str]) -> Embedder:
    """Load any encoder of this package."""
    is_gru = read_config(path, {}).get("model_type") == CharGruConfig.model_type
    return CharGru.from_pretrained(path) if is_gru else load_encoder(os.fspath(path))


class EmbedderModule(InputModule):
    """An encoder of this package as the first module of a SentenceTransformer."""

    def __init__(self, model: Embedder) -> None:
        super().__init__()
        self.model = model
        self.tokenizer: Any = model.tokenizer

    def preprocess(
        self, inputs: Sequence[Any], prompt: str | None = None, **_: Any
    ) -> dict[str, Tensor | Any]:
        """Tokenize texts into padded rows.

        Raises:
            TypeError: If a text is not a string.
            ValueError: If a text is empty: a GRU has no state for it.
        """
        texts = [(prompt or "") + text for text in check_texts(inputs)]
        rows = self.model.rows
        return dict(rows.pad(rows.sources(texts, self.max_seq_length)))

    def forward(self, features: dict[str, Tensor | Any], **_: Any) -> dict[str, Tensor | Any]:
        """Add the vectors of sentences and, as sentence-transformers does, of their tokens."""
        output = self.model(**model_inputs(features))
        return features | {
            "sentence_embedding": output.sentence_embedding,
            "token_embeddings": output.last_hidden_state,
        }

    @property
    def max_seq_length(self) -> int:
        """Maximum length in tokens; it is stored in the tokenizer and saved with it."""
        return self.model.max_length

    @max_seq_length.setter
    def max_seq_length(self, value: int) -> None:
        self.model.loaded_tokenizer().model_max_length = value

    def get_embedding_dimension(self) -> int:
        """Dimension of a sentence vector."""
        return self.model.dimension

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Save the encoder; its own ``from_pretrained`` loads it."""
        self.model.save_pretrained(output_path)
