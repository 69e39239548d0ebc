"""Convert original SimBERT weights to a directory that every loader of our models reads."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch

from simbert_hf.conversion.bundle import TensorBundle
from simbert_hf.conversion.keras import KerasWeights
from simbert_hf.conversion.vocabulary import build_tokenizer, read_vocabulary, simplify
from simbert_hf.modeling.architectures import ARCHITECTURES
from simbert_hf.modeling.simbert import SimBert
from simbert_hf.utils.atomic import SCRATCH, put_in_place, scratch
from simbert_hf.utils.textfiles import read_json

WORDS = "bert/embeddings/word_embeddings"
POOLER = "bert/pooler/dense/kernel"
HEAD = "cls/predictions/"
POSITIONS = "bert/embeddings/position_embeddings"
KERAS = (".weights", ".h5", ".hdf5")
# From our names of weights to the original's, one rule after another.
RENAMES = (
    (r"^sentence_pooler\.", "bert.pooler.dense."),
    (r"^\w+\.embeddings_project\.", "bert.encoder.embedding_hidden_mapping_in."),
    (r"^generator_predictions\.", "cls.predictions.transform."),
    (r"^generator_lm_head\.bias$", "cls.predictions.bias"),
    (r"^(electra|roformer)\.", "bert."),
    (r"^cls\.predictions\.bias$", "cls.predictions.output_bias"),
    (r"\.layer\.(\d+)\.", r".layer_\1."),
    (r"embeddings\.weight$", "embeddings"),
    (r"LayerNorm\.weight$", "LayerNorm.gamma"),
    (r"LayerNorm\.bias$", "LayerNorm.beta"),
    (r"\.weight$", ".kernel"),
    (r"\.", "/"),
)
# bert_config.json's fields without which there is no model.
SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
OTHER_SIZES = ("max_position_embeddings", "type_vocab_size", "embedding_size")
SHARES = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range")


Weights = TensorBundle | KerasWeights  # the variables by the original's names


def convert(
    source: str | os.PathLike[str],
    output_dir: str | os.PathLike[str],
    *,
    config_file: str | os.PathLike[str] | None = None,
    vocab_file: str | os.PathLike[str] | None = None,
    pooling: str = "linear_pooler",
    simplified: bool = False,
    lower_case: bool = True,
) -> SimBert:
    """Convert a checkpoint of the original software, and save it.

    Args:
        source: The released folder, or the weights in it: a TensorFlow checkpoint, with or without
            ``.index``, or Keras weights (``.weights``, ``.h5``, ``.hdf5``).
        output_dir: A directory that is empty or does not exist; it appears when it is complete.
        config_file: ``bert_config.json``; by default, the one next to the weights.
        vocab_file: ``vocab.txt`` or ``dict.txt``; by default, the one next to the weights.
        pooling: How the sentence vector is made; ``linear_pooler`` is SimBERT's own.
        simplified: Whether it was trained with bert4keras' simplified form of this vocabulary.
        lower_case: Whether its tokenizer lower-cased text.

    Raises:
        OSError: If a file is missing.
        ValueError: If the files do not match or are damaged, or ``output_dir`` is not empty or
            cannot be replaced.
    """
    place = Path(output_dir)
    if place.exists() and not (place.is_dir() and not any(place.iterdir())):
        raise ValueError(f"{place} is not an empty directory; name another output directory.")
    if os.path.ismount(place) or place.resolve() == Path.cwd():
        raise ValueError(f"{place} is the current directory or a mount; name a new one inside it.")
    weights_path = find_weights(Path(source))
    folder = weights_path.parent
    weights = open_weights(weights_path)
    settings = read_settings(Path(config_file or folder / "bert_config.json"))
    vocab_path = Path(vocab_file) if vocab_file else find_vocabulary(folder)
    tokens = read_vocabulary(vocab_path)
    chosen = simplify(tokens) if simplified else tokens
    check_vocabulary(vocab_path, tokens, len(chosen), weights)
    model = build_model(settings, chosen, weights, pooling)
    model.tokenizer = build_tokenizer(chosen, model.positions, lower_case=lower_case)
    save(model, place)
    return model


def find_weights(source: Path) -> Path:
    """Find the weights that a path refers to; a folder must hold only one set.

    Returns:
        A file of Keras weights, or a TensorFlow checkpoint's path without ``.index``.

    Raises:
        OSError: If there are none.
        ValueError: If a folder has several.
    """
    if source.is_dir():
        found = sorted(path for path in source.iterdir() if path.suffix in (*KERAS, ".index"))
        if len(found) > 1:
            names = ", ".join(path.name for path in found)
            raise ValueError(f"{source} holds several weight files: {names}; name one of them.")
        source = found[0] if found else source / "bert_model.ckpt"
    if source.suffix in KERAS and source.is_file():
        return source
    prefix = source.with_name(re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", source.name))
    if not prefix.with_name(f"{prefix.name}.index").is_file():
        raise FileNotFoundError(
            f"There is no {prefix.name}.index in {prefix.parent}; give the folder with "
            "bert_config.json, vocab.txt and bert_model.ckpt.index (or Keras' .weights, .h5), or "
            "the weights themselves."
        )
    return prefix


def open_weights(path: Path) -> Weights:
    """Open what :func:`find_weights` found; raises as its reader does."""
    return KerasWeights(path) if path.suffix in KERAS and path.is_file() else TensorBundle(path)


def find_vocabulary(folder: Path) -> Path:
    """Return the vocabulary's path in a folder, whichever name it has."""
    released, own = folder / "vocab.txt", folder / "dict.txt"
    return own if own.is_file() and not released.is_file() else released


