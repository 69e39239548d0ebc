"""What a checkpoint's own files say of its config, tokenizer and vectors, beside its weights."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, PreTrainedTokenizerBase
from transformers.utils import cached_file

from simbert_hf.pooling import check_pooling

logger = logging.getLogger(__name__)

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


def check_wanted_pooling(
    name_or_path: str | os.PathLike[str],
    config: dict[str, Any],
    pooling: str | None,
    hub: dict[str, Any],
) -> None:
    """Check a pooling, where one is wanted, against a checkpoint's; warn where neither names one.

    The log tells where one takes the place of that which the checkpoint's vectors were trained for.

    Raises:
        ValueError: If there is no such pooling, or the checkpoint is whitened for another one.
    """
    own = config.get("sentence_pooling", "mean")
    if pooling is None:
        if "sentence_pooling" not in config:
            warn_of_other_pooling(name_or_path, hub)
    elif check_pooling(pooling) == own:
        return
    elif config.get("whitening_dim") is not None:
        raise ValueError(
            f"{name_or_path} is whitened for the pooling {own!r}, which {pooling!r} would not fit; "
            "whiten the model it was made from anew."
        )
    elif "sentence_pooling" in config or is_mean(name_or_path, hub):
        logger.info(
            "%s: its vectors were trained with the pooling %s; this takes %s (--pooling, yours or "
            "a preset's).",
            *(name_or_path, own, pooling),
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


def warn_of_other_pooling(name_or_path: str | os.PathLike[str], hub: dict[str, Any]) -> None:
    """Log a warning if sentence-transformers does more than take the mean of the last states."""
    modules = optional_json(name_or_path, "modules.json", hub) or []
    kinds = {module["type"].rsplit(".", 1)[-1] for module in modules}
    if others := sorted(kinds - {"Transformer", "Pooling", "Normalize"}):
        logger.warning(
            "%s: sentence-transformers' vectors pass %s too, which is not read here; they differ.",
            name_or_path,
            ", ".join(others),
        )
    if is_mean(name_or_path, hub) is False:
        logger.warning(
            "%s: the vectors are means here and made otherwise by sentence-transformers (see "
            "1_Pooling/config.json); where that names cls, pass pooling='cls' (--pooling cls).",
            name_or_path,
        )


def is_mean(name_or_path: str | os.PathLike[str], hub: dict[str, Any]) -> bool | None:
    """Tell whether sentence-transformers' vectors are means; None where it has no say."""
    found = optional_json(name_or_path, "1_Pooling/config.json", hub)
    if found is None:
        return None
    mode = found.get("pooling_mode", "mean")
    return bool(found.get("pooling_mode_mean_tokens", mode == "mean"))  # the older form


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
