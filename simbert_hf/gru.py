"""A small encoder over characters: the GRU of the AM-Softmax article (Su 2018)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedTokenizerFast

from simbert_hf.modeling.embedding import Embedder
from simbert_hf.modeling.loading import loading
from simbert_hf.modeling.reading import check_tokenizer, hub_options, read_config
from simbert_hf.modeling.simbert import SimBertOutput
from simbert_hf.rows import RowBuilder

PAD, UNKNOWN = "[PAD]", "[UNK]"
LARGEST_VOCABULARY = 1_200_000  # more than Unicode has characters: only ``min_count`` limits it


def char_tokenizer(texts: Iterable[str], min_count: int = 5) -> PreTrainedTokenizerFast:
    """Make a tokenizer whose tokens are the characters that occur often enough.

    Text is normalised to half width (NFKC) and lower case, in training and in use.

    Args:
        texts: Texts in which the characters are counted.
        min_count: Rarer characters are unknown.

    Raises:
        ValueError: If no character is that frequent.

    Example:
        >>> tokenizer = char_tokenizer(["a？?b", "BA"], min_count=2)
        >>> tokenizer.convert_ids_to_tokens(tokenizer("B？c")["input_ids"])
        ['b', '?', '[UNK]']
    """
    tokenizer = Tokenizer(models.WordLevel(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    trainer = trainers.WordLevelTrainer(
        vocab_size=LARGEST_VOCABULARY,
        min_frequency=min_count,
        special_tokens=[PAD, UNKNOWN],
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() == 2:
        raise ValueError(f"No character occurs {min_count} times; lower the minimum count.")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, unk_token=UNKNOWN)


class CharRows(RowBuilder):
    """Turns texts into rows of character ids.

    Args:
        tokenizer: As from :func:`char_tokenizer`.
        width: Pad every row to at least this length; 0 pads to the longest row only.
    """

    n_special = 0

    def __init__(self, tokenizer: PreTrainedTokenizerFast, width: int = 0) -> None:
        self.tokenizer = tokenizer
        self.pad_id = self._special("pad_token")
        self.width = width

    def sources(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """Return the ids of each text, at most ``max_length``; there are no special tokens."""
        return self._ids(self._encode(texts), max_length, self.n_special)


class CharGruConfig(PretrainedConfig):
    """Configuration of a :class:`CharGru`.

    Attributes:
        vocab_size: Number of characters, including padding and the unknown one.
        embedding_size: Dimension of a character's embedding.
        hidden_size: Dimension of the state, and so of a sentence vector.
        max_length: Maximum number of characters to read of a sentence.
        mask_padding: Take the state after the last character. False takes it after the padding to
            ``max_length``, as the article's code does.
    """

    model_type = "char_gru"
    vocab_size: int = 2
    embedding_size: int = 128
    hidden_size: int = 128
    max_length: int = 32
    mask_padding: bool = True


class CharGru(Embedder):
    """Characters -> embeddings -> one GRU layer, whose last state is the sentence vector.

    A saved directory holds ``config.json``, ``model.safetensors`` and the tokenizer's files. Only
    this class loads it; other tools use it through :meth:`sentence_transformer`.

    Args:
        config: Sizes and options.

    Example:
        >>> model = CharGru.for_texts(["a cat sat", "a cat ran"], min_count=1)
        >>> model.encode(["a cat", "cats"]).shape
        (2, 128)
    """

    config_class = CharGruConfig
    config: CharGruConfig

    def __init__(self, config: CharGruConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.embedding_size)
        self.gru = nn.GRU(config.embedding_size, config.hidden_size, batch_first=True)
        self.add_vector_modules()
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Keep PyTorch's own initialisation of embeddings and GRUs, instead of BERT's."""

    @classmethod
    def for_texts(cls, texts: Iterable[str], *, min_count: int = 5, **config: Any) -> Self:
        """Make an untrained model with the vocabulary of some texts.

        Args:
            texts: Texts it will be trained on.
            min_count: Characters that occur less often are unknown.
            **config: Fields of :class:`CharGruConfig`.
        """
        tokenizer = char_tokenizer(texts, min_count)
        model = cls(CharGruConfig(vocab_size=len(tokenizer), **config))
        model.tokenizer = tokenizer
        return model

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls, name_or_path: str | os.PathLike[str], **kwargs: Any
    ) -> Self:
        """Load a model and its tokenizer from a directory or the Hub.

        Raises:
            ValueError: If it is not a ``CharGru``, or lacks weights.
            OSError: If there is no such checkpoint.
        """
        hub = hub_options(kwargs)
        kind = read_config(name_or_path, hub).get("model_type")
        if kind != CharGruConfig.model_type:
            raise ValueError(
                f"{name_or_path} is a {kind or 'nameless'!r} checkpoint, not a char_gru."
            )
        model, *_ = cls.load_weights(name_or_path, (), **kwargs)
        with loading(name_or_path):
            tokenizer = PreTrainedTokenizerFast.from_pretrained(name_or_path, **hub)
        check_tokenizer(name_or_path, tokenizer, model.config.vocab_size)
        model.tokenizer = tokenizer
        return model

    def finish_saving(self, directory: Path, weights: dict[str, Tensor]) -> None:
        """Write the tokenizer; no other loader reads such a model."""
        if self.tokenizer is not None:
            self.tokenizer.save_pretrained(directory)

    @property
    def rows(self) -> CharRows:
        """Row builder for character ids; raises a ValueError if there is no tokenizer."""
        tokenizer: Any = self.loaded_tokenizer()
        return CharRows(tokenizer, 0 if self.config.mask_padding else self.config.max_length)

    @property
    def positions(self) -> int:
        """Maximum number of characters to read of a sentence."""
        return self.config.max_length

    def get_input_embeddings(self) -> nn.Module:
        """Return the characters' embeddings; NEFTune asks for them."""
        return self.embedding

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any
    ) -> SimBertOutput:
        """Read the rows, padded on the right.

        Args:
            input_ids: Shape: (B, L).
            attention_mask: 1 for characters, 0 for padding; all are characters if None. (B, L).
            **_: Inputs of other encoders, which are ignored.

        Returns:
            The sentence vectors, not normalised, (B, D), and all states, (B, L, D).
        """
        states, _last = self.gru(self.embedding(input_ids))  # (B, L, D)
        if attention_mask is None or not self.config.mask_padding:
            return SimBertOutput(self.finish_vectors(states[:, -1]), last_hidden_state=states)
        ends = attention_mask.sum(dim=1) - 1  # a state knows nothing of the padding behind it
        vectors = states[torch.arange(len(states), device=states.device), ends]
        return SimBertOutput(self.finish_vectors(vectors), last_hidden_state=states)
