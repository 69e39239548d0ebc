"""Whitening of sentence vectors (Su et al. 2021, https://arxiv.org/abs/2103.15316).

An affine map, fitted on unlabelled sentences, that centres the vectors and makes their covariance
the identity; dropping its directions of least variance also makes them shorter. BERT-flow (Li et
al. 2020), which trains an invertible network for the same purpose, is left out: the whitening
paper finds this closed form as good, and sentence-transformers could not load a flow.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from simbert_hf.modeling.embedding import Embedder
from simbert_hf.utils.arrays import Floats

NOISE = 1e-10  # share of the largest variance below which float32 vectors vary by rounding only
ROUNDING = np.finfo(np.float32).eps ** 2  # the same as a share of their mean square length


def fit_whitening(vectors: np.ndarray, dim: int | None = None) -> tuple[Floats, Floats]:
    """Fit the map x -> (x - mean) @ matrix that gives the vectors the identity as covariance.

    It is PCA whitening: the first columns keep the directions of most variance.

    Args:
        vectors: Sentence vectors, not normalised. Shape: (N, D).
        dim: Number of directions d to keep; all that the vectors span if None. BERT's span D - 1,
            since its last layer normalisation ties one coordinate to the others.

    Returns:
        The mean (D,) and the matrix (D, d).

    Raises:
        ValueError: If ``dim`` exceeds what the vectors span, or there are no more than D of them.

    Example:
        >>> mean, matrix = fit_whitening(np.array([[1.0, 0.0], [3.0, 0.0], [2.0, 4.0]]), dim=1)
        >>> mean, np.abs(matrix.T)
        (array([2.  , 1.33...]), array([[0.  , 0.43...]]))
    """
    count, size = vectors.shape
    if count <= size:
        raise ValueError(
            f"Too few sentences to estimate the covariance of {size} dimensions: {count} different "
            "ones. Give more, ideally several times as many as dimensions."
        )
    vectors = vectors.astype(np.float64)
    covariance = np.atleast_2d(np.cov(vectors, rowvar=False))
    variances, directions = np.linalg.eigh(covariance)  # ascending
    variances, directions = variances[::-1], directions[:, ::-1]
    least = max(NOISE * variances[0], ROUNDING * np.square(vectors).sum(axis=1).mean())
    spanned = int((variances > least).sum())
    dim = spanned if dim is None else dim
    if not 1 <= dim <= spanned:
        raise ValueError(
            f"Cannot whiten to {dim} dimensions: the vectors span {spanned} directions."
        )
    return vectors.mean(axis=0), directions[:, :dim] / np.sqrt(variances[:dim])


def whiten(model: Embedder, sentences: Sequence[str], dim: int | None = None) -> None:
    """Fit the whitening of a model's sentence vectors, and make it part of the model.

    ``encode`` applies it before normalising; it is saved with the model, as a Dense module for
    sentence-transformers.

    Args:
        model: A model that is not whitened yet.
        sentences: Sentences to fit the map on (repetitions are ignored): some thousands, similar
            to those that will be embedded.
        dim: Number of dimensions to keep; all that the vectors span if None.

    Raises:
        ValueError: If the model is already whitened, or the sentences are too few.

    Example:
        >>> from simbert_hf.gru import CharGru
        >>> sentences = ["a cat", "a dog", "cats", "dogs ran", "sat", "ran a"]
        >>> model = CharGru.for_texts(sentences, min_count=1, hidden_size=4)
        >>> whiten(model, sentences, dim=2)
        >>> vectors = model.encode(sentences, normalize_embeddings=False)
        >>> vectors.shape, np.allclose(np.cov(vectors.T), np.eye(2), atol=1e-2)
        ((6, 2), True)
    """
    if model.whitening is not None:
        raise ValueError("The model is already whitened; whiten the one it was made from.")
    vectors = model.encode(list(dict.fromkeys(sentences)), normalize_embeddings=False)
    mean, matrix = fit_whitening(vectors, dim)
    linear = nn.Linear(*matrix.shape).requires_grad_(False)
    linear.weight.copy_(torch.from_numpy(matrix.T))
    linear.bias.copy_(torch.from_numpy(-mean @ matrix))
    model.config.whitening_dim = linear.out_features
    model.whitening = linear.to(model.device, model.dtype)
