"""Load any sentence encoder by its name, for search, mining and evaluation."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import try_to_load_from_cache
from sentence_transformers import SentenceTransformer
from transformers import PretrainedConfig

from simbert_hf.gru import CharGru, CharGruConfig
from simbert_hf.modeling.loading import complete, loading, resolve_name
from simbert_hf.modeling.reading import check_tokenizer, optional_json, sentence_limit

logger = logging.getLogger(__name__)

MODULES = "modules.json"  # by which sentence-transformers finds a model's parts


def load_sentence_transformer(name_or_path: str, device: str | None = None) -> SentenceTransformer:
    """Load any model that sentence-transformers loads, or a :class:`CharGru`, in float32.

    Weights may be stored in 16 bits to save space; all tools compute with them in float32.

    Args:
        name_or_path: Directory, ``org/name``, or the name of a model in the package.
        device: Where to put it; if None, sentence-transformers chooses, and a GRU is on the CPU.

    Raises:
        OSError: If there is no such checkpoint, or it lacks the modules that make its vectors.
        ValueError: If it lacks weights, which transformers would draw at random, or a tokenizer, of
            which it would invent one of special tokens only, which makes all texts equal.
    """
    name_or_path = resolve_name(name_or_path)
    path = Path(name_or_path)
    names = "config.json", MODULES, "adapter_config.json"
    if path.is_dir() and not any((path / name).exists() for name in names):
        raise OSError(
            f"Cannot load {name_or_path!r}: the directory holds neither a config.json nor a "
            f"{MODULES}. Check the path."
        )
    try:
        config = PretrainedConfig.get_config_dict(name_or_path)[0]
    except (OSError, TypeError, RecursionError):  # it may be elsewhere; or else, loading complains
        config = {}
    config = config if isinstance(config, dict) else {}
    if config.get("model_type") == CharGruConfig.model_type:
        model = CharGru.from_pretrained(name_or_path).sentence_transformer()
        return model if device is None else model.to(device)
    check_modules(name_or_path, config)
    if path.is_dir():
        sentence_limit(name_or_path, {})  # raises if it is no number
    with loading(name_or_path), complete(name_or_path, "pooler"):
        model = SentenceTransformer(name_or_path, device=device, model_kwargs={"dtype": "float32"})
    check_tokenizer(name_or_path, model.tokenizer)
    if not path.is_dir() and "sentence_pooling" not in config:
        warn_of_unknown_modules(name_or_path)
    return model


def warn_of_unknown_modules(name: str) -> None:
    """Warn if a model of the Hub was loaded without knowing whether it lists modules.

    Then sentence-transformers takes the mean and says nothing, which is another model's vectors:
    the model may have come to the cache without the list (as by ``AutoModel``), and be used
    offline, or the Hub has not answered. That a model has no list stands in the cache, too.
    """
    names = (name, f"sentence-transformers/{name}")[: 1 if "/" in name else 2]
    cache = os.getenv("SENTENCE_TRANSFORMERS_HOME")
    if not any(try_to_load_from_cache(each, MODULES, cache_dir=cache) for each in names):
        logger.warning(
            "%s: its %s, which says how its vectors are made, is neither in the cache nor does the "
            "Hub say that there is none. Its vectors may be wrong: they are means of the tokens'.",
            name,
            MODULES,
        )


def check_modules(name_or_path: str, config: Mapping[str, Any]) -> None:
    """Raise an OSError if one of our checkpoints lacks the modules that make its vectors."""
    pooling = config.get("sentence_pooling", "mean")
    plain = pooling == "mean" and config.get("whitening_dim") is None
    if not plain and optional_json(name_or_path, MODULES, {}, list) is None:
        raise OSError(
            f"{name_or_path} lacks {MODULES} and the folders that it names, which its vectors need "
            f"(its config.json says {pooling!r}): copy them too, or write them again with "
            "SimBert.from_pretrained(...).save_pretrained(...)."
        )
