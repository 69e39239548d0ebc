"""Cut a model to some of its layers, and its vocabulary to the pieces that some texts need.

A multilingual encoder spends most of its weights on the word embeddings of other languages, and
every second or third layer can go if the model is trained further with the whole one as teacher
(Sajjad et al. 2023, https://arxiv.org/abs/2004.03844; Abdaoui et al. 2020,
https://aclanthology.org/2020.sustainlp-1.16).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import nn
from transformers import PreTrainedTokenizerFast

from simbert_hf.modeling.simbert import SimBert

PREFIXES = "▁", "##"  # of pieces that begin a word (Unigram), or that do not (WordPiece)
COUNTED = 10_000  # texts at once


def cut_layers(model: SimBert, kept: Sequence[int]) -> None:
    """Keep some layers of a model, in place.

    Args:
        model: A SimBert of any size.
        kept: Their numbers, from 0, in rising order.

    Raises:
        ValueError: If the model has no such layer, or the order is another.

    Example:
        >>> model = SimBert.from_pretrained("simbert-minilm-en")
        >>> cut_layers(model, [0, 2, 5])
        >>> model.config.num_hidden_layers, model.encode(["where is it?"]).shape
        (3, (1, 384))
    """
    encoder: Any = model.base_model.encoder
    last = len(encoder.layer) - 1
    if not kept or list(kept) != sorted(set(kept)) or kept[0] < 0 or kept[-1] > last:
        raise ValueError(f"Layers {list(kept)}: give some of 0 to {last}, in rising order.")
    encoder.layer = nn.ModuleList(encoder.layer[number] for number in kept)
    for number, layer in enumerate(encoder.layer):
        for module in layer.modules():
            if hasattr(module, "layer_idx"):  # its place in a cache
                module.layer_idx = number
    model.config.num_hidden_layers = len(kept)


def cut_vocabulary(model: SimBert, texts: Sequence[str], min_count: int = 20) -> None:
    """Keep the pieces that texts need, in place.

    Single characters and special tokens stay, too, so hardly any text gets an unknown token.

    Args:
        model: A SimBert with a Unigram or WordPiece tokenizer.
        texts: Sentences of the kind that the model will read and write.
        min_count: How often a longer piece must occur in them.

    Raises:
        ValueError: If the tokenizer is of another kind, or the model has none.
    """
    tokenizer = model.loaded_tokenizer()
    engine: Tokenizer = tokenizer.backend_tokenizer
    engine.no_truncation()  # which a tokenizer.json may ask for
    engine.no_padding()
    counts: Counter[int] = Counter()
    for start in range(0, len(texts), COUNTED):
        some = list(texts[start : start + COUNTED])
        for row in engine.encode_batch_fast(some, add_special_tokens=False):
            counts.update(row.ids)
    special = set(engine.get_added_tokens_decoder())
    ids = [
        number
        for piece, number in sorted(engine.get_vocab().items(), key=lambda item: item[1])
        if number in special or counts[number] >= min_count or is_character(piece)
    ]
    model.tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=with_pieces(engine, ids),
        model_max_length=tokenizer.model_max_length,
        model_input_names=tokenizer.model_input_names,
        **tokenizer.special_tokens_map,
    )
    _select_embeddings(model, ids)


def is_character(piece: str) -> bool:
    """Return whether a piece is a single character, but for a prefix.

    Example:
        >>> [is_character(piece) for piece in ("好", "▁好", "##a", "▁", "你好")]
        [True, True, True, True, False]
    """
    for prefix in PREFIXES:
        piece = piece.removeprefix(prefix) or piece
    return len(piece) == 1


def with_pieces(engine: Tokenizer, ids: Sequence[int]) -> Tokenizer:
    """Return a tokenizer with some of the pieces, numbered anew in the given order.

    Raises:
        ValueError: If it is neither a Unigram nor a WordPiece tokenizer.
    """
    made = json.loads(engine.to_str())
    model, new = made["model"], {old: number for number, old in enumerate(ids)}
    if model["type"] == "Unigram":
        model["vocab"] = [piece for old, piece in enumerate(model["vocab"]) if old in new]
        model["unk_id"] = new[model["unk_id"]]
    elif model["type"] == "WordPiece":
        model["vocab"] = {piece: new[old] for piece, old in model["vocab"].items() if old in new}
    else:
        raise ValueError(f"Its tokenizer is {model['type']}: only Unigram and WordPiece are cut.")
    for token in made["added_tokens"]:
        token["id"] = new[token["id"]]
    template = made["post_processor"] or {}
    for token in template.get("special_tokens", {}).values():
        token["ids"] = [new[old] for old in token["ids"]]
    for name in ("sep", "cls"):  # of BertProcessing and RobertaProcessing
        if name in template:
            template[name][1] = new[template[name][1]]
    return Tokenizer.from_str(json.dumps(made))


@torch.no_grad()
def _select_embeddings(model: SimBert, ids: Sequence[int]) -> None:
    """Keep some word embeddings, and what the LM head adds for them."""
    embeddings: Any = model.get_input_embeddings()
    decoder: Any = model.get_output_embeddings()
    kept = embeddings.weight[ids], decoder.weight[ids], decoder.bias[ids]
    model.resize_token_embeddings(len(ids))
    embeddings, decoder = model.get_input_embeddings(), model.get_output_embeddings()
    for new, old in zip((embeddings.weight, decoder.weight, decoder.bias), kept, strict=True):
        new.copy_(old)
    model.config.pad_token_id = model.rows.pad_id
