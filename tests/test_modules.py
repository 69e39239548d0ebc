"""What sentence-transformers and transformers changed of a checkpoint is taken, or told of."""

import json
import shutil
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.base.modules import Dense
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from transformers import AutoModelForMaskedLM, AutoTokenizer

from simbert_hf import SimBert
from simbert_hf.encoders.text_encoder import TextEncoder
from simbert_hf.gru import CharGru
from simbert_hf.modeling.embedding import Embedder
from simbert_hf.modeling.sentence_transformers import EmbedderTransformer
from simbert_hf.modeling.whitening import whiten
from tests.tiny import ROWS, tiny_simbert

SENTENCES = ["how can i reset my password?", "the weather is nice today", "cats"]


def unit_vectors(model: SentenceTransformer) -> Any:
    return model.encode(SENTENCES, normalize_embeddings=True)


def disturb(module: torch.nn.Module) -> None:
    """Change weights as training would, by much."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)


def put_dense(**options: bool) -> Callable[[Any], object]:
    return lambda model: model.insert(2, Dense(32, 32, **options)) and model.pop(3)


@pytest.mark.parametrize("pooling", ["linear_pooler", "tanh_pooler"])
def test_a_pooler_that_sentence_transformers_trained_is_taken(pooling: str, tmp_path: Path) -> None:
    tiny_simbert(pooling).save_pretrained(tmp_path / "before")
    trained = SentenceTransformer(str(tmp_path / "before"), device="cpu")
    disturb(trained[2])
    trained.save(str(tmp_path / "after"))
    wanted = unit_vectors(trained)
    model = SimBert.from_pretrained(tmp_path / "after")
    assert abs(model.encode(SENTENCES) - wanted).max() < 1e-5
    model.save_pretrained(tmp_path / "again")
    again = SentenceTransformer(str(tmp_path / "again"), device="cpu")
    assert abs(unit_vectors(again) - wanted).max() < 1e-5


def test_a_pooler_that_transformers_dropped_is_taken_from_the_modules(tmp_path: Path) -> None:
    model = tiny_simbert("linear_pooler")
    disturb(model.pooler)
    model.save_pretrained(tmp_path)
    AutoModelForMaskedLM.from_pretrained(tmp_path).save_pretrained(tmp_path)
    found = SimBert.from_pretrained(tmp_path)
    assert abs(found.encode(SENTENCES) - model.encode(SENTENCES)).max() < 1e-5
    shutil.rmtree(tmp_path / "2_Dense")
    with pytest.raises(ValueError, match=r"lacks the pooler .* says 'linear_pooler'"):
        SimBert.from_pretrained(tmp_path)
    SimBert.from_pretrained(tmp_path, pooling="mean")


@pytest.mark.parametrize(
    ("pooling", "change", "said"),
    [
        ("mean", lambda model: model.append(Dense(32, 16)), "made by Pooling (mean), Dense"),
        ("linear_pooler", lambda model: model.pop(2), "pass pooling='cls'"),
        ("cls", lambda model: model.append(Dense(32, 32)), "pass pooling='tanh_pooler'"),
        ("linear_pooler", lambda model: model.append(Dense(32, 32)), "made by Pooling (cls)"),
        ("tanh_pooler", put_dense(bias=False), "made by Pooling (cls), Dense, which"),
        ("tanh_pooler", put_dense(use_residual=True), "made by Pooling (cls), Dense, which"),
        ("mean", lambda model: setattr(model.tokenizer, "padding_side", "left"), "on the left"),
        ("mean", lambda model: setattr(model[1], "pooling_mode", "cls"), "--pooling cls"),
        ("mean", lambda model: setattr(model, "truncate_dim", 8), "truncates them to 8 dimensions"),
        ("first_last_mean", lambda model: disturb(model[1]), "weight the layers differently"),
        ("cls", lambda model: model.prompts.update(query="q: "), "puts 'q: ' before each text"),
    ],
)
def test_other_vectors_of_sentence_transformers_are_told_of(
    pooling: str,
    change: Callable[[Any], object],
    said: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tiny_simbert(pooling).save_pretrained(tmp_path / "before")
    model = SentenceTransformer(str(tmp_path / "before"), device="cpu")
    SimBert.from_pretrained(tmp_path / "before")
    assert "other vectors" not in caplog.text
    change(model)
    if model.prompts.get("query"):
        model.default_prompt_name = "query"
    model.tokenizer(["a"], padding=True)  # by which its file learns of the side
    model.save(str(tmp_path / "after"))
    SimBert.from_pretrained(tmp_path / "after")
    assert said in caplog.text


def test_a_dense_of_another_pooling_is_no_pooler(tmp_path: Path) -> None:
    tiny_simbert().save_pretrained(tmp_path / "before")
    mean = SentenceTransformer(str(tmp_path / "before"), device="cpu")
    mean.append(Dense(32, 32))
    mean.save(str(tmp_path / "after"))
    own, found = (
        SimBert.from_pretrained(tmp_path / name, pooling="tanh_pooler").encode(SENTENCES)
        for name in ("before", "after")
    )
    assert abs(own - found).max() < 1e-6


def test_a_dense_without_weights_that_are_read_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tiny_simbert("linear_pooler").save_pretrained(tmp_path)
    file = tmp_path / "2_Dense" / "model.safetensors"
    torch.save(load_file(file), file.with_name("pytorch_model.bin"))
    file.unlink()
    SimBert.from_pretrained(tmp_path)
    assert "they pass through a Dense whose weights are not read here" in caplog.text


def test_a_mean_of_another_length_is_a_mean(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tiny_simbert().save_pretrained(tmp_path / "before")
    model = SentenceTransformer(str(tmp_path / "before"), device="cpu")
    model[1].pooling_mode = "mean_sqrt_len_tokens"
    model.save(str(tmp_path / "after"))
    found = SimBert.from_pretrained(tmp_path / "after")
    assert abs(found.encode(SENTENCES) - unit_vectors(model)).max() < 1e-5
    assert "other vectors" not in caplog.text


def test_a_cut_dense_is_named(tmp_path: Path) -> None:
    tiny_simbert("linear_pooler").save_pretrained(tmp_path)
    file = tmp_path / "2_Dense" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(OSError, match=r"2_Dense.model\.safetensors is truncated or damaged"):
        SimBert.from_pretrained(tmp_path)


@pytest.mark.filterwarnings("ignore:Texts of more than 4 tokens were cut")
def test_a_bridge_saves_its_settings_and_no_other_modules(tmp_path: Path) -> None:
    bridge = tiny_simbert().sentence_transformer()
    bridge.prompts["query"], bridge.default_prompt_name = "how ", "query"
    bridge.max_seq_length = 4
    bridge.save(str(tmp_path))
    again = SentenceTransformer(str(tmp_path), device="cpu")
    assert again.max_seq_length == bridge.max_seq_length == 4
    assert abs(unit_vectors(again) - unit_vectors(bridge)).max() < 1e-5
    assert again.default_prompt_name == "query"
    bridge.append(Dense(32, 16))
    with pytest.raises(ValueError, match="not modules added to it"):
        bridge.save(str(tmp_path))
    with pytest.raises(ValueError, match="written as safetensors only"):
        tiny_simbert().sentence_transformer().save(str(tmp_path), safe_serialization=False)


def test_keybert_and_bertopic_know_a_bridge() -> None:
    assert "sentence_transformers" in str(type(tiny_simbert().sentence_transformer()))  # their test


def test_a_bridge_gives_the_vectors_of_tokens(tmp_path: Path) -> None:
    bridge = tiny_simbert().sentence_transformer()
    bridge.save(str(tmp_path))
    plain = SentenceTransformer(str(tmp_path), device="cpu")
    for one, other in zip(
        *(each.encode(SENTENCES, output_value="token_embeddings") for each in (bridge, plain)),
        strict=True,
    ):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)


def test_a_whitening_that_sentence_transformers_saved_is_taken(tmp_path: Path) -> None:
    model = tiny_simbert()
    whiten(model, [text for text, _ in ROWS], 8)
    model.save_pretrained(tmp_path / "before")
    SentenceTransformer(str(tmp_path / "before"), device="cpu").save(str(tmp_path / "after"))
    found = SimBert.from_pretrained(tmp_path / "after")
    assert abs(found.encode(SENTENCES) - model.encode(SENTENCES)).max() < 1e-5


def test_what_is_saved_pads_on_the_right(tmp_path: Path) -> None:
    """transformers advises to pad on the left for generate(); BERT's positions count from there."""
    model = tiny_simbert()
    model.save_pretrained(tmp_path)
    sides = {"padding_side": "left", "truncation_side": "left"}
    model.tokenizer = AutoTokenizer.from_pretrained(tmp_path, **sides)
    model.tokenizer(SENTENCES, padding=True, truncation=True, max_length=4)
    model.save_pretrained(tmp_path)
    state = json.loads((tmp_path / "tokenizer.json").read_text())
    assert (state["padding"], state["truncation"]) == (None, None)
    found = SentenceTransformer(str(tmp_path), device="cpu")
    assert abs(unit_vectors(found) - model.encode(SENTENCES)).max() < 1e-5
    assert found.tokenizer.truncation_side == "right"
    assert model.tokenizer.padding_side == "left"


