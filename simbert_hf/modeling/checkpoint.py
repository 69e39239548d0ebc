"""Finishing steps that make a saved model readable by every loader."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.torch import save_file
from torch import Tensor

from simbert_hf.modeling.modules import CONFIG, layer_shares
from simbert_hf.utils.atomic import write_json

if TYPE_CHECKING:
    from simbert_hf.modeling.embedding import Embedder

MODULES = "sentence_transformers.models"  # where its modules were until 6.0
MODES = {"cls": "cls_token", "mean": "mean_tokens", "lasttoken": "lasttoken"}  # ours and its


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
        write_modules(model, path, weights)


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


def write_modules(model: Embedder, directory: Path, weights: Mapping[str, Tensor]) -> None:
    """Write what sentence-transformers reads, in the form that all its releases and servers know.

    Releases from 6.0 on save another form, which older ones and Text Embeddings Inference 1.9 do
    not read.
    """
    lengths = {"max_seq_length": model.max_length, "do_lower_case": False}
    settings = {
        "prompts": {"query": "", "document": ""},
        "default_prompt_name": None,
        "similarity_fn_name": "cosine",
    }
    listed = [{"idx": 0, "name": "0", "path": "", "type": f"{MODULES}.Transformer"}]
    for number, (kind, config, tensors) in enumerate(vector_modules(model, weights), start=1):
        folder = directory / f"{number}_{kind}"
        folder.mkdir(exist_ok=True)
        write_json(folder / "config.json", config)
        if tensors:
            save_file(tensors, folder / "model.safetensors")
        listed.append(
            {"idx": number, "name": f"{number}", "path": folder.name, "type": f"{MODULES}.{kind}"}
        )
    write_json(directory / "sentence_bert_config.json", lengths)
    write_json(directory / CONFIG, settings)
    write_json(directory / "modules.json", listed)


def vector_modules(
    model: Embedder, weights: Mapping[str, Tensor]
) -> list[tuple[str, dict[str, Any], dict[str, Tensor]]]:
    """Return kind, settings and weights of the modules that pool, whiten and normalize."""
    size, pooling = model.config.hidden_size, model.config.sentence_pooling
    width = {"word_embedding_dimension": size}
    pools = {f"pooling_mode_{name}": mode == model.pooling_mode for mode, name in MODES.items()}
    modules: list[tuple[str, dict[str, Any], dict[str, Tensor]]] = [("Pooling", width | pools, {})]
    if pooling == "first_last_mean":
        layers = model.config.num_hidden_layers
        config = width | {"layer_start": 1, "num_hidden_layers": layers}  # 0 are the embeddings
        modules.insert(0, ("WeightedLayerPooling", config, {"layer_weights": layer_shares(layers)}))
    for name, linear in model.vector_layers.items():
        tensors = {
            f"linear.{it}": weights[f"{name}.{it}"].float().contiguous()
            for it in ("weight", "bias")
        }
        tanh = pooling == "tanh_pooler" and linear is not model.whitening
        sizes = {"in_features": linear.in_features, "out_features": linear.out_features}
        activation = f"torch.nn.modules.{'activation.Tanh' if tanh else 'linear.Identity'}"
        config = sizes | {"bias": True, "activation_function": activation}
        modules.append(("Dense", config, tensors))
    return [*modules, ("Normalize", {}, {})]
