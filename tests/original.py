"""Tiny models as the original software has them: random variables, and their forward pass.

Written from the description of bert4keras' graph alone, in NumPy and float64, with its own names,
orientation of kernels and mask constant. Needs nothing of this package, of torch or of TensorFlow.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

CONFIG: dict[str, Any] = {
    "attention_probs_dropout_prob": 0.1,
    "directionality": "bidi",
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 16,
    "initializer_range": 0.02,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "type_vocab_size": 2,
    "vocab_size": 59,
}
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]  # the released vocabulary has no [MASK]
VOCABULARY = [
    *SPECIALS,
    *"，。？！abcdefghij",
    *(f"##{letter}" for letter in "abcdefghij"),
    *"我你他好吗很哪个深圳广州科学技术是第一生产力微信和支付宝",
    *("simbert", "##ing", "²"),
]
Weights = Mapping[str, np.ndarray]


def shapes(config: Mapping[str, Any], rotary: bool = False) -> dict[str, tuple[int, ...]]:
    """The variables of a model by their names in a checkpoint, kernels as (in, out)."""
    hidden, inner, vocabulary = (
        config[name] for name in ("hidden_size", "intermediate_size", "vocab_size")
    )
    embedding = config.get("embedding_size", hidden)
    found = {
        "bert/embeddings/word_embeddings": (vocabulary, embedding),
        "bert/embeddings/token_type_embeddings": (config["type_vocab_size"], embedding),
        **norm("bert/embeddings/LayerNorm", embedding),
        **dense("bert/pooler/dense", hidden, hidden),
        **dense("cls/predictions/transform/dense", hidden, embedding),
        **norm("cls/predictions/transform/LayerNorm", embedding),
        "cls/predictions/output_bias": (vocabulary,),
    }
    if not rotary:
        positions = config["max_position_embeddings"]
        found["bert/embeddings/position_embeddings"] = (positions, embedding)
    if embedding != hidden:
        found |= dense("bert/encoder/embedding_hidden_mapping_in", embedding, hidden)
    for i in range(config["num_hidden_layers"]):
        layer = f"bert/encoder/layer_{i}"
        for name in ("self/query", "self/key", "self/value", "output/dense"):
            found |= dense(f"{layer}/attention/{name}", hidden, hidden)
        found |= norm(f"{layer}/attention/output/LayerNorm", hidden)
        found |= dense(f"{layer}/intermediate/dense", hidden, inner)
        found |= dense(f"{layer}/output/dense", inner, hidden)
        found |= norm(f"{layer}/output/LayerNorm", hidden)
    return found


def dense(name: str, size: int, out: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}/kernel": (size, out), f"{name}/bias": (out,)}


def norm(name: str, size: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}/beta": (size,), f"{name}/gamma": (size,)}


def random_weights(
    config: Mapping[str, Any], rotary: bool = False, seed: int = 0
) -> dict[str, np.ndarray]:
    """Variables large enough that tokens, places and segments all matter."""
    rng = np.random.default_rng(seed)
    found = {}
    for name, shape in shapes(config, rotary).items():
        values = rng.normal(scale=0.1 if len(shape) == 1 else 0.3, size=shape)
        found[name] = (values + name.endswith("gamma")).astype(np.float32)
    return found


FACTORISED = CONFIG | {"embedding_size": 6}
ROTARY = {name: value for name, value in CONFIG.items() if name != "max_position_embeddings"}


# --- Keras' file of weights --------------------------------------------------------------------

DENSE, NORM = ("kernel", "bias"), ("beta", "gamma")
SUBLAYERS = {  # in the order in which each layer makes its weights
    "Embedding-Token": [("bert/embeddings/word_embeddings", ())],
    "Embedding-Segment": [("bert/embeddings/token_type_embeddings", ())],
    "Embedding-Position": [("bert/embeddings/position_embeddings", ())],
    "Embedding-Norm": [("bert/embeddings/LayerNorm", NORM)],
    "Embedding-Mapping": [("bert/encoder/embedding_hidden_mapping_in", DENSE)],
    "Pooler-Dense": [("bert/pooler/dense", DENSE)],
    "MLM-Dense": [("cls/predictions/transform/dense", DENSE)],
    "MLM-Norm": [("cls/predictions/transform/LayerNorm", NORM)],
    "MLM-Bias": [("cls/predictions/output_bias", ())],
    "Transformer-{}-MultiHeadSelfAttention": [
        ("bert/encoder/layer_{}/attention/self/query", DENSE),
        ("bert/encoder/layer_{}/attention/self/key", DENSE),
        ("bert/encoder/layer_{}/attention/self/value", DENSE),
        ("bert/encoder/layer_{}/attention/output/dense", DENSE),
    ],
    "Transformer-{}-MultiHeadSelfAttention-Norm": [
        ("bert/encoder/layer_{}/attention/output/LayerNorm", NORM)
    ],
    "Transformer-{}-FeedForward": [
        ("bert/encoder/layer_{}/intermediate/dense", DENSE),
        ("bert/encoder/layer_{}/output/dense", DENSE),
    ],
    "Transformer-{}-FeedForward-Norm": [("bert/encoder/layer_{}/output/LayerNorm", NORM)],
}


def keras_layers(weights: Weights, n_layers: int) -> dict[str, list[tuple[str, np.ndarray]]]:
    """Each layer's weights in order, named as Keras names them: ``dense_1`` and so on inside."""
    found: dict[str, list[tuple[str, np.ndarray]]] = {}
    for pattern, parts in SUBLAYERS.items():
        for i in range(n_layers if "{}" in pattern else 1):
            layer = pattern.format(i)
            rows = []
            for k, (name, ends) in enumerate(parts):
                inner = f"{layer}/dense_{7 * i + k + 1}" if len(parts) > 1 else layer
                for end in ends or ("",):
                    variable = f"{name.format(i)}/{end}".rstrip("/")
                    if variable in weights:
                        rows.append((f"{inner}/{end or 'embeddings'}:0", weights[variable]))
            found[layer] = rows
    return found


