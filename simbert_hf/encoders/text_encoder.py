"""Wrap any sentence encoder, with a fingerprint by which an index recognises its model."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from simbert_hf.modeling.embedding import Embedder, evaluating
from simbert_hf.modeling.loading import SHIPPED, resolve_name
from simbert_hf.rows import unread, warn_of_cuts, warn_of_unread
from simbert_hf.utils.arrays import Vectors
from simbert_hf.utils.text import compose
from simbert_hf.utils.textfiles import DataError, shorten


class TextEncoder:
    """Turns texts into unit vectors, with any sentence encoder.

    Args:
        model: A ``SimBert`` or another encoder of this package, a ``SentenceTransformer``, or a
            directory or Hub id of one of them.
        batch_size: Texts per forward pass.
        prompt: Put before every text, as E5 and BGE expect (``"query: "``); a
            ``SentenceTransformer``'s default prompt if None.

    Attributes:
        name: The model's directory or id; empty for one that was never saved.
        fingerprint: SHA-256 of the encoder's weights, the same whichever class loaded them; heads,
            pooler and pooling are not included.
        dtype: Type of these weights: ``float32``, ``bfloat16``, ...
        prompt: What is put before every text.

    Raises:
        OSError: If there is no such model.
        TypeError: If ``model`` is not a model.

    Example:
        >>> from simbert_hf import DEFAULT_MODEL
        >>> encoder = TextEncoder(DEFAULT_MODEL)  # or "intfloat/e5-small-v2", prompt="query: "
        >>> vectors = encoder(["where is my card?", "i lost my card"])
        >>> vectors.shape, encoder.dtype, len(encoder.fingerprint)
        ((2, 384), 'float32', 64)
    """

    def __init__(self, model: Any, *, batch_size: int = 64, prompt: str | None = None) -> None:
        given = ""
        if isinstance(model, str | os.PathLike):
            from simbert_hf.encoders.loader import load_sentence_transformer  # slow to import

            given = resolve_name(model)
            model = load_sentence_transformer(given)
        if not isinstance(model, nn.Module) or not hasattr(model, "encode"):
            raise TypeError(
                f"The model is {shorten(model)}; give a SimBert, a SentenceTransformer or a path."
            )
        self.model: Any = model
        self.batch_size = batch_size
        self.prompt = default_prompt(model) if prompt is None else prompt
        self._tokenizer = copy_of(getattr(model, "tokenizer", None))
        body = body_of(model)
        known = getattr(getattr(body, "config", None), "_name_or_path", "")  # an adapter's base's
        self.name = saved_name(given or known)
        self.fingerprint = fingerprint(body)
        self.dtype = dtype_of(body)

    def __call__(self, texts: Sequence[str], **options: Any) -> Vectors:
        """Embed texts in float32: (N,) -> (N, D).

        Args:
            texts: Shape: (N,).
            **options: Further options of the model's ``encode``; by default no progress bar.

        Raises:
            DataError: If the model gives another number of vectors, or one that is not of length 1,
                for example because training diverged.
        """
        options |= {"batch_size": self.batch_size, "normalize_embeddings": True}
        options.setdefault("show_progress_bar", False)
        if not isinstance(self.model, Embedder):  # which itself composes and warns
            texts = list(map(compose, texts))
            self._warn(texts)
        if hasattr(self.model, "prompts"):  # a SentenceTransformer may pool without the prompt
            options["prompt"], prompt = self.prompt, ""
        else:
            prompt = self.prompt
        with evaluating(self.model):
            found = self.model.encode([prompt + text for text in texts], **options)
        return check_vectors(found, texts)

    def unread(self, texts: Sequence[str]) -> list[str]:
        """Find the texts that the model cannot read; see :func:`simbert_hf.rows.unread`."""
        return [] if self._tokenizer is None else unread(self._tokenizer, texts)

    def _warn(self, texts: Sequence[str]) -> None:
        """Warn of texts that a ``SentenceTransformer`` would silently cut, or cannot read."""
        if self._tokenizer is None:
            return
        most = getattr(self.model, "max_seq_length", None) or math.inf
        if self.unread(texts):
            warn_of_unread()
        prompted = (self.prompt + text for text in texts)
        long = [text for text in prompted if len(text.encode()) > most - 2]  # a token has a byte
        rows = self._tokenizer(long, verbose=False)["input_ids"] if long else []
        if max(map(len, rows), default=0) > most:
            warn_of_cuts(int(most))


def default_prompt(model: nn.Module) -> str:
    """Return what a ``SentenceTransformer`` puts before texts by itself."""
    name = getattr(model, "default_prompt_name", None)
    return "" if name is None else str(getattr(model, "prompts", {}).get(name, ""))


def check_vectors(found: Any, texts: Sequence[str]) -> Vectors:
    """Return vectors in float32, (N, D); raise a DataError if they are not N of length 1."""
    vectors = np.ascontiguousarray(found, dtype=np.float32)
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise DataError(
            f"The model's encode returns an array of shape {vectors.shape} for {len(texts)} texts. "
            "It must return a vector for each, in their order."
        )
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    bad = np.flatnonzero(~(abs(lengths - 1) < 1e-2))  # also true of NaN
    if len(bad):
        raise DataError(
            f"The model's vector of {shorten(texts[bad[0]])} is not of length 1. Check for "
            "overflow in 16-bit weights, or training that diverged."
        )
    return vectors / lengths  # models in 16 bits reach 1 only roughly


def saved_name(name: str) -> str:
    """Name a model so that another process finds it: by its id or absolute path.

    The package's own models are given by their bare names, as their paths differ between machines.
    """
    if name in SHIPPED.values():
        return Path(name).name
    return str(Path(name).resolve()) if name and Path(name).is_dir() else name


def body_of(model: nn.Module) -> nn.Module:
    """Return what transformers' ``AutoModel`` would load, inside any wrapper; else all of it."""
    first = next(model.children(), model)
    ours = model if isinstance(model, Embedder) else getattr(first, "model", None)
    if isinstance(ours, Embedder):
        return ours.base_model
    inner = getattr(first, "auto_model", None)
    return inner if isinstance(inner, nn.Module) else model


