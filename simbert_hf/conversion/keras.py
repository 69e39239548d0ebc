"""Read Keras weights of bert4keras (HDF5), by the names that TensorFlow's checkpoints use.

A layer's weights are identified by their order, as in bert4keras itself: the Dense layers inside
one (``dense_7``) are numbered anew in every session.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from simbert_hf.utils.extras import require


def _dense(*names: str) -> tuple[str, ...]:
    return tuple(f"{name}/{part}" for name in names for part in ("kernel", "bias"))


def _norm(name: str) -> tuple[str, ...]:
    return f"{name}/beta", f"{name}/gamma"


LAYERS = {
    "Embedding-Token": ("bert/embeddings/word_embeddings",),
    "Embedding-Segment": ("bert/embeddings/token_type_embeddings",),
    "Embedding-Position": ("bert/embeddings/position_embeddings",),
    "Embedding-Norm": _norm("bert/embeddings/LayerNorm"),
    "Embedding-Mapping": _dense("bert/encoder/embedding_hidden_mapping_in"),
    "Pooler-Dense": _dense("bert/pooler/dense"),
    "MLM-Dense": _dense("cls/predictions/transform/dense"),
    "MLM-Norm": _norm("cls/predictions/transform/LayerNorm"),
    "MLM-Bias": ("cls/predictions/output_bias",),
}
BLOCK = {  # of each transformer layer
    "MultiHeadSelfAttention": _dense(
        *(f"attention/self/{part}" for part in ("query", "key", "value")), "attention/output/dense"
    ),
    "MultiHeadSelfAttention-Norm": _norm("attention/output/LayerNorm"),
    "FeedForward": _dense("intermediate/dense", "output/dense"),
    "FeedForward-Norm": _norm("output/LayerNorm"),
}
# What ``save_weights`` makes of a name in .weights.h5 since TensorFlow 2.12: numbered layers.
NAMELESS = {"layers", "_layer_checkpoint_dependencies"}


class KerasWeights:
    """The weights of ``model.save_weights``, or those in a complete model of ``model.save``.

    Of a complete model, only the weights are read: its description may contain code.

    Attributes:
        shapes: Shapes of the variables, by the names of TensorFlow's checkpoints.

    Raises:
        ImportError: If h5py is not installed.
        ValueError: If the file is not a Keras HDF5 file, a layer has other weights than in
            bert4keras, or they are not floating-point numbers.
    """

    def __init__(self, path: Path) -> None:
        h5py = require("h5py", "convert")
        self.path = path
        try:
            with h5py.File(path) as file:
                if NAMELESS & file.keys():
                    raise ValueError(
                        f"{path} has Keras' newer layout, which names no layers; save the weights "
                        "again under a name that ends in .h5, but not in .weights.h5."
                    )
                found = dict(self._variables(file.get("model_weights", file)))
                self.arrays = {n: self._floats(n, data) for n, data in found.items()}
        except (OSError, RuntimeError) as error:
            raise ValueError(f"{path} is not a complete HDF5 file ({error}).") from error
        except (AttributeError, KeyError, TypeError, UnicodeError) as error:
            raise ValueError(
                f"{path} is not laid out as Keras writes weights ({error})."
            ) from error
        self.shapes = {name: array.shape for name, array in self.arrays.items()}

    def _variables(self, root: Any) -> Iterator[tuple[str, Any]]:
        layers = defaultdict(list)
        for group in root.values():
            for raw in group.attrs.get("weight_names", ()):
                name = raw.decode() if isinstance(raw, bytes) else raw
                layers[name.partition("/")[0]].append(group[name])  # a nested model has many
        for layer, data in layers.items():
            names = original_names(layer)
            if names and len(names) != len(data):
                raise ValueError(
                    f"{self.path}: {layer} has {len(data)} weights; in SimBERT it has {len(names)}."
                )
            yield from zip(names, data, strict=False)

    def _floats(self, name: str, data: Any) -> np.ndarray:
        if data.dtype.kind != "f":
            raise ValueError(
                f"{self.path}: {name} holds {data.dtype}, not floating-point numbers; save the "
                "weights as float32."
            )
        return np.asarray(data, dtype=np.float32)

    def read(self, name: str) -> np.ndarray:
        """Read a variable as float32."""
        return self.arrays[name]


def original_names(layer: str) -> tuple[str, ...]:
    """Return the variables of a layer; none for a layer that is not part of SimBERT.

    Example:
        >>> original_names("Transformer-3-FeedForward-Norm")[0]
        'bert/encoder/layer_3/output/LayerNorm/beta'
    """
    block = re.fullmatch(r"Transformer-(\d+)-(.+)", layer)
    if block is None:
        return LAYERS.get(layer, ())
    return tuple(f"bert/encoder/layer_{block[1]}/{name}" for name in BLOCK.get(block[2], ()))
