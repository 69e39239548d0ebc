"""Read what a checkpoint's files say about its config, tokenizer and vectors."""

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
# Given explicitly, as transformers otherwise asks on the terminal, and reads the answer from stdin
OWN_CODE = {"trust_remote_code": False}
NO_OBJECT = "does not hold the JSON object of a model. Copy or download it again"


def hub_options(options: dict[str, Any]) -> dict[str, Any]:
    """Copy the Hub's options (``HUB_ARGUMENTS``) from the arguments of a ``from_pretrained``.

    The arguments get a ``dtype``, float32, if they have none.

    Raises:
        ValueError: If they contain a ``config`` object, ``output_loading_info`` or
            ``trust_remote_code``.
    """
    if options.pop("trust_remote_code", False):
        raise ValueError(
            "trust_remote_code= is not supported: code that comes with a checkpoint is never run. "
            "Load such a model with SentenceTransformer and pass that where a model is taken."
        )
    if "config" in options:
        raise ValueError("config= is not supported: pass fields, such as hidden_dropout_prob=0.2.")
    if options.pop("output_loading_info", False):
        raise ValueError(
            "output_loading_info= is not supported: missing weights are an error, except those of "
            "an LM head, which model.has_lm_head reports."
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
    except (TypeError, RecursionError) as error:  # null, or brackets in brackets in brackets
        raise OSError(f"{name_or_path}: config.json {NO_OBJECT} ({error}).") from error
    if not isinstance(config, dict) or not isinstance(config.get("model_type", ""), str):
        raise OSError(f"{name_or_path}: config.json {NO_OBJECT}.")
    if not config and Path(name_or_path, "adapter_config.json").exists():
        raise OSError(
            f"{name_or_path} holds only an adapter: merge it into its base model with peft "
            "(merge_and_unload), save the result and load that."
        )
    if not config and Path(name_or_path, "config.json").exists():
        raise OSError(f"{name_or_path}: config.json is empty. Copy or download it again.")
    if not config:  # transformers does not complain of a folder without one
        told = f" ({' '.join(str(why).split()).rstrip('.')})" if why else ""
        raise OSError(
            f"Cannot load {str(name_or_path)!r}: it is not a directory with a config.json, and the "
            f"Hub does not provide it{told}. Check the path or id, revision, token and network."
        ) from why
    return dict(config)


def check_tokenizer(
    name_or_path: str | os.PathLike[str], tokenizer: Any, vocab_size: int = sys.maxsize
) -> None:
    """Refuse the tokenizer of special tokens only that transformers invents if there is none.

    Args:
        name_or_path: Where it was loaded from.
        tokenizer: The loaded one; those of other libraries are not checked.
        vocab_size: Number of tokens that the model embeds.

    Raises:
        ValueError: If it has only special tokens, or more tokens than the model.
    """
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        return
    if len(tokenizer.all_special_ids) < len(tokenizer) <= vocab_size:
        return
    embeddings = "" if vocab_size == sys.maxsize else f" for {vocab_size} embeddings"
    raise ValueError(
        f"{name_or_path} has no tokenizer that fits its weights ({len(tokenizer)} tokens"
        f"{embeddings}); copy the tokenizer files from the model it was made from."
    )


def sentence_limit(name_or_path: str | os.PathLike[str], hub: dict[str, Any]) -> dict[str, int]:
    """Return sentence-transformers' maximum length as tokenizer options; {} if it sets none.

    A separate file may set a lower limit than the tokenizer's. By convention its name contains an
    architecture, not always the right one.
    """
    if optional_json(name_or_path, "modules.json", hub, list) is None:
        return {}
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"):
        found = optional_json(name_or_path, f"sentence_{kind}_config.json", hub)
        if found is not None:
            limit = found.get("max_seq_length")
            if limit is not None and not (isinstance(limit, int) and limit > 0):
                raise OSError(
                    f"{name_or_path}: sentence_{kind}_config.json sets max_seq_length to "
                    f"{limit!r:.60}, not to a number of tokens."
                )
            return {} if limit is None else {"model_max_length": limit}
    return {}


def optional_json(
    name_or_path: str | os.PathLike[str], file: str, hub: dict[str, Any], kind: type = dict
) -> Any:
    """Read a checkpoint's JSON file, which holds a dict, or what ``kind`` says.

    Returns:
        Its content; None if there is no such file, or it holds null.

    Raises:
        OSError: If it is damaged, or holds anything else.
    """
    try:
        path = Path(str(cached_file(name_or_path, file, **hub)))
    except OSError:
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise OSError(
            f"{path} is truncated or damaged ({error}). Copy or download it again."
        ) from error
    if not isinstance(content, kind | None):
        wanted = "array" if kind is list else "object"
        raise OSError(f"{path} holds no JSON {wanted}. Copy or download it again.")
    return content