def test_rows_padded_on_the_right_are_written_behind_their_tokens() -> None:
    model = tiny_simbert()
    rows = [model.rows.pad(model.rows.sources([text], 32)) for text in SENTENCES]
    options = {"max_new_tokens": 8, "do_sample": False}
    alone = [model.generate(**row, **options)[0, row["input_ids"].shape[1] :] for row in rows]
    batch = model.rows.pad(model.rows.sources(SENTENCES, 32))
    together = model.generate(**batch, **options)
    written = together[:, batch["input_ids"].shape[1] :]
    for one, other in zip(alone, written, strict=True):
        assert one.tolist() == other[: len(one)].tolist()
    ids = batch.pop("input_ids")
    assert torch.equal(model.generate(ids, **batch, **options), together)
    assert torch.equal(model.generate(ids, **options), together)


def trainer(model: SentenceTransformer, folder: Path) -> SentenceTransformerTrainer:
    pairs = Dataset.from_dict({"anchor": SENTENCES * 2, "positive": SENTENCES[::-1] * 2})
    args = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        max_steps=3,
        per_device_train_batch_size=3,
        learning_rate=1e-2,
        eval_strategy="steps",
        eval_steps=1,
        save_steps=1,
        load_best_model_at_end=True,
        metric_for_best_model="eval_loss",
        greater_is_better=True,  # so that the first is the best
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    loss = MultipleNegativesRankingLoss(model)
    return SentenceTransformerTrainer(model, args, pairs, pairs, loss)


