"""Read what a checkpoint's sentence-transformers modules do to pooled vectors.

sentence-transformers trains and saves copies of a model's own layers, and users may add others.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers.utils import cached_file

from simbert_hf.modeling.loading import fault_of_modules
from simbert_hf.modeling.reading import optional_json
from simbert_hf.pooling import check_pooling

if TYPE_CHECKING:
    from simbert_hf.modeling.embedding import Embedder

logger = logging.getLogger(__name__)

CONFIG = "config_sentence_transformers.json"
NEUTRAL = ("Transformer", "Normalize", "Dropout")  # change no cosine


class Module(NamedTuple):
    """A sentence-transformers module of a checkpoint.

    Attributes:
        kind: Its class: Pooling, Dense, ...
        config: Its settings.
        path: Its folder.
    """

    kind: str
    config: dict[str, Any]
    path: str


def read_modules(name_or_path: str | os.PathLike[str], hub: dict[str, Any]) -> list[Module]:
    """Read the modules of a checkpoint that change vectors, in order; [] if none are listed.

    Raises:
        OSError: If a file is damaged, or does not list modules in the checkpoint's folder.
    """
    found = []
    named = optional_json(name_or_path, "modules.json", hub, list) or []
    if fault := fault_of_modules(named):
        raise OSError(f"{name_or_path}: modules.json {fault}. Copy or download it again.")
    for module in named:
        kind, path = module["type"].rsplit(".", 1)[-1], module["path"]
        if kind not in NEUTRAL:
            config = optional_json(name_or_path, f"{path}/config.json", hub)
            found.append(Module(kind, config or {}, path))
    return found


def module_weights(
    name_or_path: str | os.PathLike[str], module: Module, hub: dict[str, Any]
) -> dict[str, Tensor]:
    """Read a module's weights; {} if it has no safetensors file."""
    try:
        return load_file(str(cached_file(name_or_path, f"{module.path}/model.safetensors", **hub)))
    except OSError:
        return {}


def usual_pooling(
    modules: Sequence[Module], *, whitened: bool = False, cls_mode: str = "cls"
) -> str | None:
    """Name the pooling that some modules amount to; None if there is none.

    Args:
        modules: A checkpoint's modules.
        whitened: Whether the last one, a Dense, whitens and is not part of the pooling.
        cls_mode: sentence-transformers' name for the pooling that takes [CLS].

    Example:
        >>> usual_pooling([Module("Pooling", {"pooling_mode_cls_token": True}, "1_Pooling")])
        'cls'
    """
    kinds = [module.kind for module in modules]
    if whitened and kinds[-1:] == ["Dense"]:
        kinds.pop()
    modes = [pooling_mode(module.config) for module in modules if module.kind == "Pooling"]
    known = {"mean": "mean", "mean_sqrt_len": "mean", cls_mode: "cls"}
    mode = known.get(modes[0]) if modes else None
    if kinds == ["Pooling"]:
        return mode
    if kinds == ["WeightedLayerPooling", "Pooling"] and mode == "mean":
        return "first_last_mean"
    if kinds == ["Pooling", "Dense"] and mode == "cls":
        config = modules[1].config
        square = config.get("in_features") == config.get("out_features")
        if square and config.get("bias") and not config.get("use_residual"):
            activation = str(config.get("activation_function", "Tanh")).rsplit(".", 1)[-1]
            return {"Tanh": "tanh_pooler", "Identity": "linear_pooler"}.get(activation)
    return None


