"""Any transformers encoder that takes a 2-D attention mask, as a sentence encoder."""

from __future__ import annotations

import inspect
import os
from typing import Any, Self

from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor
from transformers import AutoConfig, AutoModel, PreTrainedConfig

from simbert_hf.modeling.architectures import ARCHITECTURES
from simbert_hf.modeling.embedding import Embedder
from simbert_hf.modeling.loading import loading, resolve_name
from simbert_hf.modeling.modules import check_wanted_pooling, read_modules, warn_of_other_vectors
from simbert_hf.modeling.reading import OWN_CODE, hub_options, read_config
from simbert_hf.modeling.simbert import SimBert, SimBertOutput
from simbert_hf.pooling import check_pooling
from simbert_hf.rows import TemplateRows

POOLINGS = ("mean", "cls", "first_last_mean")
# What configs call BERT's two dropouts; XLNet has one for both.
DROPOUTS = {
    "hidden_dropout_prob": ("hidden_dropout_prob", "hidden_dropout", "dropout", "mlp_dropout"),
    "attention_probs_dropout_prob": ("attention_probs_dropout_prob", "attention_dropout"),
}


class SentenceEncoder(Embedder):
    """An ``AutoModel`` (RoBERTa, XLNet, DistilBERT, ...) and a pooling, for SimCSE and the like.

    The tokenizer's own template builds the rows, so special tokens, segments and the padding side
    are the architecture's. A saved directory loads in ``AutoModel`` and ``SentenceTransformer``,
    and the latter gives the same vectors. It has no LM head; for BERT, use ``SimBert``.

    Args:
        config: The architecture's, with ``sentence_pooling``: mean, cls or first_last_mean.

    Raises:
        ValueError: If the pooling is not one of these, or the architecture has a decoder or takes
            no attention mask.

    Example:
        >>> from simbert_hf import DEFAULT_MODEL
        >>> model = SentenceEncoder.from_pretrained(DEFAULT_MODEL)  # or "distilroberta-base", ...
        >>> vectors = model.encode(["where is my card?", "i lost my card"])
        >>> vectors.shape, round(float(vectors[0] @ vectors[1]), 2)
        ((2, 384), 0.77)
        >>> hasattr(model, "gen_synonyms")
        False
    """

    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = True  # the encoder inside decides
    _supports_attention_backend = True

    def __init__(self, config: PreTrainedConfig) -> None:
        if config.sentence_pooling not in POOLINGS:
            raise ValueError(
                f"Pooling {config.sentence_pooling!r} is for BERT checkpoints; choose one of "
                f"{', '.join(POOLINGS)}."
            )
        if config.is_encoder_decoder:
            raise ValueError(f"A {config.model_type!r} model has a decoder; give an encoder only.")
        encoder = AutoModel.from_config(config, **OWN_CODE)
        super().__init__(encoder.config)  # which now names an attention that the encoder has
        # Weights are named as in the architecture's own task models, which AutoModel reads.
        self.base_model_prefix = encoder.base_model_prefix
        setattr(self, encoder.base_model_prefix, encoder)
        self.supports_gradient_checkpointing = encoder.supports_gradient_checkpointing
        taken = inspect.signature(encoder.forward).parameters
        if "attention_mask" not in taken:
            raise ValueError(f"A {config.model_type!r} model takes no mask to hide the padding.")
        self.takes_segments = "token_type_ids" in taken
        self.pooling = Pooling(config.hidden_size, self.pooling_mode)
        self.add_vector_modules()
        self.post_init()

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls, name_or_path: str | os.PathLike[str], *, pooling: str | None = None, **kwargs: Any
    ) -> Self:
        """Load an encoder and its tokenizer from a directory or the Hub.

        Args:
            name_or_path: Directory or ``org/name``.
            pooling: Overrides the checkpoint's pooling; ``mean`` if it names none.
            **kwargs: As in transformers. ``hidden_dropout_prob`` and
                ``attention_probs_dropout_prob`` work whatever the architecture calls them.

        Raises:
            ValueError: If the checkpoint lacks encoder weights, has no such dropout or is a
                ``CharGru``, or a ``config`` object is given.
            OSError: If there is no such checkpoint.
        """
        hub = hub_options(kwargs)
        found = read_config(name_or_path, hub)
        if found.get("model_type") == "char_gru":
            raise ValueError(
                f"{name_or_path} is a CharGru, which loads in Python (CharGru.from_pretrained) and "
                "in scripts that have --encoder gru."
            )
        dropouts = {option: kwargs.pop(option) for option in DROPOUTS.keys() & kwargs.keys()}
        dtype = kwargs.pop("dtype")
        with loading(name_or_path):
            config, kwargs = AutoConfig.from_pretrained(
                name_or_path, return_unused_kwargs=True, **OWN_CODE, **kwargs
            )
        own: str = getattr(config, "sentence_pooling", "mean")
        modules = read_modules(name_or_path, hub)
        check_wanted_pooling(name_or_path, found, pooling, modules)
        config.sentence_pooling = check_pooling(pooling or own)
        for option, value in dropouts.items():
            set_dropout(config, option, value)
        kwargs |= hub | {"config": config, "dtype": dtype}
        model, _, taken = cls.load_weights(name_or_path, (".pooler.",), modules, **kwargs)
        model.load_tokenizer(name_or_path, hub)
        tokenizer = model.loaded_tokenizer()
        tokenizer.model_max_length = min(tokenizer.model_max_length, model.positions)
        if tokenizer("a")["input_ids"][-1] == tokenizer.cls_token_id:
            model.cls_mode = "lasttoken"
        model.pooling = Pooling(config.hidden_size, model.pooling_mode)
        warn_of_other_vectors(model, modules, name_or_path, hub, taken=taken, wanted=pooling)
        return model

    def freeze_idle(self) -> None:
        """Freeze weights that no vector depends on, such as a pooler: DDP rejects unused ones."""
        self(**self.rows.pad(self.rows.sources(["a"], 8))).sentence_embedding.sum().backward()
        for parameter in self.parameters():
            parameter.requires_grad_(parameter.grad is not None)
            parameter.grad = None

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> SimBertOutput:
        """Encode rows.

        Args:
            input_ids: Shape: (B, L).
            attention_mask: 1 for tokens, 0 for padding on either side. Shape: (B, L).
            token_type_ids: If the tokenizer returns them. Shape: (B, L).

        Returns:
            A ``SimBertOutput`` without logits.
        """
        segments = {"token_type_ids": token_type_ids} if self.takes_segments else {}
        all_layers = self.config.sentence_pooling == "first_last_mean"
        output = self.base_model(
            input_ids, attention_mask=attention_mask, output_hidden_states=all_layers, **segments
        )
        hidden = states = output.last_hidden_state
        if all_layers:
            states = (output.hidden_states[1] + hidden) / 2
        features = {"token_embeddings": states, "attention_mask": attention_mask}
        pooled = self.pooling(features)["sentence_embedding"]
        return SimBertOutput(self.finish_vectors(pooled), last_hidden_state=hidden)

    @property
    def rows(self) -> TemplateRows:
        """Row builder for the model's tokenizer; raises a ValueError if there is none."""
        return TemplateRows(self.loaded_tokenizer())


def load_encoder(name_or_path: str, **options: Any) -> SimBert | SentenceEncoder:
    """Load BERT and the like as :class:`SimBert`, other encoders as :class:`SentenceEncoder`.

    Arguments and errors are those of ``from_pretrained``.
    """
    name_or_path, hub = resolve_name(name_or_path), hub_options(options)
    if read_config(name_or_path, hub).get("model_type") in ARCHITECTURES:
        return SimBert.from_pretrained(name_or_path, **options)
    return SentenceEncoder.from_pretrained(name_or_path, **options)


def set_dropout(config: PreTrainedConfig, option: str, value: float) -> None:
    """Set a dropout by BERT's name for it; raise a ValueError if the architecture has none."""
    name = next((name for name in DROPOUTS[option] if hasattr(config, name)), None)
    if name is None:
        raise ValueError(f"A {config.model_type!r} model has no {option}; leave it out.")
    setattr(config, name, value)
