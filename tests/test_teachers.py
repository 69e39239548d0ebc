import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from datasets import Dataset

from benchmarks.teachers import together
from simbert_hf.collators import PairCollator
from simbert_hf.data.sampling import PairDataset
from simbert_hf.losses import distillation_loss
from simbert_hf.objectives import SimBertObjective
from simbert_hf.pooling import normalize
from simbert_hf.training.simbert import TrainingData, load_teacher
from simbert_hf.training.teachers import Teacher, encoder
from tests.test_objectives import PAIRS, SENTENCES
from tests.tiny import tiny_simbert

TEXTS = [f"text {i}" for i in range(6)]


def embedder(seed: int, shift: float):
    """A model whose vectors share a direction, so that unrelated sentences are alike."""
    table = np.random.default_rng(seed).normal(size=(len(TEXTS), 5)) + shift
    return lambda texts: torch.tensor(table[[TEXTS.index(text) for text in texts]])


def naive_cosines(vectors: torch.Tensor) -> np.ndarray:
    rows = vectors.numpy() / np.linalg.norm(vectors.numpy(), axis=1, keepdims=True)
    return rows @ rows.T


def test_what_the_benchmark_puts_side_by_side_ranks_as_the_teachers_do() -> None:
    models = {"a": embedder(0, shift=0.1), "b": embedder(1, shift=3.0)}
    teacher = Teacher([models["a"], models["b"], models["b"]], TEXTS)
    parts = {
        name: (lambda texts, m=model: normalize(m(texts)).numpy(), teacher.means[model])
        for name, model in models.items()
    }
    vectors = together(parts, "a,b,b")(TEXTS)
    ours, theirs = (vectors @ vectors.T).ravel(), teacher(TEXTS).numpy().ravel()
    slope, constant = np.polyfit(ours, theirs, 1)
    assert slope > 0
    assert np.allclose(slope * ours + constant, theirs)


def test_one_teacher_gives_its_own_cosines() -> None:
    model = embedder(0, shift=3.0)
    assert np.allclose(Teacher([model])(TEXTS), naive_cosines(model(TEXTS)))


def test_several_teachers_are_averaged_where_unrelated_sentences_are_0_and_equals_1() -> None:
    models = [embedder(0, shift=0.1), embedder(1, shift=3.0)]
    found = Teacher(models, TEXTS)(TEXTS).numpy()
    others = ~np.eye(len(TEXTS), dtype=bool)
    parts = []
    for model in models:
        cosines = naive_cosines(model(TEXTS))
        low = cosines[others].mean()
        parts.append((cosines - low) / (1 - low))
    assert abs(naive_cosines(models[1](TEXTS))[others].mean()) > 0.5  # far from 0 before
    assert np.allclose(found, np.mean(parts, axis=0))
    assert found[others].mean() == pytest.approx(0, abs=1e-12)
    assert np.allclose(found.diagonal(), 1)


def test_a_teacher_given_twice_counts_twice_and_is_asked_once() -> None:
    one, other, asked = embedder(0, shift=0.1), embedder(1, shift=3.0), []

    def counted(texts):
        asked.append(len(texts))
        return other(texts)

    teacher = Teacher([one, counted, counted], TEXTS)
    asked.clear()
    wanted = Teacher([one, other, embedder(1, shift=3.0)], TEXTS)(TEXTS)
    assert torch.allclose(teacher(TEXTS), wanted)
    assert asked == [len(TEXTS)]


def test_a_teacher_named_twice_is_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[tuple[str, str]] = []
    model = tiny_simbert().sentence_transformer()
    monkeypatch.setattr(
        "simbert_hf.training.teachers.load_sentence_transformer",
        lambda *given: loaded.append(given) or model,
    )
    found = Teacher.load(["a", "b", "a"], ["a cat", "a dog", "go"], torch.device("cpu"), False)
    assert sorted(loaded) == [("a", "cpu"), ("b", "cpu")]
    assert sorted(found.counts.values()) == [1, 2]


def test_several_teachers_need_unrelated_sentences() -> None:
    with pytest.raises(ValueError, match="need sentences"):
        Teacher([embedder(0, 0.0), embedder(1, 0.0)], TEXTS[:1])


@pytest.mark.parametrize("models", ["all-MiniLM-L6-v2", ["all-MiniLM-L6-v2"]])
def test_names_of_teachers_are_for_load(models) -> None:
    with pytest.raises(TypeError, match=r"all-MiniLM.*Teacher\.load takes names"):
        Teacher(models)


def test_a_teacher_in_16_bits_gives_vectors_of_32() -> None:
    model = tiny_simbert().sentence_transformer()
    plain, half = (encoder(model, bf16)(["a cat"]) for bf16 in (False, True))
    assert plain.dtype == half.dtype == torch.float32
    assert 1e-4 < (plain - half).abs().max() / plain.abs().max() < 0.1


def test_unpaired_sentences_stand_once_for_a_teacher_and_are_taught() -> None:
    model = tiny_simbert()
    twice = PairCollator(model.rows, max_length=20, texts=True, sentences=SENTENCES)
    once = dataclasses.replace(twice, twice=False)
    batch, paired = once(PAIRS), twice(PAIRS)
    n = 2 * len(PAIRS)
    assert batch["texts"][:n] == paired["texts"][:n]
    drawn = batch["texts"][n:]
    assert len(drawn) == n
    assert set(drawn) <= set(SENTENCES)
    assert all(first != second for first, second in zip(drawn[::2], drawn[1::2], strict=True))
    assert paired["texts"][n::2] == paired["texts"][n + 1 :: 2]
    assert "sentence_groups" in paired
    assert "sentence_groups" not in batch
    wanted = torch.rand(2 * n, 2 * n)
    parts = SimBertObjective(teacher=lambda texts: wanted)(model, batch)
    vectors = torch.as_tensor(model.encode(batch["texts"]))
    expected = distillation_loss(vectors, wanted).item()
    assert parts.simcse is None
    assert parts.distillation.item() == pytest.approx(expected, abs=1e-5)


def test_the_pairs_that_put_teachers_on_one_scale_are_of_the_whole_file(monkeypatch) -> None:
    """A file may be sorted, and neighbours are alike."""
    texts = [str(i) for i in range(2500)]
    groups = {"texts": [[text, text] for text in texts], "group": range(len(texts))}
    data = TrainingData(PairDataset(Dataset.from_dict(groups)))
    monkeypatch.setattr(Teacher, "load", lambda names, unrelated, *_: unrelated)
    args = SimpleNamespace(device="cpu", mixed_precision="no")
    spread = [texts[5 * i // 2] for i in range(1000)]
    assert load_teacher(["a", "b"], data, args) == spread
    assert load_teacher(["a", "b"], dataclasses.replace(data, unpaired=texts), args) == spread
