"""The models that ship: small, alike in every loader, and able to write what they then find."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoModelForMaskedLM

from simbert_hf import CHINESE_MODEL, DEFAULT_MODEL, SimBert, gen_synonyms
from simbert_hf.generation.synonyms import default_models

TEXTS = {
    DEFAULT_MODEL: ["how can i reset my password?", "where is my card?", "the weather is nice"],
    CHINESE_MODEL: ["怎么重置密码？", "我的快递三天没动了，能帮我查一下吗？", "今天天气真好。"],
}
MODELS = pytest.mark.parametrize("path", TEXTS, ids=lambda path: Path(path).name)


@MODELS
def test_every_loader_agrees(path: str) -> None:
    model, texts = SimBert.from_pretrained(path), TEXTS[path]
    vectors = model.encode(texts)
    theirs = SentenceTransformer(path, device="cpu").encode(texts)
    assert np.abs(vectors - theirs).max() < 1e-5

    batch = model.rows.pad(model.rows.sources(texts, 64))
    with torch.inference_mode():
        hidden = AutoModel.from_pretrained(path)(**batch).last_hidden_state
        logits = AutoModelForMaskedLM.from_pretrained(path)(**batch).logits
        own = model.lm_logits(model(**batch).last_hidden_state)
    real = batch["attention_mask"].bool()
    means = torch.stack([row[mask].mean(0) for row, mask in zip(hidden, real, strict=True)])
    means = torch.nn.functional.normalize(means)
    assert np.abs(vectors - means.numpy()).max() < 1e-5
    assert (logits - own)[real].abs().max() < 1e-3


@MODELS
def test_it_is_small_and_in_half_precision(path: str) -> None:
    size = sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())
    assert size < 48e6
    assert next(SimBert.from_pretrained(path).parameters()).dtype == torch.float32


@MODELS
def test_it_finds_the_texts_of_what_it_writes(path: str) -> None:
    model, texts = SimBert.from_pretrained(path), TEXTS[path]
    written = model.gen_synonyms(texts, n=20, k=3)
    assert all(len(some) == 3 and texts[i] not in some for i, some in enumerate(written))
    flat = [one for some in written for one in some]
    nearest = (model.encode(flat) @ model.encode(texts).T).argmax(1)
    assert nearest.tolist() == [0] * 3 + [1] * 3 + [2] * 3


def test_chinese_texts_get_the_chinese_model_unless_another_is_named() -> None:
    text = "明天上午10点的会议改到3号会议室了。"
    written = gen_synonyms(text, n=30, k=3)
    assert written == gen_synonyms(text, n=30, k=3, model="simbert-e5-zh")
    assert all("10" in one and "3" in one for one in written)


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (["10086", "怎么退货", "😀"], [CHINESE_MODEL] * 3),
        (["用iPhone怎么拍照", "iPhone 15 Pro Max 价格", "超の赞"], [CHINESE_MODEL] * 3),
        (["等等・・・好看吗"], [CHINESE_MODEL]),
        (["怎么退货", "how can i return it?"], [CHINESE_MODEL, DEFAULT_MODEL]),
        (["東京に行きたい", "비밀번호를 잊었어요", "10086"], [DEFAULT_MODEL] * 3),
        (["10086"], [DEFAULT_MODEL]),
        (["Li Na (李娜) Wins Australian Open"], [DEFAULT_MODEL]),
    ],
)
def test_the_default_depends_on_the_language(texts: list[str], names: list[str]) -> None:
    assert default_models(texts) == names


def test_each_text_of_a_mixed_list_gets_its_own_model() -> None:
    texts = ["怎么退货？", "how can i return it?", "怎么换货？"]
    assert gen_synonyms(texts, n=5, k=2) == [gen_synonyms(text, n=5, k=2) for text in texts]


def test_doubled_characters_of_names_are_doubled_again() -> None:
    written = gen_synonyms(["张婷婷今天没来上课", "买买提在哪个班？"], n=10, k=3)
    assert [len(texts) for texts in written] == [3, 3]
    assert all("张婷婷" in text for text in written[0])
    assert all("买买提" in text for text in written[1])
    as_written = gen_synonyms("买买提在哪个班？", n=10, k=3, copying=0)
    assert any("买买提" not in text for text in as_written)


def test_other_names_and_words_are_not_doubled() -> None:
    written = gen_synonyms(["琳琳姐姐生日快乐", "艳艳的花真好看"], n=20)
    assert len(written[0]) > 3 < len(written[1])
    assert not [text for text in written[0] if "李琳琳" in text]
    assert not [text for text in written[1] if "艳艳情" in text]
