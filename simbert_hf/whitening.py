"""Whitening of sentence vectors (Su et al. 2021, https://arxiv.org/abs/2103.15316).

An affine map, fitted on unlabelled sentences, that centres the vectors and makes their covariance
the identity; dropping its directions of least variance also makes them shorter. BERT-flow (Li et
al. 2020), which trains an invertible network to the same end, is left out: the whitening paper
finds this closed form as good, and a flow is no module that sentence-transformers could load.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from simbert_hf.embedding import Embedder

Floats = NDArray[np.float64]


def fit_whitening(vectors: np.ndarray, dim: int | None = None) -> tuple[Floats, Floats]:
    """Fit the map x -> (x - mean) @ matrix that gives the vectors the identity as covariance.

    It is PCA whitening: the first columns keep the directions of most variance.

    Args:
        vectors: Sentence vectors, not normalised. Shape: (N, D).
        dim: Number of directions d to keep; all D if None.

    Returns:
        The mean (D,) and the matrix (D, d).

    Raises:
        ValueError: If ``dim`` is not from 1 to D, or the vectors do not span so many directions.

    Example:
        >>> mean, matrix = fit_whitening(np.array([[1.0, 0.0], [3.0, 0.0], [2.0, 4.0]]), dim=1)
        >>> mean, np.abs(matrix.T)
        (array([2.  , 1.33...]), array([[0.  , 0.43...]]))
    """
    size = vectors.shape[1]
    dim = size if dim is None else dim
    if not 1 <= dim <= size:
        raise ValueError(f"Whitening to {dim} dimensions: vectors of {size} allow 1 to {size}.")
    vectors = vectors.astype(np.float64)
    variances, directions = np.linalg.eigh(np.cov(vectors, rowvar=False))  # ascending
    variances, directions = variances[::-1][:dim], directions[:, ::-1][:, :dim]
    if len(vectors) < 2 or variances[-1] <= 1e-10 * variances[0]:
        raise ValueError(
            f"{len(vectors)} vectors do not span {dim} directions; give more different sentences, "
            "some times as many as dimensions, or keep fewer dimensions."
        )
    return vectors.mean(axis=0), directions / np.sqrt(variances)


def whiten(
    model: Embedder, sentences: Sequence[str], dim: int | None = None, *, batch_size: int = 64
) -> None:
    """Fit the whitening of a model's sentence vectors, and make it a part of the model.

    ``encode`` applies it before it normalises; a saved model keeps it, as a Dense module for
    sentence-transformers.

    Args:
        model: A model that is not whitened yet.
        sentences: What the map is fitted on: some thousands, of the kind that will be embedded.
        dim: Number of dimensions to keep; all if None.
        batch_size: Sentences a forward pass.

    Raises:
        ValueError: If the model is whitened already, or the sentences are too few.
    """
    if model.whitening is not None:
        raise ValueError("The model is whitened already; whiten the one it was made from.")
    vectors = model.encode(sentences, batch_size=batch_size, normalize_embeddings=False)
    mean, matrix = fit_whitening(vectors, dim)
    linear = nn.Linear(*matrix.shape).requires_grad_(False)
    linear.weight.copy_(torch.from_numpy(matrix.T))
    linear.bias.copy_(torch.from_numpy(-mean @ matrix))
    model.config.whitening_dim = linear.out_features
    model.whitening = linear.to(model.device, model.dtype)
