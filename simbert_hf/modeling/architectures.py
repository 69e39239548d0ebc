"""SimBert on variants of BERT: factorised embeddings (ELECTRA) and rotary positions (RoFormer).

Neither architecture has a pooler of its own. Ours is stored next to the encoder as
``sentence_pooler``: plain ``AutoModel`` ignores it, and SentenceTransformer reads a Dense module.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import ElectraConfig, ElectraModel, RoFormerConfig, RoFormerModel
from transformers.models.electra.modeling_electra import (
    ElectraGeneratorPredictions,
    ElectraPreTrainedModel,
)
from transformers.models.roformer.modeling_roformer import (
    RoFormerOnlyMLMHead,
    RoFormerPreTrainedModel,
)

from simbert_hf.modeling.simbert import SimBert, SimBertOutput


class FactorisedConfig(ElectraConfig):
    """An ``ElectraConfig`` that also stores how sentence vectors are made."""

    sentence_pooling: str = "mean"
    whitening_dim: int | None = None


class FactorisedSimBert(SimBert, ElectraPreTrainedModel):
    """A SimBert whose embeddings are narrower than its layers, like the released tiny and small.

    E-dimensional embeddings are projected to the hidden size H, and the LM head's transform
    projects H back to E. It is saved as an ELECTRA generator: ``AutoModel`` loads an
    ``ElectraModel`` and ``AutoModelForMaskedLM`` an ``ElectraForMaskedLM``.
    """

    config: FactorisedConfig  # type: ignore[assignment]
    config_class = FactorisedConfig  # type: ignore[assignment]
    base_model_prefix = "electra"
    head_prefix = "generator_"
    _tied_weights_keys = {  # noqa: RUF012
        "generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"
    }

    def _add_layers(self, config: FactorisedConfig) -> None:  # type: ignore[override]
        self.electra = ElectraModel(config)
        self.generator_predictions = ElectraGeneratorPredictions(config)
        self.generator_lm_head = nn.Linear(config.embedding_size, config.vocab_size)
        self.sentence_pooler = nn.Linear(config.hidden_size, config.hidden_size)

    @property
    def pooler(self) -> nn.Linear:
        """The pooler's Dense layer."""
        return self.sentence_pooler

    @property
    def lm_transform(self) -> nn.Module:
        """The LM head up to its decoder: H -> E."""
        return self.generator_predictions

    def get_output_embeddings(self) -> nn.Module:
        """Return the LM head's decoder, tied to the word embeddings."""
        return self.generator_lm_head

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        """Replace the LM head's decoder; resizing the vocabulary calls this."""
        self.generator_lm_head = new_embeddings


class RotaryConfig(RoFormerConfig):
    """A ``RoFormerConfig`` that also stores how sentence vectors are made."""

    sentence_pooling: str = "mean"
    whitening_dim: int | None = None


class RotarySimBert(SimBert, RoFormerPreTrainedModel):
    """A SimBert with rotary positions (Su et al. 2021, https://arxiv.org/abs/2104.09864).

    This is the architecture of RoFormer-Sim. Only distances between tokens matter, so
    ``position_ids`` are ignored: with a cache, sources must be padded on the left.
    """

    config: RotaryConfig  # type: ignore[assignment]
    config_class = RotaryConfig  # type: ignore[assignment]
    base_model_prefix = "roformer"
    _supports_sdpa = False  # transformers' RoFormer has its own attention only
    _tied_weights_keys = {  # noqa: RUF012
        "cls.predictions.decoder.weight": "roformer.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }

    def _add_layers(self, config: RotaryConfig) -> None:  # type: ignore[override]
        self.roformer = RoFormerModel(config)
        self.cls = RoFormerOnlyMLMHead(config)  # type: ignore[assignment]
        self.sentence_pooler = nn.Linear(config.hidden_size, config.hidden_size)

    def _freeze_unused_pooler(self) -> None:
        super()._freeze_unused_pooler()
        self.roformer.encoder.embed_positions.requires_grad_(False)  # sines, computed once

    @property
    def pooler(self) -> nn.Linear:
        """The pooler's Dense layer."""
        return self.sentence_pooler

    def forward(
        self, input_ids: Tensor, *args: Any, position_ids: Tensor | None = None, **kwargs: Any
    ) -> SimBertOutput:
        """Encode rows like :meth:`SimBert.forward`; ``position_ids`` are ignored."""
        return super().forward(input_ids, *args, **kwargs)


ARCHITECTURES: dict[str, type[SimBert]] = {
    "bert": SimBert,
    "electra": FactorisedSimBert,
    "roformer": RotarySimBert,
}
