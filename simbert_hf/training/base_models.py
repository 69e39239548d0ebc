"""Base models: a BERT or, for sentence vectors only, another encoder or a character GRU."""

from __future__ import annotations

import logging
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from simbert_hf.arguments import ModelArguments, refuse_idle
from simbert_hf.gru import CharGru
from simbert_hf.modeling.embedding import Embedder
from simbert_hf.modeling.encoder import SentenceEncoder, load_encoder
from simbert_hf.modeling.simbert import SimBert
from simbert_hf.utils.parsing import flag

logger = logging.getLogger(__name__)

MUCH = 0.05  # share of a text that is unknown, from which on a warning is given
ENCODERS = ("bert", "gru")
GRU_PRESET: dict[str, Any] = {
    "encoder": "gru",
    "learning_rate": 1e-3,
    "per_device_train_batch_size": 100,
}


@dataclass
class EncoderArguments:
    """The encoder to train."""

    encoder: str = flag(
        "bert",
        "bert (or a similar encoder), from --model_name_or_path; or gru over characters, a new one "
        "unless --model_name_or_path names one.",
        ENCODERS,
    )
    min_count: int = flag(5, "GRU: treat rarer characters as unknown.")
    gru_size: int = flag(128, "GRU: dimension of embedding and state.")
    mask_padding: bool = flag(True, "GRU: stop at a sentence's end, not at --max_length.")

    def __post_init__(self) -> None:
        if self.min_count < 1 or self.gru_size < 1:
            raise ValueError("--min_count and --gru_size must be at least 1.")
        if self.encoder == "bert":
            refuse_idle(self, ["min_count", "gru_size", "mask_padding"], "--encoder is bert")


def load_model(model_args: ModelArguments, max_length: int) -> SimBert:
    """Load the base model of a run on pairs of sentences.

    Args:
        model_args: Where it is, and how to load it.
        max_length: Maximum tokens of a sentence; a row holds two.

    Raises:
        OSError: If there is no such model.
        ValueError: If none is named, it has too few positions for such rows, or is whitened.
    """
    model = SimBert.from_pretrained(base_model_name(model_args), **model_args.load_options())
    check_base_model(model, model_args, max_length, sentences=2)
    return model


def load_base_model(model_args: ModelArguments, max_length: int) -> SimBert | SentenceEncoder:
    """Do what :func:`load_model` does for a run that only embeds, with one sentence per row."""
    model = load_encoder(base_model_name(model_args), **model_args.load_options())
    check_base_model(model, model_args, max_length, sentences=1)
    return model


def base_model_name(model_args: ModelArguments) -> str:
    """Return the base model's directory or Hub id; raise a ValueError if none is named."""
    if not model_args.model_name_or_path:
        raise ValueError("There is no base model; give --model_name_or_path a directory or Hub id.")
    return model_args.model_name_or_path


def check_base_model(
    model: Embedder, model_args: ModelArguments, max_length: int, sentences: int
) -> None:
    """Raise a ValueError if a model is whitened, or has too few positions for its rows."""
    longest = model.positions // sentences
    if not 3 <= max_length <= longest:
        raise ValueError(
            f"--max_length {max_length} is out of range: it must be from 3 to {longest}, as a row "
            f"of the model's {model.positions} positions holds "
            f"{'two sentences' if sentences == 2 else 'one sentence'}."
        )
    if model.whitening is not None:
        raise ValueError(
            f"{model_args.model_name_or_path} is whitened, which training would undo: train the "
            "model that it was made from, and whiten the result."
        )


def load_vector_encoder(
    model_args: ModelArguments,
    encoder_args: EncoderArguments,
    max_length: int,
    texts: Iterable[str],
) -> Embedder:
    """Load the base model of a run, or make a GRU with the characters of its texts.

    Args:
        model_args: Where it is, and how to load it.
        encoder_args: Its kind, and the shape of a new GRU.
        max_length: Maximum length of a sentence, in tokens or characters.
        texts: The training texts.

    Raises:
        OSError: If there is no such checkpoint.
        ValueError: If arguments contradict each other, or the model has too few positions.
    """
    if encoder_args.encoder == "bert":
        encoder = load_base_model(model_args, max_length)
        encoder.freeze_idle()
        return encoder
    refuse_idle(model_args, ["pooling", "hidden_dropout", "attention_dropout"], "--encoder is gru")
    if model_args.model_name_or_path:
        refuse_idle(encoder_args, ["min_count", "gru_size"], "the given GRU has its own")
        known = CharGru.from_pretrained(model_args.model_name_or_path, **model_args.load_options())
        check_base_model(known, model_args, max_length, sentences=1)
        if known.config.mask_padding and not encoder_args.mask_padding:
            raise ValueError(
                "The given GRU stops at a sentence's end: --mask_padding false, yours or a "
                "preset's, would have no effect."
            )
        return known
    if max_length < 1:
        raise ValueError(f"--max_length {max_length}: give at least 1.")
    counts = Counter[str]()
    gru = CharGru.for_texts(
        count_characters(texts, counts),
        min_count=encoder_args.min_count,
        embedding_size=encoder_args.gru_size,
        hidden_size=encoder_args.gru_size,
        max_length=max_length,
        mask_padding=encoder_args.mask_padding,
    )
    logger.info("the GRU knows %s characters", f"{gru.config.vocab_size - 2:,}")
    warn_of_rare(counts, encoder_args.min_count)
    return gru


def count_characters(texts: Iterable[str], counts: Counter[str]) -> Iterator[str]:
    """Yield texts, and count their characters as a GRU's tokenizer sees them."""
    for text in texts:
        counts.update(unicodedata.normalize("NFKC", text).lower())
        yield text


def warn_of_rare(counts: Counter[str], min_count: int) -> None:
    """Warn if characters that are too rare for a GRU to know make up much of its texts."""
    rare = [count for count in counts.values() if count < min_count]
    share = sum(rare) / counts.total()
    if share > MUCH:
        logger.warning(
            "%s characters rarer than --min_count %d (%.0f %% of the text) are unknown: lower "
            "--min_count.",
            *(f"{len(rare):,}", min_count, 100 * share),
        )
