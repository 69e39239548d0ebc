"""SimBert: one BERT that writes paraphrases and embeds sentences, saved in plain BERT format."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, Unpack

import torch
from torch import Tensor
from transformers import BertConfig, BertPreTrainedModel
from transformers.cache_utils import Cache
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import ModelOutput
from transformers.models.bert.modeling_bert import BertModel, BertOnlyMLMHead
from transformers.utils.generic import can_return_tuple

from simbert_hf.masking import prefix_mask
from simbert_hf.modeling.embedding import Embedder
from simbert_hf.modeling.loading import resolve_name
from simbert_hf.modeling.modules import check_wanted_pooling, read_modules, warn_of_other_vectors
from simbert_hf.modeling.reading import hub_options, read_config
from simbert_hf.pooling import POOLER_POOLINGS, check_pooling, pool
from simbert_hf.rows import RowBuilder
from simbert_hf.token_loss import token_loss

if TYPE_CHECKING:
    from simbert_hf.generation.synonyms import Options

# What transformers calls it, since 5.24 and before.
CACHE = "cache" if "cache" in inspect.signature(BertModel.forward).parameters else "past_key_values"


class SimBertConfig(BertConfig):
    """A ``BertConfig`` that also stores how sentence vectors are made.

    Every other loader reads the saved file as a plain ``BertConfig``.
    """

    sentence_pooling: str = "mean"
    whitening_dim: int | None = None


@dataclass
class SimBertOutput(ModelOutput):
    """Output of a forward pass.

    Attributes:
        sentence_embedding: Vector of each row's source sentence, not normalised. Shape: (B, D).
        logits: Scores of the LM head, if requested: (N, V) for N ``lm_positions``, (B, K, V) for
            ``logits_to_keep=K``.
        lm_losses: Sum of the cross-entropies of each named set of ``lm_targets``, in nats; scalars.
        last_hidden_state: Shape: (B, L, D).
        cache: The cache that was passed in, extended by this pass.
        hidden_states: Of the embeddings and each layer, if requested; each (B, L, D).
        attentions: Of each layer, if requested and attention is eager; each (B, heads, L, keys).
    """

    sentence_embedding: Tensor | None = None
    logits: Tensor | None = None
    lm_losses: dict[str, Tensor] | None = None
    last_hidden_state: Tensor | None = None
    cache: Cache | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


class SimBert(Embedder, BertPreTrainedModel, GenerationMixin):
    """BERT + tied LM head + pooler under the UniLM prefix mask (Su 2020, SimBERT).

    The original is https://github.com/ZhuiyiTechnology/simbert. Any checkpoint of the BERT
    architecture can be loaded. Without an LM head it only embeds; its new head (whose transform
    starts as the identity) can write only after training.

    Attributes:
        has_lm_head: Whether the LM head's weights were loaded or trained.

    Example:
        >>> from simbert_hf import DEFAULT_MODEL
        >>> model = SimBert.from_pretrained(DEFAULT_MODEL)  # or a folder, or "org/name"
        >>> texts = ["how can i reset my password?", "i forgot my password", "nice weather today"]
        >>> vectors = model.encode(texts)
        >>> vectors.shape, (vectors[1:] @ vectors[0]).round(2)
        ((3, 384), array([0.76, 0.15], dtype=float32))
        >>> model.gen_synonyms("where is my card?", n=5, k=1)
        ["where's my card?"]
    """

    config: SimBertConfig
    config_class = SimBertConfig
    pads_right = True
    head_prefix = "cls."  # of the names of the LM head's weights
    _supports_flash_attn = False  # neither takes the additive (B, 1, L, L) prefix mask
    _supports_flex_attn = False
    _tied_weights_keys = {  # noqa: RUF012 (transformers' own class attribute)
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }

    def __init__(self, config: SimBertConfig) -> None:
        super().__init__(config)
        check_pooling(config.sentence_pooling)
        self._add_layers(config)
        self.has_lm_head = True
        self.add_vector_modules()
        self.post_init()
        self._freeze_unused_pooler()

    def _add_layers(self, config: SimBertConfig) -> None:
        """Create the encoder and the LM head; other architectures override this."""
        self.bert = BertModel(config)
        self.cls = BertOnlyMLMHead(config)

    # ------------------------------------------------------------------ loading and saving

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls, name_or_path: str | os.PathLike[str], *, pooling: str | None = None, **kwargs: Any
    ) -> Self:
        """Load a model and its tokenizer from a directory or the Hub.

        Args:
            name_or_path: Directory, ``org/name``, or the name of a model in the package.
            pooling: Overrides the checkpoint's sentence pooling; a checkpoint that names none
                (one not made by this package) gets ``mean``.
            **kwargs: As in transformers: ``revision``, ``token``, ``cache_dir``, ``dtype``
                (float32 unless given), ``attn_implementation``, config fields such as
                ``hidden_dropout_prob``, ...

        Raises:
            ValueError: If the checkpoint has another architecture or lacks encoder weights, or a
                ``config`` object is given.
            OSError: If there is no such checkpoint.
        """
        from simbert_hf.modeling.architectures import ARCHITECTURES  # which are subclasses of this

        name_or_path, hub = resolve_name(name_or_path), hub_options(kwargs)
        found = read_config(name_or_path, hub)
        model_type = found.get("model_type", "nameless")
        if model_type not in ARCHITECTURES:
            raise ValueError(
                f"{name_or_path} is a {model_type!r} checkpoint; SimBert needs the BERT "
                'architecture ("model_type": "bert" in its config.json), ELECTRA or RoFormer.'
            )
        modules = read_modules(name_or_path, hub)
        check_wanted_pooling(name_or_path, found, pooling, modules)
        if pooling is not None:
            kwargs["sentence_pooling"] = pooling
        own: bool = model_type == cls.config_class.model_type
        kind: Any = cls if own else ARCHITECTURES[model_type]
        model, missing, taken = kind.load_weights(
            name_or_path, (kind.head_prefix, "pooler."), modules, **kwargs
        )
        model.has_lm_head = not any(
            name.startswith(kind.head_prefix) and name.endswith(("dense.weight", "decoder.weight"))
            for name in missing
        )
        if not model.has_lm_head:
            start_at_identity(model.lm_transform.dense)
        if any("pooler." in name for name in missing):
            if pooling is None and model.config.sentence_pooling in POOLER_POOLINGS:
                raise ValueError(
                    f"{name_or_path} lacks the pooler that its vectors need (its config.json says "
                    f"{model.config.sentence_pooling!r}): copy modules.json and the folders it "
                    "names from the model it was made from, or choose a pooling."
                )
            start_at_identity(model.pooler)
        model._freeze_unused_pooler()
        model.load_tokenizer(name_or_path, hub)
        warn_of_other_vectors(model, modules, name_or_path, hub, taken=taken, wanted=pooling)
        model.generation_config.eos_token_id = model.rows.sep_id  # where generate() ends
        return model

    def weights_to_save(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Leave out an untrained LM head, and a decoder that is the word embeddings."""
        left_out: tuple[str, ...] = () if self.has_lm_head else (self.head_prefix,)
        if self.config.tie_word_embeddings:  # asked now: peft's merge unties some
            left_out += (*self._tied_weights_keys,)
        else:  # the biases may be one tensor still, of which transformers would save one name
            own = {
                name: w.clone() for name, w in weights.items() if name in self._tied_weights_keys
            }
            weights = weights | own
        return {name: w for name, w in weights.items() if not name.startswith(left_out)}

    def _freeze_unused_pooler(self) -> None:
        """Train the pooler only if the pooling uses it: DDP rejects unused weights."""
        self.pooler.requires_grad_(self.config.sentence_pooling in POOLER_POOLINGS)

    def freeze_idle(self) -> None:
        """Freeze the LM head; its decoder is the word embeddings, which are still trained."""
        for name, parameter in self.named_parameters():  # the decoder's are named as embeddings
            if name.startswith(self.head_prefix):
                parameter.requires_grad_(False)

    @property
    def pooler(self) -> torch.nn.Linear:
        """The pooler's Dense layer."""
        assert self.bert.pooler is not None
        return self.bert.pooler.dense

    @property
    def vector_layers(self) -> dict[str, torch.nn.Linear]:
        """The linear layers applied to pooled vectors, by name, in order."""
        if self.config.sentence_pooling not in POOLER_POOLINGS:
            return super().vector_layers
        name = next(name for name, module in self.named_modules() if module is self.pooler)
        return {name: self.pooler} | super().vector_layers

    @property
    def lm_transform(self) -> torch.nn.Module:
        """The LM head up to its decoder."""
        return self.cls.predictions.transform

    # ------------------------------------------------------------------ forward

    def get_output_embeddings(self) -> torch.nn.Module:
        """Return the LM head's decoder, tied to the word embeddings."""
        return self.cls.predictions.decoder

    def set_output_embeddings(self, new_embeddings: torch.nn.Linear) -> None:
        """Replace the LM head's decoder; resizing the vocabulary calls this."""
        self.cls.predictions.decoder = new_embeddings
        self.cls.predictions.bias = new_embeddings.bias

    @can_return_tuple  # type: ignore[untyped-decorator]  # reads return_dict
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        lm_positions: Tensor | None = None,
        lm_targets: Mapping[str, tuple[Tensor, Tensor]] | None = None,
        cache: Cache | None = None,
        use_cache: bool | None = None,  # generate() passes it; a given cache is always used
        logits_to_keep: int = 0,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> SimBertOutput:
        """Encode rows under the prefix mask; the LM head runs only where requested.

        Args:
            input_ids: Shape: (B, L).
            attention_mask: 1 for tokens, 0 for padding, (B, L), combined with ``token_type_ids``
                into the prefix mask; or a ready-made additive mask, (B, 1, L, keys).
            token_type_ids: 0 for the source, 1 for the target; all source if None. Shape: (B, L).
            position_ids: Shape: (B, L); 0, 1, 2, ... if None.
            lm_positions: Indices into the flattened (B * L) positions where the LM head runs.
                Shape: (N,).
            lm_targets: Named pairs of such positions and their labels, (M,) each. Their losses are
                returned, without ever holding all logits.
            cache: Keys and values of earlier tokens, extended in place; ``attention_mask`` must be
                4-D. ``past_key_values``, its name before transformers 5.24, is accepted too.
            use_cache: Ignored: caching follows ``cache``.
            logits_to_keep: Run the LM head on this many last positions of each row.
            output_hidden_states: Also return the hidden states of every layer.
            **kwargs: Passed to ``BertModel``.
        """
        cache = kwargs.pop("past_key_values", cache)
        segments = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        real = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        all_layers = self.config.sentence_pooling == "first_last_mean"
        outputs = self.run_layers(
            input_ids,
            real,
            segments,
            position_ids=position_ids,
            output_hidden_states=all_layers or output_hidden_states,
            **{**kwargs, CACHE: cache},
        )
        hidden = outputs.last_hidden_state
        embedding = None
        if cache is None and real.dim() == 2:
            layers = outputs.hidden_states if all_layers else (hidden,)
            source = real * (segments == 0)
            pooled = pool(layers, source, self.config.sentence_pooling, self.pooler)
            embedding = self.finish_vectors(pooled)
        logits = losses = None
        if lm_positions is not None:
            logits = self.lm_logits(hidden.flatten(0, 1).index_select(0, lm_positions))
        elif logits_to_keep:
            logits = self.lm_logits(hidden[:, -logits_to_keep:])
        if lm_targets is not None:
            losses = self._lm_losses(hidden.flatten(0, 1), lm_targets)
        return SimBertOutput(
            embedding,
            logits,
            losses,
            hidden,
            cache,
            outputs.hidden_states if output_hidden_states else None,
            outputs.attentions,
        )

    def run_layers(self, input_ids: Tensor, real: Tensor, segments: Tensor, **kwargs: Any) -> Any:
        """Run embeddings and layers; ``simbert_hf.training.packing`` does so without the padding.

        Args:
            input_ids: Shape: (B, L).
            real: As the ``attention_mask`` of :meth:`forward`, but not None.
            segments: Shape: (B, L).
            **kwargs: Passed to ``BertModel``.

        Returns:
            ``last_hidden_state``, (B, L, D), and ``hidden_states``, if requested.
        """
        mask = prefix_mask(segments, real, self.dtype) if real.dim() == 2 else real
        types = self.token_types(segments)
        return self.base_model(input_ids, attention_mask=mask, token_type_ids=types, **kwargs)

    def token_types(self, segments: Tensor) -> Tensor:
        """Map segments to token types: some checkpoints have one embedding for all."""
        return segments if self.config.type_vocab_size > 1 else torch.zeros_like(segments)

    def lm_logits(self, hidden: Tensor) -> Tensor:
        """Return the LM head's logits, (..., V), of hidden states of the last layer, (..., D)."""
        return self.get_output_embeddings()(self.lm_transform(hidden))

    def _lm_losses(
        self, hidden: Tensor, targets: Mapping[str, tuple[Tensor, Tensor]]
    ) -> dict[str, Tensor]:
        decoder: Any = self.get_output_embeddings()
        losses = {}
        for name, (positions, labels) in targets.items():
            read = self.lm_transform(hidden.index_select(0, positions))
            losses[name] = token_loss(read, decoder.weight, decoder.bias, labels)
            if losses[name].requires_grad and not self.has_lm_head:
                losses[name].register_hook(self._trains_lm_head)
        return losses

    def _trains_lm_head(self, _: Tensor) -> None:
        self.has_lm_head = True

    # ------------------------------------------------------------------ transformers' generate()

    def generate(self, inputs: Tensor | None = None, *args: Any, **kwargs: Any) -> Any:
        """Continue each row as transformers does; padding on the right is moved to the left."""
        ids, mask = kwargs.get("input_ids", inputs), kwargs.get("attention_mask")
        if ids is not None and mask is None and self.config.pad_token_id is not None:
            mask = ids.ne(self.config.pad_token_id).long()
        if ids is not None and mask is not None and mask.shape == ids.shape:
            padding_first = mask.argsort(dim=1, stable=True)
            inputs, kwargs = None, kwargs | {"input_ids": ids, "attention_mask": mask}
            for name in kwargs.keys() & {"input_ids", "attention_mask", "token_type_ids"}:
                kwargs[name] = kwargs[name].gather(1, padding_first)
        return super().generate(inputs, *args, **kwargs)

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,  # generate() drops one that hides nothing
        token_type_ids: Tensor | None = None,
        cache: Cache | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Give ``generate()`` mask, segments and positions of the tokens not yet cached."""
        cache = kwargs.pop("past_key_values", cache)
        real = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        segments = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        start = 0 if cache is None else cache.get_seq_length()
        return {
            "input_ids": input_ids[:, start:],
            "attention_mask": prefix_mask(segments, real, self.dtype)[:, :, start:],
            "token_type_ids": segments[:, start:],
            "position_ids": (real.cumsum(-1) - 1).clamp(min=0)[:, start:],
            "cache": cache,
            "logits_to_keep": 1,
        }

    def _update_model_kwargs_for_generation(  # type: ignore[override]
        self, outputs: ModelOutput, model_kwargs: dict[str, Any], **kwargs: Any
    ) -> dict[str, Any]:
        segments = model_kwargs.pop("token_type_ids", None)
        if segments is None:
            mask = model_kwargs.get("attention_mask")
            segments = torch.zeros_like(model_kwargs["position_ids"] if mask is None else mask)
        model_kwargs = super()._update_model_kwargs_for_generation(outputs, model_kwargs, **kwargs)
        new = torch.ones_like(segments[:, :1])  # what is written stands in segment 1
        return {**model_kwargs, "token_type_ids": torch.cat([segments, new], dim=1)}

    # ------------------------------------------------------------------ sentences

    @property
    def rows(self) -> RowBuilder:
        """Row builder for the model's tokenizer; raises a ValueError if there is none."""
        return RowBuilder(self.loaded_tokenizer())

    def gen_synonyms(
        self,
        text: str | Sequence[str],
        n: int = 100,
        k: int | None = None,
        *,
        return_scores: bool = False,
        **options: Unpack[Options],
    ) -> Any:
        """Write paraphrases, best first: :func:`simbert_hf.generation.synonyms.gen_synonyms`."""
        from simbert_hf.generation.synonyms import gen_synonyms

        return gen_synonyms(text, n, k, model=self, return_scores=return_scores, **options)


@torch.no_grad()
def start_at_identity(linear: torch.nn.Linear) -> None:
    """Initialise a layer as the identity; an LM head's transform then learns far faster."""
    linear.weight.copy_(torch.eye(*linear.weight.shape))
    linear.bias.zero_()