def read_settings(path: Path) -> dict[str, Any]:
    """Read ``bert_config.json`` as fields of a config.

    Raises:
        OSError: If there is no such file.
        ValueError: If it is not a JSON object, lacks a size, names another activation, or a value
            is not valid.
    """
    if not path.is_file():
        raise FileNotFoundError(f"There is no {path}.")
    found = read_json(path)
    sizes = {name: found.get(name) for name in (*SIZES, *OTHER_SIZES) if name in {*SIZES, *found}}
    if wrong := [name for name, size in sizes.items() if type(size) is not int or size < 1]:
        raise ValueError(f"{path} gives no positive integer for {', '.join(wrong)}.")
    shares = {name: found[name] for name in SHARES if name in found}
    if wrong := [n for n, share in shares.items() if type(share) not in (int, float)]:
        raise ValueError(f"{path} gives no number for {', '.join(wrong)}.")
    if found.get("hidden_act", "gelu") != "gelu":
        raise ValueError(f"{path}: hidden_act is {found['hidden_act']!r}; only gelu is supported.")
    return sizes | shares


def check_vocabulary(path: Path, tokens: list[str], size: int, weights: Weights) -> None:
    """Raise a ValueError unless a vocabulary has as many tokens as the weights embed."""
    if WORDS not in weights.shapes:
        raise ValueError(
            f"The weights hold no {WORDS} (Keras: Embedding-Token), so they are not from the "
            "original software; weights that tf.keras saved as a checkpoint must be saved as .h5."
        )
    embedded = weights.shapes[WORDS][0]
    if size != embedded:
        hint = "give the one they were trained with as --vocab_file"
        if len(tokens) == embedded:
            hint = f"all of it has {embedded}: leave out --simplified"
        elif len(simplify(tokens)) == embedded:
            hint = f"bert4keras' simplified form of it has {embedded}: add --simplified"
        raise ValueError(f"{path} gives {size} tokens, but the weights embed {embedded}; {hint}.")


