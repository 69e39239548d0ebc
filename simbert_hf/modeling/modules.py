"""What sentence-transformers' modules of a checkpoint do to pooled vectors.

sentence-transformers trains and saves copies of a model's own layers, and may be given others.
"""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers.utils import cached_file

from simbert_hf.modeling.reading import optional_json
from simbert_hf.pooling import POOLINGS, check_pooling

if TYPE_CHECKING:
    from simbert_hf.modeling.embedding import Embedder

logger = logging.getLogger(__name__)

CONFIG = "config_sentence_transformers.json"


def check_wanted_pooling(
    name_or_path: str | os.PathLike[str],
    config: dict[str, Any],
    pooling: str | None,
    hub: dict[str, Any],
) -> None:
    """Check a pooling, where one is wanted, against a checkpoint's.

    The log tells where one takes the place of that which the checkpoint's vectors were trained for.

    Raises:
        ValueError: If there is no such pooling, or the checkpoint is whitened for another one.
    """
    own = config.get("sentence_pooling", "mean")
    if pooling is None or check_pooling(pooling) == own:
        return
    if config.get("whitening_dim") is not None:
        raise ValueError(
            f"{name_or_path} is whitened for the pooling {own!r}, which {pooling!r} would not fit; "
            "whiten the model it was made from anew."
        )
    if "sentence_pooling" in config or "mean" in pooling_modes(name_or_path, hub):
        logger.info(
            "%s: its vectors were trained with the pooling %s; this takes %s (--pooling, yours or "
            "a preset's).",
            *(name_or_path, own, pooling),
        )


def read_modules(name_or_path: str | os.PathLike[str], hub: dict[str, Any]) -> list[dict[str, str]]:
    """Read the ``kind`` and the ``path`` of each module, in order; none where there are none."""
    modules = optional_json(name_or_path, "modules.json", hub) or []
    return [{"kind": each["type"].rsplit(".", 1)[-1], "path": each["path"]} for each in modules]


def module_weights(
    name_or_path: str | os.PathLike[str], path: str, hub: dict[str, Any]
) -> dict[str, Tensor]:
    """Read a module's weights; none where it has no safetensors."""
    try:
        return load_file(str(cached_file(name_or_path, f"{path}/model.safetensors", **hub)))
    except OSError:
        return {}


@torch.no_grad()
def take_vector_layers(
    model: Embedder, name_or_path: str | os.PathLike[str], hub: dict[str, Any]
) -> set[str]:
    """Give a model's layers behind the pooling the weights of their Dense modules.

    Returns:
        The names of the weights that were given; none where there are other modules.
    """
    if not model.vector_layers:
        return set()
    found = read_modules(name_or_path, hub)
    dense = [module["path"] for module in found if module["kind"] == "Dense"]
    weights = [module_weights(name_or_path, path, hub) for path in dense]
    shapes = [{name: tensor.shape for name, tensor in each.items()} for each in weights]
    layers = model.vector_layers
    if shapes != [
        {f"linear.{name}": tensor.shape for name, tensor in layer.named_parameters()}
        for layer in layers.values()
    ]:
        return set()
    for layer, each in zip(layers.values(), weights, strict=True):
        for name, parameter in layer.named_parameters():
            parameter.copy_(each[f"linear.{name}"])
    return {f"{name}.{part}" for name in layers for part in ("weight", "bias")}


def warn_of_other_vectors(
    model: Embedder, name_or_path: str | os.PathLike[str], hub: dict[str, Any]
) -> None:
    """Log a warning if sentence-transformers makes other vectors of a checkpoint than a model."""
    if reasons := "; ".join(differences(model, name_or_path, hub)):
        logger.warning(
            "%s: sentence-transformers makes other vectors than this package: %s.",
            name_or_path,
            reasons,
        )


def differences(
    model: Embedder, name_or_path: str | os.PathLike[str], hub: dict[str, Any]
) -> list[str]:
    """Say why sentence-transformers' vectors of a checkpoint are others than a model's."""
    modules = read_modules(name_or_path, hub)
    if not modules:
        return []
    layers = model.config.sentence_pooling == "first_last_mean"
    expected = Counter(WeightedLayerPooling=int(layers), Dense=len(model.vector_layers))
    found = Counter(module["kind"] for module in modules)
    found -= Counter(dict.fromkeys(("Transformer", "Pooling", "Normalize"), len(modules)))
    reasons = []
    if more := sorted(found - expected):
        reasons.append(f"they pass {', '.join(more)} too, which is not read here")
    if fewer := sorted(expected - found):
        reasons.append(f"they do not pass {', '.join(fewer)}")
    modes = [mode for mode in pooling_modes(name_or_path, hub) if mode != model.pooling_mode]
    for mode in modes:
        remedy = f" (pass pooling={mode!r}, --pooling {mode})" if mode in POOLINGS else ""
        reasons.append(f"their pooling is {mode}, here {model.pooling_mode}{remedy}")
    for module in modules if layers else ():
        shares = module_weights(name_or_path, module["path"], hub).get("layer_weights")
        if shares is not None and shares.ne(layer_shares(len(shares))).any():
            reasons.append("they weigh the layers otherwise")
    settings = optional_json(name_or_path, CONFIG, hub) or {}
    prompt = (settings.get("prompts") or {}).get(settings.get("default_prompt_name"))
    if prompt:
        reasons.append(f"it puts {prompt!r} before each text, which is yours to do here")
    if settings.get("truncate_dim"):
        reasons.append(f"it cuts them to {settings['truncate_dim']} dimensions")
    return reasons


def layer_shares(layers: int) -> Tensor:
    """Weights of layers 1 to the last for the pooling ``first_last_mean``: (layers,)."""
    shares = torch.zeros(layers)
    shares[0] += 1
    shares[-1] += 1
    return shares


def pooling_modes(name_or_path: str | os.PathLike[str], hub: dict[str, Any]) -> list[str]:
    """Name the mode of each Pooling module: ``mean``, ``cls``, ``max+mean``, ..."""
    modules = read_modules(name_or_path, hub)
    paths = [module["path"] for module in modules if module["kind"] == "Pooling"]
    configs = [optional_json(name_or_path, f"{path}/config.json", hub) for path in paths]
    return [pooling_mode(config) for config in configs if config is not None]


def pooling_mode(config: dict[str, Any]) -> str:
    """Name the mode of a Pooling module, or several.

    Example:
        >>> pooling_mode({"pooling_mode": "cls"})
        'cls'
        >>> pooling_mode({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False})
        'mean'
    """
    modes = config.get("pooling_mode")
    if modes is None:  # the older form
        flags = [key for key, on in config.items() if key.startswith("pooling_mode_") and on]
        modes = [re.sub("pooling_mode_|_tokens?$", "", flag) for flag in flags] or ["mean"]
    return modes if isinstance(modes, str) else "+".join(sorted(modes))