def fingerprint(body: nn.Module) -> str:
    """Hash the weights of an encoder, as float32, with their names.

    Example:
        >>> a, b = nn.Linear(2, 2), nn.Linear(2, 2)
        >>> fingerprint(a) == fingerprint(a), fingerprint(a) == fingerprint(b)
        (True, False)
    """
    digest = hashlib.sha256()
    for name, weight in sorted(body.state_dict().items()):
        if name.startswith("pooler.") or name.endswith("position_ids"):
            continue  # not in every checkpoint; what a pooler changes shows in the vectors
        for part in weight if isinstance(weight, tuple) else (weight,):  # torch's quantized layers
            if not isinstance(part, Tensor):
                continue
            digest.update(f"{name} {tuple(part.shape)}".encode())
            plain = part.detach().cpu().dequantize().to(torch.float32)
            digest.update(plain.contiguous().numpy().data)
    return digest.hexdigest()


def dtype_of(body: nn.Module) -> str:
    """Name the type of an encoder's weights.

    Example:
        >>> dtype_of(nn.Linear(2, 2).bfloat16())
        'bfloat16'
    """
    weights = (weight for weight in body.state_dict().values() if isinstance(weight, Tensor))
    found = (weight.dtype for weight in weights if weight.is_floating_point())
    return str(next(found, torch.float32)).removeprefix("torch.")


def copy_of(tokenizer: Any) -> PreTrainedTokenizerBase | None:
    """Copy a tokenizer, as other threads set theirs to truncate; None if it is none.

    Static embeddings, such as Model2Vec's, have one of the library tokenizers, which is wrapped.
    Code of Python that cuts words, as RoFormer's does, cannot be copied: the copy shares it.
    """
    if isinstance(tokenizer, Tokenizer):
        try:
            told = tokenizer.to_str()
        except Exception:  # it has parts written in Python
            return None
        model = json.loads(told)["model"]
        place = model.get("unk_id")  # Unigram's
        unknown = model.get("unk_token") if place is None else tokenizer.id_to_token(place)
        own = Tokenizer.from_str(told)
        return PreTrainedTokenizerFast(tokenizer_object=own, unk_token=unknown)
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        return None
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    try:
        return deepcopy(tokenizer)
    except Exception:
        if backend is None:
            raise
    own, backend.pre_tokenizer = backend.pre_tokenizer, BertPreTokenizer()
    try:
        copy = deepcopy(tokenizer)
    finally:
        backend.pre_tokenizer = own
    copied: Any = copy
    copied.backend_tokenizer.pre_tokenizer = own
    return copy
