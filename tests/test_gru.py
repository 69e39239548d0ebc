from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from simbert_hf.encoders.loader import load_sentence_transformer
from simbert_hf.gru import CharGru, CharGruConfig, char_tokenizer
from simbert_hf.modeling.averaging import average_models
from simbert_hf.modeling.encoder import SentenceEncoder
from tests.naive import naive_gru
from tests.tiny import tiny_simbert

WIDE = {chr(i): chr(i + 0xFEE0) for i in range(33, 127)} | {" ": "\u3000"}
TEXTS = ["How can I reset it?", "reset MY".translate(str.maketrans(WIDE)), "密码", "a" * 12]


def tiny_gru(**config: object) -> CharGru:
    torch.manual_seed(0)
    options = {"min_count": 1, "embedding_size": 6, "hidden_size": 5, "max_length": 20}
    return CharGru.for_texts(TEXTS, **options | config).eval()


def test_full_width_and_upper_case_are_folded_and_rare_characters_unknown() -> None:
    tokenizer = char_tokenizer(["AB a".translate(str.maketrans(WIDE)), "b 。"], min_count=2)
    assert tokenizer.get_vocab().keys() == {"[PAD]", "[UNK]", "a", "b", " "}
    assert tokenizer(f"b{WIDE['A']}。\n ")["input_ids"] == [
        tokenizer.get_vocab()[token] for token in ("b", "a", "[UNK]", "[UNK]", " ")
    ]
    with pytest.raises(ValueError, match="No character occurs 9 times"):
        char_tokenizer(["ab"], min_count=9)


@pytest.mark.parametrize("mask_padding", [True, False])
def test_vectors_equal_a_gru_written_out(mask_padding: bool) -> None:
    model = tiny_gru(mask_padding=mask_padding)
    found = model.encode(TEXTS, normalize_embeddings=False)
    for text, vector in zip(TEXTS, found, strict=True):
        ids = model.tokenizer(text)["input_ids"]
        ids = ids if mask_padding else ids + [0] * (20 - len(ids))  # the article's program
        expected = naive_gru(model.state_dict(), ids).numpy()
        assert np.abs(vector - expected).max() < 1e-6
        assert np.abs(expected).max() > 0.05


@pytest.mark.parametrize("mask_padding", [True, False])
def test_a_vector_does_not_depend_on_its_batch(mask_padding: bool) -> None:
    model = tiny_gru(mask_padding=mask_padding)
    alone = np.stack([model.encode(text) for text in TEXTS])
    assert np.abs(model.encode(TEXTS) - alone).max() < 1e-6
    assert np.abs(model.encode(TEXTS, batch_size=2) - alone).max() < 1e-6


def test_only_so_many_characters_are_read() -> None:
    model = tiny_gru(max_length=4)
    with pytest.warns(UserWarning, match="more than 4 tokens were cut"):
        assert np.array_equal(model.encode("reset"), model.encode("rese"))


@pytest.mark.parametrize("mask_padding", [True, False])
def test_what_is_saved_loads_here_and_in_a_sentence_transformer(
    tmp_path: Path, mask_padding: bool
) -> None:
    model = tiny_gru(mask_padding=mask_padding)
    expected = model.encode(TEXTS)
    model.save_pretrained(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    loaded = CharGru.from_pretrained(tmp_path)
    assert loaded.config.mask_padding == mask_padding
    assert np.array_equal(loaded.encode(TEXTS), expected)
    transformer = load_sentence_transformer(str(tmp_path))
    assert np.abs(transformer.encode(TEXTS) - expected).max() < 1e-5
    assert (
        np.abs(transformer.encode(TEXTS[0], prompt="Q") - loaded.encode("Q" + TEXTS[0])).max()
        < 1e-5
    )
    assert transformer.get_embedding_dimension() == 5
    transformer.save(str(tmp_path / "saved"), create_model_card=False)
    assert np.array_equal(CharGru.from_pretrained(tmp_path / "saved").encode(TEXTS), expected)


def test_other_and_broken_checkpoints_are_refused(tmp_path: Path) -> None:
    tiny_simbert().save_pretrained(tmp_path / "bert")
    with pytest.raises(ValueError, match="is a 'bert' checkpoint, not a char_gru"):
        CharGru.from_pretrained(tmp_path / "bert")
    model = tiny_gru()
    weights = {k: v for k, v in model.state_dict().items() if k != "gru.bias_hh_l0"}
    model.save_pretrained(tmp_path / "gru", state_dict=weights)
    assert "gru.bias_hh_l0" not in load_file(tmp_path / "gru" / "model.safetensors")
    with pytest.raises(ValueError, match=r"missing or mismatched: gru\.bias_hh_l0"):
        CharGru.from_pretrained(tmp_path / "gru")
    with pytest.raises(ValueError, match="This CharGru has no tokenizer"):
        CharGru(CharGruConfig(vocab_size=9)).encode("a")
    with pytest.raises(ValueError, match="text 1 is empty"):
        model.encode(["a", " "])
    with pytest.raises(ValueError, match="text 1 is empty"):
        model.sentence_transformer().encode(["", "a"])
    with pytest.raises(OSError, match="it is not a directory with a config"):
        CharGru.from_pretrained(tmp_path / "gur")
    with pytest.raises(ValueError, match=r"Python \(CharGru\.from_pretrained\) and in scripts"):
        SentenceEncoder.from_pretrained(tmp_path / "gru")


def test_noise_finds_the_embeddings() -> None:
    model = CharGru.for_texts(["a cat"], min_count=1)
    assert model.get_input_embeddings() is model.embedding


def test_grus_of_one_vocabulary_are_averaged() -> None:
    torch.manual_seed(1)
    models = [tiny_gru() for _ in range(2)]
    average = average_models(models)
    for name, weight in average.named_parameters():
        both = [dict(model.named_parameters())[name] for model in models]
        assert torch.allclose(weight, (both[0] + both[1]) / 2)


def test_the_tokenizer_must_fit_the_weights(tmp_path: Path) -> None:
    """Otherwise a character beyond the embeddings is an IndexError when it is first met."""
    CharGru.for_texts(["a cat sat"], min_count=1).save_pretrained(tmp_path)
    char_tokenizer(["a cat sat on 7 mats"], min_count=1).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"has no tokenizer that fits its weights"):
        CharGru.from_pretrained(tmp_path)