def write_keras(
    path: Path, weights: Weights, n_layers: int = 2, *, whole: bool = False, nested: bool = False
) -> None:
    """Write what ``save_weights`` does; ``whole`` as ``save``; ``nested`` in another model."""
    import h5py

    layers = {name: rows for name, rows in keras_layers(weights, n_layers).items() if rows}
    layers |= {"Input-Token": [], "Dropout": []}
    if nested:
        layers = {"model_1": [row for rows in layers.values() for row in rows]}
    with h5py.File(path, "w") as file:
        root = file.create_group("model_weights") if whole else file
        if whole:
            file.attrs["model_config"] = json.dumps({"class_name": "Model"})
            file.create_group("optimizer_weights")
        root.attrs["layer_names"] = [name.encode() for name in layers]
        for name, rows in layers.items():
            group = root.create_group(name)
            group.attrs["weight_names"] = [row.encode() for row, _ in rows]
            for row, value in rows:
                group[row] = value


# --- the forward pass --------------------------------------------------------------------------


class Graph:
    """bert4keras' UniLM with a linear pooler, over padded rows.

    Args:
        weights: As ``random_weights`` gives them.
        config: As in ``bert_config.json``.
        rotary: RoFormer's positions.
    """

    def __init__(self, weights: Weights, config: Mapping[str, Any], rotary: bool = False) -> None:
        self.weights = {name: value.astype(np.float64) for name, value in weights.items()}
        self.layers = config["num_hidden_layers"]
        self.heads = config["num_attention_heads"]
        self.rotary = rotary

    def dense(self, name: str, x: np.ndarray) -> np.ndarray:
        return x @ self.weights[f"{name}/kernel"] + self.weights[f"{name}/bias"]

    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        x = x - x.mean(axis=-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-12)
        return x * self.weights[f"{name}/gamma"] + self.weights[f"{name}/beta"]

    def embed(self, ids: np.ndarray, segments: np.ndarray) -> np.ndarray:
        tables = "bert/embeddings/"
        x = self.weights[f"{tables}word_embeddings"][ids]
        x = x + self.weights[f"{tables}token_type_embeddings"][segments]
        if not self.rotary:
            x = x + self.weights[f"{tables}position_embeddings"][: ids.shape[1]]
        x = self.norm(f"{tables}LayerNorm", x)
        mapping = "bert/encoder/embedding_hidden_mapping_in"
        return self.dense(mapping, x) if f"{mapping}/kernel" in self.weights else x

    def attend(self, name: str, x: np.ndarray, bias: np.ndarray) -> np.ndarray:
        query, key, value = (
            self.split(self.dense(f"{name}/self/{part}", x)) for part in ("query", "key", "value")
        )
        if self.rotary:
            query, key = rotate(query), rotate(key)
        scores = query @ key.swapaxes(-1, -2) / math.sqrt(query.shape[-1]) + bias
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = scores / scores.sum(axis=-1, keepdims=True) @ value  # (B, heads, L, size)
        return self.dense(f"{name}/output/dense", mixed.swapaxes(1, 2).reshape(x.shape))

    def split(self, x: np.ndarray) -> np.ndarray:
        return x.reshape(*x.shape[:2], self.heads, -1).swapaxes(1, 2)

    def hidden_states(self, ids: np.ndarray, segments: np.ndarray) -> np.ndarray:
        """(B, L) ids, 0 for padding, and segments -> (B, L, H)."""
        running = segments.cumsum(axis=1)
        allowed = running[:, None, :] <= running[:, :, None]
        bias = -(1 - allowed[:, None].astype(np.float64)) * 1e12
        bias = bias - (ids == 0)[:, None, None, :] * 1e12
        x = self.embed(ids, segments)
        for i in range(self.layers):
            name = f"bert/encoder/layer_{i}"
            mixed = x + self.attend(f"{name}/attention", x, bias)
            x = self.norm(f"{name}/attention/output/LayerNorm", mixed)
            inner = gelu(self.dense(f"{name}/intermediate/dense", x))
            x = self.norm(f"{name}/output/LayerNorm", x + self.dense(f"{name}/output/dense", inner))
        return x

    def vectors(self, hidden: np.ndarray) -> np.ndarray:
        """(B, L, H) -> (B, H): [CLS] through the pooler's Dense, without tanh."""
        return self.dense("bert/pooler/dense", hidden[:, 0])

    def logits(self, hidden: np.ndarray) -> np.ndarray:
        """(B, L, H) -> (B, L, V)."""
        head = "cls/predictions/"
        x = gelu(self.dense(f"{head}transform/dense", hidden))
        x = self.norm(f"{head}transform/LayerNorm", x)
        words = self.weights["bert/embeddings/word_embeddings"]
        return x @ words.T + self.weights[f"{head}output_bias"]


def gelu(x: np.ndarray) -> np.ndarray:
    """The erf form."""
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def rotate(x: np.ndarray) -> np.ndarray:
    """Turn each pair of neighbouring components of (B, heads, L, size) by its place's angle."""
    size = x.shape[-1]
    angles = np.arange(x.shape[2])[:, None] * 10000.0 ** (-np.arange(0, size, 2) / size)
    turned = (x[..., ::2] + 1j * x[..., 1::2]) * np.exp(1j * angles)
    return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)