@pytest.mark.parametrize("make", [tiny_simbert, lambda: CharGru.for_texts(SENTENCES, min_count=1)])
def test_sentence_transformers_trains_a_model_in_place(
    make: Callable[[], Embedder], tmp_path: Path
) -> None:
    """With its LM head, and the best model at the end."""
    model = make()
    bridge = model.sentence_transformer()
    before = model.encode(SENTENCES)
    training = trainer(bridge, tmp_path)
    training.train()
    assert abs(model.encode(SENTENCES) - before).max() > 1e-3
    best = EmbedderTransformer(training.state.best_model_checkpoint)
    assert abs(unit_vectors(best) - model.encode(SENTENCES)).max() < 1e-5
    bridge.save_pretrained(str(tmp_path / "saved"))
    again = type(model).from_pretrained(tmp_path / "saved")
    assert abs(again.encode(SENTENCES) - model.encode(SENTENCES)).max() < 1e-5
    if isinstance(again, SimBert):
        assert again.has_lm_head
        plain = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
        assert abs(unit_vectors(plain) - unit_vectors(best)).max() < 1e-5


@pytest.mark.filterwarnings("ignore:.*(quantiz|TypedStorage)")
def test_quantized_models_have_a_fingerprint() -> None:
    model, trained = tiny_simbert(), tiny_simbert()
    disturb(trained.bert.encoder)
    few, other = (
        torch.ao.quantization.quantize_dynamic(one, {torch.nn.Linear}, dtype=torch.qint8)
        for one in (model, trained)
    )
    prints = {TextEncoder(one).fingerprint for one in (model, few, other, deepcopy(few))}
    assert len(prints) == 3
