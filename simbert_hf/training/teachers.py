"""Frozen models whose similarities are preserved, or distilled, during training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from simbert_hf.distributed import gather_uneven_with_grad
from simbert_hf.encoders.loader import load_sentence_transformer
from simbert_hf.evaluation.geometry import mean_pairwise_cosine
from simbert_hf.losses import cosines
from simbert_hf.pooling import normalize

Encode = Callable[[Sequence[str]], Tensor]


class Teacher:
    """The similarities of one frozen model, or the mean of several on a common scale.

    Models differ in the similarity of unrelated sentences (for E5 a cosine of 0.8, for MiniLM
    0.05). So that none outweighs the others, each cosine c becomes 1 - (1 - c) / (1 - m), where m
    is the model's mean over ``unrelated``: equal sentences keep 1, unrelated ones are 0 on average.
    A single model's cosines are unchanged, and a model that is given twice counts twice.

    Args:
        models: Each embeds texts as vectors (B, D) of any length.
        unrelated: Unrelated sentences; a thousand are enough. Required for several models.

    Raises:
        TypeError: If a model is not a function, but its name for example.
        ValueError: If there are several models and fewer than two unrelated sentences.

    Example:
        >>> one, other = torch.eye(3), torch.tensor([[1.0, 0], [0.6, 0.8], [0.6, -0.8]])
        >>> teacher = Teacher([lambda texts: one, lambda texts: other], ["a", "b", "c"])
        >>> [round(mean, 4) for mean in teacher.means.values()]  # the other's of .6, .6 and -.28
        [0.0, 0.3067]
        >>> teacher(["a", "b", "c"])[0]
        tensor([1.0000, 0.2115, 0.2115])
    """

    def __init__(self, models: Sequence[Encode], unrelated: Sequence[str] = ()) -> None:
        if not all(map(callable, models)):
            raise TypeError(f"models={models!r}: give functions; Teacher.load takes names.")
        if len(models) > 1 and len(unrelated) < 2:
            raise ValueError("Several teachers need sentences to put their cosines on one scale.")
        self.counts = Counter(models)
        self.means = dict.fromkeys(self.counts, 0.0)
        for model in self.counts if len(models) > 1 else ():
            vectors = normalize(model(unrelated)).cpu().numpy()
            self.means[model] = mean_pairwise_cosine(vectors)

    @torch.no_grad()
    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Return the similarities of all processes' texts, N in all. Shape: (N, N)."""
        scaled = []
        for model, mean in self.means.items():
            (vectors,) = gather_uneven_with_grad(model(texts))
            similarities = 1 - (1 - cosines(vectors, vectors)) / (1 - mean)
            scaled.append(self.counts[model] * similarities)
        return torch.stack(scaled).sum(0) / self.counts.total()

    @classmethod
    def load(
        cls, names: Sequence[str], unrelated: Sequence[str], device: torch.device, bf16: bool
    ) -> Teacher:
        """Load encoders, by directory or Hub id, onto a device."""
        models = {
            name: encoder(load_sentence_transformer(name, str(device)), bf16) for name in set(names)
        }
        return cls([models[name] for name in names], unrelated)


def encoder(model: SentenceTransformer, bf16: bool) -> Encode:
    """Make a function that embeds texts with a model, in bfloat16 if training is."""
    batch_size = 32 if model.device.type == "cpu" else 256  # less padding, or fewer calls

    def encode(texts: Sequence[str]) -> Tensor:
        with torch.autocast(model.device.type, torch.bfloat16, enabled=bf16):
            vectors = model.encode(
                list(texts), batch_size=batch_size, convert_to_tensor=True, show_progress_bar=False
            )
        return vectors.float()

    return encode
