"""A model cut to some layers and pieces computes what the whole one does with these alone."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer, models
from torch.testing import assert_close
from transformers import AutoModel, AutoModelForMaskedLM, PreTrainedTokenizerFast

from scripts.cut_model import main
from simbert_hf import SimBert
from simbert_hf.modeling.cutting import cut_layers, cut_vocabulary
from tests.tiny import tiny_simbert, unigram_tokenizer, wordpiece_tokenizer

TEXTS = ["how can i reset my password?", "the weather is nice today."]
TOKENIZERS = {"WordPiece": wordpiece_tokenizer, "Unigram": unigram_tokenizer}


def test_only_the_kept_layers_run() -> None:
    """The others do not, as when the encoder is run by hand; `AutoModel` finds as many."""
    model = tiny_simbert(num_hidden_layers=4)
    batch = dict(model.tokenizer(TEXTS, padding=True, return_tensors="pt"))
    batch["token_type_ids"] = torch.zeros_like(batch["input_ids"])
    hidden = model.bert.embeddings(batch["input_ids"], batch["token_type_ids"])
    mask = torch.where(batch["attention_mask"][:, None, None] == 0, float("-inf"), 0.0)
    for number in (0, 3):
        hidden = model.bert.encoder.layer[number](hidden, mask)
        hidden = hidden[0] if isinstance(hidden, tuple) else hidden
    cut_layers(model, [0, 3])
    found = model(**batch).last_hidden_state
    real = batch["attention_mask"].bool()
    assert_close(found[real], hidden[real], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kept", [[], [0, 2], [-1, 0], [1, 0], [1, 1]])
def test_layers_that_cannot_be_kept_are_named(kept: list[int]) -> None:
    with pytest.raises(ValueError, match=r"give some of 0 to 1, in rising order"):
        cut_layers(tiny_simbert(), kept)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_cut_vocabulary_changes_no_text_that_it_covers(kind: str, tmp_path: Path) -> None:
    """Neither tokens, vectors, nor what the LM head says of the kept pieces; and all loaders."""
    whole = tiny_simbert(tokenizer=TOKENIZERS[kind]())
    whole.save_pretrained(tmp_path / "whole")
    model = SimBert.from_pretrained(tmp_path / "whole")
    cut_vocabulary(model, [*TEXTS, "a cat"], min_count=1)
    pieces = model.tokenizer.get_vocab()
    assert model.config.vocab_size == len(pieces) < whole.config.vocab_size
    dropped = {"WordPiece": "dog", "Unigram": "▁dog"}[kind]
    assert dropped in whole.tokenizer.get_vocab()
    assert dropped not in pieces
    for text in TEXTS:
        assert model.tokenizer(text).tokens() == whole.tokenizer(text).tokens()
    assert_close(model.encode(TEXTS), whole.encode(TEXTS), atol=1e-6, rtol=0)

    old = whole.tokenizer.get_vocab()
    hidden = torch.randn(3, 32)
    kept = [old[piece] for piece in sorted(pieces, key=pieces.__getitem__)]
    assert_close(model.lm_logits(hidden), whole.lm_logits(hidden)[:, kept])

    model.save_pretrained(tmp_path / "cut")
    assert_close(
        SentenceTransformer(str(tmp_path / "cut")).encode(TEXTS),
        model.encode(TEXTS),
        atol=1e-5,
        rtol=0,
    )
    loaded = AutoModelForMaskedLM.from_pretrained(tmp_path / "cut")
    assert loaded.get_output_embeddings().weight is loaded.get_input_embeddings().weight
    assert AutoModel.from_pretrained(tmp_path / "cut").config.pad_token_id == model.rows.pad_id


def test_a_cut_model_writes_as_it_does_once_loaded(tmp_path: Path) -> None:
    """Even without the first layer, by which transformers' caches count tokens."""
    model = tiny_simbert()
    cut_layers(model, [1])
    model.save_pretrained(tmp_path)
    options = {"n": 5, "k": 3, "copying": 0, "repeats": True}
    loaded = SimBert.from_pretrained(tmp_path)
    assert model.gen_synonyms(TEXTS, **options) == loaded.gen_synonyms(TEXTS, **options)


def test_an_untied_head_is_cut() -> None:
    whole = tiny_simbert(tie_word_embeddings=False)
    with torch.no_grad():
        whole.get_output_embeddings().weight.normal_()
    model = deepcopy(whole)
    cut_vocabulary(model, TEXTS, min_count=1)
    old, new = whole.tokenizer.get_vocab(), model.tokenizer.get_vocab()
    kept, hidden = [old[piece] for piece in sorted(new, key=new.__getitem__)], torch.randn(3, 32)
    assert_close(model.lm_logits(hidden), whole.lm_logits(hidden)[:, kept])


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_added_tokens_and_the_ends_of_long_texts_count(kind: str) -> None:
    """Added tokens need not be pieces, and a tokenizer.json may say that texts are cut."""
    tokenizer = TOKENIZERS[kind]()
    tokenizer.add_tokens(["<name>"])
    whole = tokenizer("the <name> is nice today").tokens()
    tokenizer.backend_tokenizer.enable_truncation(4)
    model = tiny_simbert(tokenizer=tokenizer)
    cut_vocabulary(model, [*TEXTS, "a cat"], min_count=1)
    assert model.tokenizer("the <name> is nice today").tokens() == whole
    assert model.tokenizer.convert_tokens_to_ids("<name>") == model.config.vocab_size - 1


def test_rare_pieces_go_but_characters_stay() -> None:
    """What loses its piece is written in characters, not as an unknown token."""
    model = tiny_simbert(tokenizer=unigram_tokenizer())
    cut_vocabulary(model, ["the cat", "the cat", "the dog"], min_count=2)
    assert model.tokenizer.tokenize("the dog") == ["▁the", "▁", "d", "o", "g"]


def test_other_tokenizers_are_refused() -> None:
    vocabulary = {"<unk>": 0, "<pad>": 1, "<s>": 2, "</s>": 3, "a": 4}
    names = {"unk_token": "<unk>", "pad_token": "<pad>", "cls_token": "<s>", "sep_token": "</s>"}
    bpe = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>"))
    model = tiny_simbert(tokenizer=PreTrainedTokenizerFast(tokenizer_object=bpe, **names))
    with pytest.raises(ValueError, match="BPE: only Unigram and WordPiece"):
        cut_vocabulary(model, ["a"])


def test_the_script_cuts_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_simbert().save_pretrained(tmp_path / "whole")
    (tmp_path / "a.txt").write_text("\n".join(TEXTS))
    (tmp_path / "b.jsonl").write_text('{"text": "a dog ran", "synonyms": ["dog ran"]}')
    flags = ["--model_name_or_path", str(tmp_path / "whole"), "--output_dir", str(tmp_path / "cut")]
    with pytest.raises(SystemExit):
        main(flags)
    assert "there is nothing to cut" in capsys.readouterr().err
    files = [str(tmp_path / "a.txt"), str(tmp_path / "b.jsonl")]
    main([*flags, "--layers", "1", "--text_files", *files, "--min_count", "1"])
    assert "1 layers, " in capsys.readouterr().out
    model = SimBert.from_pretrained(tmp_path / "cut")
    assert len(model.bert.encoder.layer) == 1
    assert "dog" in model.tokenizer.get_vocab()
    assert "cat" not in model.tokenizer.get_vocab()
