from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sklearn.decomposition import PCA
from transformers import AutoModel

from scripts.whiten import main
from simbert_hf import SimBert
from simbert_hf.modeling.encoder import SentenceEncoder
from simbert_hf.modeling.whitening import fit_whitening, whiten
from simbert_hf.pooling import POOLINGS
from tests.test_encoder import ARCHITECTURES
from tests.tiny import WORDS, tiny_simbert

SENTENCES = [f"{a} {b} {c}" for a in WORDS[:6] for b in WORDS[6:12] for c in WORDS[12:18]]
TEXTS = ["how can i reset my password?", "the weather is nice today", "cats"]


def correlated(n: int = 400, size: int = 7) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, size)) @ rng.normal(size=(size, size)) + rng.normal(size=size)


def nearly_equal() -> np.ndarray:
    """What an encoder that has collapsed gives: one vector, apart from rounding in float32."""
    rng = np.random.default_rng(0)
    return (rng.normal(size=7) * (1 + 1e-7 * rng.normal(size=(400, 7)))).astype(np.float32)


@pytest.mark.parametrize("size", [1, 7])
def test_the_covariance_becomes_the_identity(size: int) -> None:
    vectors = correlated(size=size)
    mean, matrix = fit_whitening(vectors)
    white = (vectors - mean) @ matrix
    assert np.abs(white.mean(axis=0)).max() < 1e-10
    assert np.abs(np.cov(white, rowvar=False) - np.eye(size)).max() < 1e-10


@pytest.mark.parametrize("dim", [1, 4, 7])
def test_it_is_pca_whitening(dim: int) -> None:
    vectors, others = correlated(), correlated()[::-1] + 1
    mean, matrix = fit_whitening(vectors, dim)
    ours = (others - mean) @ matrix
    theirs = PCA(dim, whiten=True, svd_solver="full").fit(vectors).transform(others)
    assert ours.shape == theirs.shape == (400, dim)
    assert np.abs(np.abs(ours) - np.abs(theirs)).max() < 1e-9  # a direction has no sign


@pytest.mark.parametrize(
    ("vectors", "dim", "message"),
    [
        (correlated(), 0, "to 0 dimensions: the vectors span 7 directions"),
        (correlated(), 8, "to 8 dimensions: the vectors span 7 directions"),
        (correlated()[:, [0, 1, 0]], 3, "to 3 dimensions: the vectors span 2 directions"),
        (np.ones((30, 3)), None, "to 0 dimensions: the vectors span 0 directions"),
        (np.full((30, 3), 0.1), None, "to 0 dimensions: the vectors span 0 directions"),
        (nearly_equal(), None, "to 0 dimensions: the vectors span 0 directions"),
        (
            correlated(7),
            2,
            "Too few sentences to estimate the covariance of 7 dimensions: 7 different",
        ),
    ],
)
def test_too_few_sentences_or_dimensions_are_refused(
    vectors: np.ndarray, dim: int | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        fit_whitening(vectors, dim)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("dim", [None, 8])
def test_every_loader_applies_it(tmp_path: Path, pooling: str, dim: int | None) -> None:
    model = tiny_simbert(pooling)
    raw = model.encode(SENTENCES, normalize_embeddings=False)
    plain = model.encode(TEXTS, normalize_embeddings=False)
    whiten(model, SENTENCES, dim)
    mean, matrix = fit_whitening(raw, dim)
    # Of a layer-normalised vector one coordinate follows from the others.
    spanned = 31 if pooling in ("cls", "mean", "linear_pooler", "first_last_mean") else 32
    expected = (plain - mean) @ matrix
    found = model.encode(TEXTS, normalize_embeddings=False)
    assert found.shape == (3, dim or spanned)
    assert np.abs(found - expected).max() < 1e-3 * np.abs(expected).max()
    vectors = model.encode(TEXTS)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)

    model.save_pretrained(tmp_path)
    again = SimBert.from_pretrained(tmp_path)
    assert np.abs(again.encode(TEXTS) - vectors).max() < 1e-6
    assert not any(p.requires_grad for p in again.whitening.parameters())
    theirs = SentenceTransformer(str(tmp_path), device="cpu")
    assert theirs.get_embedding_dimension() == (dim or spanned)
    assert np.abs(theirs.encode(TEXTS) - vectors).max() < 1e-5
    AutoModel.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="is already whitened"):
        whiten(again, SENTENCES)
    other = "cls" if pooling == "mean" else "mean"
    with pytest.raises(ValueError, match=f"is whitened for the pooling '{pooling}'"):
        SimBert.from_pretrained(tmp_path, pooling=other)


def test_the_script_whitens_any_encoder(tmp_path: Path) -> None:
    config, build_tokenizer = ARCHITECTURES["roberta"]
    torch.manual_seed(0)
    AutoModel.from_config(config).save_pretrained(tmp_path / "start")
    build_tokenizer().save_pretrained(tmp_path / "start")
    (tmp_path / "sentences.txt").write_text("\n".join(SENTENCES))
    out = tmp_path / "out"
    flags = [f"--model_name_or_path={tmp_path / 'start'}", f"--output_dir={out}", "--dim=6",
             f"--train_file={tmp_path / 'sentences.txt'}", "--pooling=first_last_mean"]  # fmt: skip
    main(flags)
    vectors = SentenceEncoder.from_pretrained(out).encode(TEXTS)
    assert vectors.shape == (3, 6)
    theirs = SentenceTransformer(str(out), device="cpu").encode(TEXTS)
    assert np.abs(theirs - vectors).max() < 1e-5
    with pytest.raises(ValueError, match="out already holds a model or a run"):
        main(flags)
