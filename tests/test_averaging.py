"""Averages of weights are those of safetensors read by themselves, and load everywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModel

from scripts.average_models import main
from scripts.whiten import main as whiten_script
from simbert_hf import SimBert
from simbert_hf.modeling.averaging import average_models
from simbert_hf.modeling.encoder import SentenceEncoder
from simbert_hf.modeling.whitening import whiten
from tests.test_encoder import ARCHITECTURES
from tests.tiny import WORDS, tiny_simbert, unigram_tokenizer

TEXTS = ["how can i reset my password?", "the weather is nice today.", "a cat"]


def moved(model: SimBert, seed: int) -> SimBert:
    """Stands for training: the weights go elsewhere."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model


@pytest.mark.parametrize("script", ["average_models", "whiten"])
def test_half_a_model_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """With weights but without its modules, sentence-transformers would pool it in its own way."""
    tiny_simbert().save_pretrained(tmp_path / "start")
    (tmp_path / "texts.txt").write_text("\n".join(WORDS))
    out = tmp_path / "out"
    run, flags = {
        "average_models": (main, ["--models", str(tmp_path / "start"), str(tmp_path / "start")]),
        "whiten": (
            whiten_script,
            [
                f"--model_name_or_path={tmp_path / 'start'}",
                f"--train_file={tmp_path / 'texts.txt'}",
            ],
        ),
    }[script]
    seen: list[str] = []

    def stop(*_: object) -> None:
        seen.extend(path.name for path in out.iterdir())
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("simbert_hf.modeling.checkpoint.write_modules", stop)
        with pytest.raises(KeyboardInterrupt):
            run([*flags, f"--output_dir={out}"])
    assert (seen, list(out.iterdir())) == (["_saving"], [])
    (out / "_saving").mkdir()  # left by a kill
    (out / "_saving" / "model.safetensors").touch()
    for name in ("config.json", "modules.json"):  # moved before the kill
        (out / name).touch()
    run([*flags, f"--output_dir={out}"])
    assert len(SentenceTransformer(str(out), device="cpu")) > 2
    assert not (out / "_saving").exists()


def test_the_script_averages_saved_models(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("tuned", "start", "out")]
    for seed, path in enumerate(paths[:2]):
        moved(tiny_simbert(), seed).save_pretrained(path)
    main(["--models", *map(str, paths[:2]), "--weights", "3", "1", f"--output_dir={paths[2]}"])
    tuned, start, out = (load_file(path / "model.safetensors") for path in paths)
    assert tuned.keys() == start.keys() == out.keys()
    for name in out:
        torch.testing.assert_close(out[name], 0.75 * tuned[name] + 0.25 * start[name])
    vectors = SimBert.from_pretrained(paths[2]).encode(TEXTS)
    theirs = SentenceTransformer(str(paths[2]), device="cpu").encode(TEXTS)
    assert np.abs(theirs - vectors).max() < 1e-5
    with pytest.raises(ValueError, match="start is also an input: name another"):
        main(["--models", *map(str, paths[:2]), f"--output_dir={paths[1]}"])


