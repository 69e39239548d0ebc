"""What a checkpoint's own files say of its config, tokenizer and vectors, beside its weights."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, PreTrainedTokenizerBase
from transformers.utils import cached_file

HUB_ARGUMENTS = (
    "revision",
    "token",
    "cache_dir",
    "local_files_only",
    "subfolder",
    "force_download",
)


def hub_options(options: dict[str, Any]) -> dict[str, Any]:
    """Copy what says where a checkpoint lies from arguments of a ``from_pretrained``.

    The arguments get a ``dtype``, float32, where they have none.

    Raises:
        ValueError: If there is a whole ``config`` among them, or ``output_loading_info``.
    """
    if "config" in options:
        raise ValueError("config= is not taken: give its fields, such as hidden_dropout_prob=0.2.")
    if options.pop("output_loading_info", False):
        raise ValueError(
            "output_loading_info= is not taken: missing weights are an error, but for those of an "
            "LM head, of which model.has_lm_head tells."
        )
    options.setdefault("dtype", options.pop("torch_dtype", torch.float32))
    return {name: options[name] for name in HUB_ARGUMENTS if name in options}


def read_config(name_or_path: str | os.PathLike[str], hub: dict[str, Any]) -> dict[str, Any]:
    """Read a checkpoint's ``config.json``; raise an OSError if there is no checkpoint."""
    why: OSError | None = None
    try:
        config, _ = BertConfig.get_config_dict(name_or_path, **hub)
    except OSError as error:
        if Path(name_or_path, "config.json").exists():
            raise
        config, why = {}, error
    if not config and Path(name_or_path, "adapter_config.json").exists():
        raise OSError(
            f"{name_or_path} holds an adapter alone: merge it into its model with peft "
            "(merge_and_unload), save that, and load the result."
        )
    if not config:  # of a folder without one, transformers says nothing
        raise OSError(
            f"Cannot load {str(name_or_path)!r}: it is no directory with a config.json, and the "
            "Hub does not give it. Check the path or id, the revision, the token and the network."
        ) from why
    return dict(config)


def check_tokenizer(
    name_or_path: str | os.PathLike[str], tokenizer: Any, vocab_size: int = sys.maxsize
) -> None:
    """Refuse a tokenizer of special tokens alone, which transformers makes up where none lies.

    Args:
        name_or_path: Where it was loaded from.
        tokenizer: One of another library is not looked at.
        vocab_size: Number of tokens that the model knows.

    Raises:
        ValueError: If it is such a one, or knows more tokens than the model.
    """
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        return
    if len(tokenizer.all_special_ids) < len(tokenizer) <= vocab_size:
        return
    embeddings = "" if vocab_size == sys.maxsize else f" for {vocab_size} embeddings"
    raise ValueError(
        f"{name_or_path} holds no tokenizer that fits its weights ({len(tokenizer)} tokens"
        f"{embeddings}); copy the tokenizer files of the model it was made from."
    )


def sentence_limit(name_or_path: str | os.PathLike[str], hub: dict[str, Any]) -> dict[str, int]:
    """Find where sentence-transformers cuts a sentence, as tokenizer options; {} for nowhere.

    A file of its own may set a lower limit than the tokenizer's, by old custom under the name of
    an architecture, and not always the right one.
    """
    if optional_json(name_or_path, "modules.json", hub) is None:
        return {}
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"):
        found = optional_json(name_or_path, f"sentence_{kind}_config.json", hub)
        if found is not None:
            limit = found.get("max_seq_length")
            return {} if limit is None else {"model_max_length": limit}
    return {}


def optional_json(name_or_path: str | os.PathLike[str], file: str, hub: dict[str, Any]) -> Any:
    """Read a JSON file of a checkpoint, None where there is none; raise an OSError if damaged."""
    try:
        path = Path(str(cached_file(name_or_path, file, **hub)))
    except OSError:
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise OSError(f"{path} is cut or damaged ({error}). Copy or download it again.") from error