def build_model(
    settings: dict[str, Any], tokens: list[str], weights: Weights, pooling: str
) -> SimBert:
    """Make a model from the weights.

    Raises:
        ValueError: If variables are missing, left over or have other shapes than the settings say.
    """
    if POOLER not in weights.shapes and pooling in ("linear_pooler", "tanh_pooler"):
        raise ValueError(f"The weights hold no {POOLER}; choose another pooling, such as cls.")
    kind = architecture(settings, weights)
    config = kind.config_class(
        **settings,
        vocab_size=len(tokens),
        layer_norm_eps=1e-12,
        pad_token_id=tokens.index("[PAD]"),
        sentence_pooling=pooling,
    )
    model: SimBert = kind(config)
    fill(model, weights)
    model.eval()
    return model


def architecture(settings: dict[str, Any], weights: Weights) -> type[SimBert]:
    """Choose the class: without position embeddings they are rotary, as in RoFormer."""
    if POSITIONS not in weights.shapes:
        return ARCHITECTURES["roformer"]
    factorised = settings.get("embedding_size", settings["hidden_size"]) != settings["hidden_size"]
    return ARCHITECTURES["electra" if factorised else "bert"]


@torch.no_grad()
def fill(model: SimBert, weights: Weights) -> None:
    """Copy the variables into the model.

    Those of the LM head and the pooler are optional, and rotary positions are not copied.

    Raises:
        ValueError: If variables are missing, left over or have the wrong shape.
    """
    parts = (HEAD, "bert/pooler/", "bert/encoder/embed_positions/")
    absent = tuple(part for part in parts if not any(n.startswith(part) for n in weights.shapes))
    model.has_lm_head = HEAD not in absent
    used = []
    for name, parameter in model.named_parameters():
        variable = original_name(name)
        if variable.startswith(absent):
            continue
        used.append(variable)
        parameter.copy_(torch.from_numpy(fitting(weights, variable, tuple(parameter.shape))))
    refuse_leftovers(weights, used)


def fitting(weights: Weights, variable: str, shape: tuple[int, ...]) -> np.ndarray:
    """Read a variable, kernels transposed; raise a ValueError if not finite or not of our shape."""
    is_kernel = variable.endswith("/kernel")
    wanted = shape[::-1] if is_kernel else shape
    found = weights.shapes.get(variable)
    if found is None:
        raise ValueError(f"The weights lack {variable}, which bert_config.json requires.")
    if found != wanted:
        raise ValueError(
            f"{variable} has the shape {found}, but bert_config.json requires {wanted}."
        )
    value = weights.read(variable)
    if not np.isfinite(value).all():
        raise ValueError(f"{variable} holds NaN or infinity: convert intact weights.")
    return value.T.copy() if is_kernel else value


def original_name(name: str) -> str:
    """Return the original's name of a weight.

    Example:
        >>> original_name("bert.encoder.layer.3.attention.output.LayerNorm.weight")
        'bert/encoder/layer_3/attention/output/LayerNorm/gamma'
    """
    for pattern, replacement in RENAMES:
        name = re.sub(pattern, replacement, name)
    return name


def refuse_leftovers(weights: Weights, used: list[str]) -> None:
    """Raise a ValueError if a variable is unknown, except an optimizer's slots."""
    known = set(used)
    for name in weights.shapes:
        is_slot = name not in known and name.rpartition("/")[0] in known
        if name.startswith(("bert/", HEAD)) and name not in known and not is_slot:
            raise ValueError(
                f"The weights also hold {name}, for which bert_config.json has no place; is it "
                "another model's?"
            )


def save(model: SimBert, place: Path) -> None:
    """Write the model to a temporary directory and move it into place."""
    place = place.resolve()  # what a link leads to may be on another disk
    place.parent.mkdir(parents=True, exist_ok=True)
    with scratch(place.with_name(f".{place.name}-{SCRATCH}")) as folder:
        made = folder / place.name
        model.save_pretrained(made)
        put_in_place(made, place)