@pytest.mark.parametrize(
    "sign", ["config.json", "modules.json", "model-00001-of-2.safetensors", "checkpoint-7"]
)
def test_what_a_folder_holds_is_kept(tmp_path: Path, sign: str) -> None:
    """Its card, figures or checkpoints would stay beside the average, and tell of another model."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / sign).touch()
    message = rf"out already holds a model or a run \({sign}\): name a new folder, or remove"
    with pytest.raises(ValueError, match=message):
        main(["--models", "simbert-minilm-en", f"--output_dir={tmp_path / 'out'}"])
    assert [path.name for path in (tmp_path / "out").iterdir()] == [sign]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_start_without_lm_head_leaves_the_head_as_it_is(
    tmp_path: Path, order: tuple[int, int]
) -> None:
    moved(tiny_simbert(), 0).save_pretrained(tmp_path / "tuned")
    headless = moved(tiny_simbert(), 1)
    headless.has_lm_head = False
    headless.save_pretrained(tmp_path / "start")
    both = [SimBert.from_pretrained(tmp_path / name) for name in ("tuned", "start")]
    average = average_models(both[index] for index in order)
    assert average.has_lm_head
    head, embeddings = "cls.predictions.transform", "bert.embeddings.word_embeddings.weight"
    found, (tuned, start) = average.state_dict(), (model.state_dict() for model in both)
    for name in found:
        if name.startswith(head) or name == "cls.predictions.bias":
            torch.testing.assert_close(found[name], tuned[name])
    torch.testing.assert_close(found[embeddings], (tuned[embeddings] + start[embeddings]) / 2)
    assert average.get_output_embeddings().weight is average.get_input_embeddings().weight
    average.gen_synonyms(TEXTS[0], n=2)  # refused without an LM head


def test_weights_leave_a_device_without_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    def move(weight: torch.Tensor) -> torch.Tensor:
        gone.append(weight.clone())
        return gone[-1]

    def double(weight: torch.Tensor) -> torch.Tensor:
        assert any(weight is one for one in gone)
        return weight.to(torch.float64)

    gone: list[torch.Tensor] = []
    start, tuned = tiny_simbert(), moved(tiny_simbert(), 1)
    monkeypatch.setattr("simbert_hf.modeling.averaging.with_float64", move)
    monkeypatch.setattr(torch.Tensor, "double", double)
    average = average_models([start, tuned])
    assert len(gone) == 2 * len(list(average.parameters()))


def test_any_encoder_is_averaged(tmp_path: Path) -> None:
    config, build_tokenizer = ARCHITECTURES["roberta"]
    for seed in (0, 1):
        torch.manual_seed(seed)
        AutoModel.from_config(config).save_pretrained(tmp_path / str(seed))
        build_tokenizer().save_pretrained(tmp_path / str(seed))
    out = tmp_path / "out"
    main(["--models", str(tmp_path / "0"), str(tmp_path / "1"), f"--output_dir={out}"])
    one, other, mean = (
        SentenceEncoder.from_pretrained(tmp_path / name).state_dict() for name in ("0", "1", "out")
    )
    for name in mean:
        torch.testing.assert_close(mean[name], (one[name] + other[name]) / 2)


def test_a_start_that_names_no_pooling_takes_the_one_that_is_given(tmp_path: Path) -> None:
    moved(tiny_simbert("cls"), 0).save_pretrained(tmp_path / "tuned")
    moved(tiny_simbert(), 1).save_pretrained(tmp_path / "start")
    config = tmp_path / "start" / "config.json"
    config.write_text(config.read_text().replace('"sentence_pooling": "mean",', ""))
    flags = ["--models", str(tmp_path / "start"), str(tmp_path / "tuned")]
    with pytest.raises(
        ValueError, match=r"start and .*tuned have different poolings, mean and cls"
    ):
        main([*flags, f"--output_dir={tmp_path / 'out'}"])
    main([*flags, f"--output_dir={tmp_path / 'out'}", "--pooling=cls"])
    assert SimBert.from_pretrained(tmp_path / "out").config.sentence_pooling == "cls"


@pytest.mark.parametrize("weights", [[1.0], [1.0, 0.0], [1.0, -0.5], [1.0, float("nan")]])
def test_odd_weights_are_named(weights: list[float]) -> None:
    with pytest.raises(
        ValueError, match=r"2 models but weights .*: give one number above 0 for each"
    ):
        average_models([tiny_simbert(), tiny_simbert()], weights)


def test_models_that_do_not_fit_are_named() -> None:
    model = tiny_simbert()
    with pytest.raises(ValueError, match="Averaging needs at least two models"):
        average_models([model])
    with pytest.raises(ValueError, match=r"different architectures or sizes: bert\.encoder"):
        average_models([model, tiny_simbert(num_hidden_layers=3)])
    unigram = unigram_tokenizer()
    other = tiny_simbert(tokenizer=unigram, vocab_size=model.config.vocab_size)
    with pytest.raises(ValueError, match="different vocabularies"):
        average_models([model, other])
    message = "have different poolings, mean and cls: .*--pooling"
    with pytest.raises(ValueError, match=message):
        average_models([model, tiny_simbert("cls")])
    white = tiny_simbert()
    whiten(white, [*WORDS, *TEXTS], 4)
    with pytest.raises(ValueError, match="is whitened: average first, then whiten"):
        average_models([model, white])
