"""Finishing steps that make a saved model readable by every loader."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel, PreTrainedTokenizerBase

from simbert_hf.modeling.loading import quiet_transformers
from simbert_hf.modeling.modules import CONFIG, layer_shares
from simbert_hf.utils.atomic import write_json

if TYPE_CHECKING:
    from simbert_hf.modeling.embedding import Embedder


def finish_checkpoint(model: Embedder, path: Path, weights: Mapping[str, Tensor]) -> None:
    """Add what plain transformers does not write: loader hints, tokenizer, modules.

    Args:
        model: The saved model, perhaps sharded.
        path: Directory that holds its weights and config.
        weights: Its full weights (not sharded), by name.
    """
    hints = {
        "architectures": [type(model.base_model).__name__],  # serving engines lack SimBert
        "dtype": "float32",  # else weights stored as fp16 load, and run slowly, as fp16
        "is_decoder": False,
        # WeightedLayerPooling reads all layers:
        "output_hidden_states": model.config.sentence_pooling == "first_last_mean",
    }
    update_json(path / "config.json", hints, sort_keys=True)
    if model.tokenizer is not None:
        model.tokenizer.save_pretrained(path)
        if model.pads_right:
            pad_on_the_right(path)
        with torch.random.fork_rng(devices=[]):  # saving must not affect a run
            write_modules(model, model.tokenizer, path, weights)
    for file in (*path.glob("*.safetensors"), *path.glob("*/*.safetensors")):
        shutil.copymode(path / "config.json", file)  # else only their owner can read them


def update_json(path: Path, values: Mapping[str, Any], **options: Any) -> None:
    """Update fields of a JSON file; a crash leaves either the old file or the new one."""
    content = json.loads(path.read_text(encoding="utf-8"))
    write_json(path, {**content, **values}, **options)


def pad_on_the_right(path: Path) -> None:
    """Make other loaders pad and truncate like ``RowBuilder``, not like the last tokenizer call."""
    config, state = path / "tokenizer_config.json", path / "tokenizer.json"
    sides = {"padding_side": "right", "truncation_side": "right"}
    for file, values in ((config, sides), (state, {"padding": None, "truncation": None})):
        content = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        other = {name: v for name, v in values.items() if content.get(name, v) != v}
        if other:
            write_json(file, content | other)


def write_modules(
    model: Embedder,
    tokenizer: PreTrainedTokenizerBase,
    directory: Path,
    weights: Mapping[str, Tensor],
) -> None:
    """Write the sentence-transformers modules with its own API, next to the saved weights.

    A one-layer model stands in for the encoder, so that its weights are not written twice.
    """
    from sentence_transformers import SentenceTransformer  # slow to import, needed only here
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Normalize

    with tempfile.TemporaryDirectory(dir=directory) as scratch, quiet_transformers():
        stand_in, out = Path(scratch) / "stand_in", Path(scratch) / "out"
        config = BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1)
        BertModel(config).save_pretrained(stand_in)
        tokenizer.save_pretrained(stand_in)
        modules = [Transformer(os.fspath(stand_in)), *vector_modules(model, weights), Normalize()]
        SentenceTransformer(modules=modules, device="cpu").save(
            os.fspath(out), create_model_card=False
        )
        written = json.loads((out / "modules.json").read_text(encoding="utf-8"))
        keep = ["modules.json", CONFIG, "sentence_bert_config.json"]
        for name in keep + [module["path"] for module in written if module["path"]]:
            if (out / name).is_dir():
                shutil.rmtree(directory / name, ignore_errors=True)
            (out / name).replace(directory / name)


def vector_modules(model: Embedder, weights: Mapping[str, Tensor]) -> list[nn.Module]:
    """Return the modules that pool as ``model.config.sentence_pooling`` says, and then whiten."""
    from sentence_transformers.base.modules import Dense
    from sentence_transformers.sentence_transformer.modules import Pooling, WeightedLayerPooling

    size, pooling = model.config.hidden_size, model.config.sentence_pooling
    modules: list[nn.Module] = [Pooling(size, model.pooling_mode)]
    if pooling == "first_last_mean":
        layers = model.config.num_hidden_layers
        shares = nn.Parameter(layer_shares(layers))  # the embedding layer is left out
        modules.insert(0, WeightedLayerPooling(size, layers, 1, shares))
    for name, linear in model.vector_layers.items():
        weight, bias = (weights[f"{name}.{part}"].float().clone() for part in ("weight", "bias"))
        tanh = pooling == "tanh_pooler" and linear is not model.whitening
        activation = nn.Tanh() if tanh else nn.Identity()
        sizes = linear.in_features, linear.out_features
        modules.append(Dense(*sizes, True, activation, init_weight=weight, init_bias=bias))
    return modules
