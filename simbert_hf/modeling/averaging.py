"""Average the weights of models (Wortsman et al. 2022, https://arxiv.org/abs/2109.01903).

A fine-tuned model gains on its training task and loses elsewhere. The mean of its weights and
those of its base model (the model that training starts from) costs nothing, and often keeps most
of the gain while undoing the loss. It helps only models trained from the same base model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import TypeVar

import torch

from simbert_hf.modeling.embedding import Embedder
from simbert_hf.modeling.simbert import SimBert
from simbert_hf.utils.devices import with_float64

AnyEmbedder = TypeVar("AnyEmbedder", bound=Embedder)


@torch.no_grad()
def average_models(
    models: Iterable[AnyEmbedder], weights: Sequence[float] | None = None
) -> AnyEmbedder:
    """Average the weights of several models.

    Args:
        models: Models of the same architecture, size, vocabulary and pooling. The tokenizer is
            the first one's; the LM head is averaged over the models that have one.
        weights: Relative weight of each model; equal weights if None.

    Raises:
        ValueError: If there are fewer than two models, they do not match, one is whitened, or
            ``weights`` is not one number above 0 for each.

    Example:
        >>> from simbert_hf import SimBert
        >>> tuned, start = (SimBert.from_pretrained("simbert-minilm-en") for _ in range(2))
        >>> _ = tuned.pooler.bias.data.fill_(1), start.pooler.bias.data.fill_(2)
        >>> average_models([tuned, start], [3, 1]).pooler.bias[0].item()
        1.25
    """
    models = list(models)
    weights = [1.0] * len(models) if weights is None else weights
    if len(models) < 2:
        raise ValueError("Averaging needs at least two models; give more.")
    if len(weights) != len(models) or not all(0 < s < torch.inf for s in weights):
        raise ValueError(
            f"{len(models)} models but weights {list(weights)}: give one number above 0 for each."
        )
    for model in models:
        check_alike(models[0], model)
    average, named = deepcopy(models[0]), [dict(model.named_parameters()) for model in models]
    heads = [isinstance(model, SimBert) and model.has_lm_head for model in models]
    if isinstance(average, SimBert):
        average.has_lm_head = any(heads)
    for name, weight in average.named_parameters():
        of_head = isinstance(average, SimBert) and name.startswith(average.head_prefix)
        each = torch.stack([with_float64(parameters[name]).double() for parameters in named])
        counts = torch.tensor(weights, dtype=torch.float64, device=each.device)
        if of_head and any(heads):
            counts[~torch.tensor(heads)] = 0
        mean = torch.tensordot(counts / counts.sum(), each, 1)
        weight.copy_(mean.to(weight.dtype))  # where float64 is known: not on Apple's GPUs
    return average


def check_alike(first: Embedder, other: Embedder) -> None:
    """Raise a ValueError if a model cannot be averaged with the first one."""
    if other.whitening is not None:
        raise ValueError(f"{other.name_or_path} is whitened: average first, then whiten.")
    shapes, others = (
        {name: weight.shape for name, weight in model.named_parameters()}
        for model in (first, other)
    )
    if type(first) is not type(other) or shapes != others:
        odd = sorted(name for name, _ in shapes.items() ^ others.items())
        raise ValueError(
            f"{first.name_or_path} and {other.name_or_path} have different architectures or sizes"
            f": {', '.join(odd[:5]) or f'{type(first).__name__}, {type(other).__name__}'}."
        )
    poolings = [getattr(one.config, "sentence_pooling", None) for one in (first, other)]  # a GRU
    if poolings[0] != poolings[1]:
        raise ValueError(
            f"{first.name_or_path} and {other.name_or_path} have different poolings, {poolings[0]} "
            f"and {poolings[1]}: average models with the same one; if the base model names none, "
            "load all with the pooling used in training (--pooling, pooling=)."
        )
    if first.loaded_tokenizer().get_vocab() != other.loaded_tokenizer().get_vocab():
        raise ValueError(
            f"{first.name_or_path} and {other.name_or_path} have different vocabularies."
        )