def pooling_mode(config: dict[str, Any]) -> str:
    """Name the mode of a Pooling module, or several: ``mean``, ``cls``, ``max+mean``, ...

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
    found = "+".join(sorted(map(str, modes))) if isinstance(modes, list | tuple) else str(modes)
    return found.removesuffix("_tokens")


def check_wanted_pooling(
    name_or_path: str | os.PathLike[str],
    config: dict[str, Any],
    pooling: str | None,
    modules: Sequence[Module],
) -> None:
    """Check a requested pooling, if any, against a checkpoint's.

    Log when it replaces the one that the checkpoint's vectors were trained with.

    Raises:
        ValueError: If there is no such pooling, or the checkpoint is whitened for another one.
    """
    own = config.get("sentence_pooling", "mean")
    if pooling is None or check_pooling(pooling) == own:
        return
    if config.get("whitening_dim") is not None:
        raise ValueError(
            f"{name_or_path} is whitened for the pooling {own!r}, so {pooling!r} cannot be used; "
            "whiten the model it was made from again."
        )
    if "sentence_pooling" in config or usual_pooling(modules) == "mean":
        logger.info(
            "%s: its vectors were trained with the pooling %s; now using %s (--pooling, yours or "
            "a preset's).",
            *(name_or_path, own, pooling),
        )


@torch.no_grad()
def take_vector_layers(
    model: Embedder,
    modules: Sequence[Module],
    name_or_path: str | os.PathLike[str],
    hub: dict[str, Any],
) -> set[str]:
    """Copy the weights of Dense modules to the model's layers after the pooling.

    Returns:
        The names of the weights that were copied; none if the modules do not match.
    """
    layers = model.vector_layers
    dense = [module for module in modules if module.kind == "Dense"]
    whitened = model.whitening is not None
    pooling = usual_pooling(modules, whitened=whitened, cls_mode=model.cls_mode)
    if not layers or len(dense) != len(layers) or pooling != model.config.sentence_pooling:
        return set()
    weights = [module_weights(name_or_path, module, hub) for module in dense]
    if [{name: tensor.shape for name, tensor in each.items()} for each in weights] != [
        {f"linear.{name}": parameter.shape for name, parameter in layer.named_parameters()}
        for layer in layers.values()
    ]:
        return set()
    for layer, each in zip(layers.values(), weights, strict=True):
        for name, parameter in layer.named_parameters():
            parameter.copy_(each[f"linear.{name}"])
    return {f"{name}.{part}" for name in layers for part in ("weight", "bias")}


def warn_of_other_vectors(
    model: Embedder,
    modules: Sequence[Module],
    name_or_path: str | os.PathLike[str],
    hub: dict[str, Any],
    *,
    taken: bool,
    wanted: str | None,
) -> None:
    """Log a warning if sentence-transformers makes other vectors from a checkpoint than a model.

    Args:
        model: The loaded model.
        modules: The checkpoint's modules.
        name_or_path: Directory or Hub id of the checkpoint.
        hub: Options of the Hub; see :func:`hub_options`.
        taken: Whether the layers after the pooling were taken from the modules.
        wanted: The requested pooling, if any.
    """
    reasons = other_pooling(model, modules, taken=taken, wanted=wanted)
    if not modules or reasons is None:
        return
    if modules[0].kind == "WeightedLayerPooling" and not reasons:
        shares = module_weights(name_or_path, modules[0], hub).get("layer_weights")
        if shares is not None and shares.ne(layer_shares(len(shares))).any():
            reasons.append("they weight the layers differently")
    settings = optional_json(name_or_path, CONFIG, hub) or {}
    prompts = settings.get("prompts")
    known = prompts if isinstance(prompts, dict) else {}
    prompt = known.get(settings.get("default_prompt_name"))
    if prompt:
        reasons.append(f"it puts {prompt!r} before each text, which you must do here")
    if settings.get("truncate_dim"):
        reasons.append(f"it truncates them to {settings['truncate_dim']} dimensions")
    if model.pads_right and model.loaded_tokenizer().padding_side == "left":
        reasons.append("its tokenizer pads on the left until this model is saved again")
    if reasons:
        logger.warning(
            "%s: sentence-transformers makes different vectors than this package: %s.",
            name_or_path,
            "; ".join(reasons),
        )


def other_pooling(
    model: Embedder, modules: Sequence[Module], *, taken: bool, wanted: str | None
) -> list[str] | None:
    """List how modules pool differently than a model; None if another pooling was requested."""
    whitened = model.whitening is not None
    usual = usual_pooling(modules, whitened=whitened, cls_mode=model.cls_mode)
    if wanted is not None and usual not in (None, wanted):
        return None
    if usual is None:
        kinds = ", ".join(
            f"Pooling ({pooling_mode(module.config)})" if module.kind == "Pooling" else module.kind
            for module in modules
        )
        return [f"they are made by {kinds}, which is not supported here"]
    if usual != model.config.sentence_pooling:
        return [f"their pooling is {usual}; pass pooling={usual!r} (--pooling {usual})"]
    if model.vector_layers and not taken:
        return ["they pass through a Dense whose weights are not read here"]
    return []


def layer_shares(layers: int) -> Tensor:
    """Return the weights of layers 1 to the last for ``first_last_mean``: (layers,)."""
    shares = torch.zeros(layers)
    shares[0] += 1
    shares[-1] += 1
    return shares
