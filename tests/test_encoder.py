"""Encoders of other architectures than BERT, tiny and random."""

from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import (
    AutoModel,
    DistilBertConfig,
    FNetConfig,
    PreTrainedTokenizerBase,
    RobertaConfig,
    T5Config,
    T5Model,
    XLNetConfig,
    XLNetTokenizer,
)

from scripts.train_simcse import main
from simbert_hf.modeling.encoder import SentenceEncoder
from tests.tiny import WORDS, losses_of, unigram_tokenizer, wordpiece_tokenizer

TEXTS = ["how can i reset my password?", "the weather is nice today", "cats"]


def xlnet_tokenizer() -> PreTrainedTokenizerBase:
    """``text <sep> <cls>``, padded on the left."""
    specials = ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"]
    pieces = [(f"▁{word}", -3.0) for word in dict.fromkeys(WORDS)]
    letters = [(letter, -8.0) for letter in "▁abcdefghijklmnopqrstuvwxyz?.'"]
    return XLNetTokenizer(
        vocab=[*((s, 0.0) for s in specials), *dict(pieces + letters).items()], unk_id=0
    )


ARCHITECTURES = {
    "roberta": (
        RobertaConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                      intermediate_size=48, max_position_embeddings=42, vocab_size=90),
        unigram_tokenizer,
    ),
    "distilbert": (
        DistilBertConfig(dim=32, n_layers=2, n_heads=4, hidden_dim=48, vocab_size=90,
                         max_position_embeddings=40),
        wordpiece_tokenizer,
    ),
    "xlnet": (
        XLNetConfig(d_model=32, n_layer=2, n_head=4, d_inner=48, vocab_size=90, dropout=0.1),
        xlnet_tokenizer,
    ),
}  # fmt: skip


@pytest.fixture(params=ARCHITECTURES)
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A plain checkpoint, as another tool would have written it."""
    config, build_tokenizer = ARCHITECTURES[request.param]
    model = AutoModel.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.3)
    model.save_pretrained(tmp_path / request.param)
    build_tokenizer().save_pretrained(tmp_path / request.param)
    return tmp_path / request.param


@pytest.mark.parametrize("pooling", ["mean", "cls", "first_last_mean"])
def test_every_loader_agrees(start: Path, tmp_path: Path, pooling: str) -> None:
    model = SentenceEncoder.from_pretrained(start, pooling=pooling).eval()
    together = model.encode(TEXTS)
    alone = np.stack([model.encode(text) for text in TEXTS])
    assert np.abs(together - alone).max() < 1e-5

    inputs = model.loaded_tokenizer()(TEXTS[0], return_tensors="pt")
    plain = AutoModel.from_pretrained(start).eval()(**inputs, output_hidden_states=True)
    hidden = plain.last_hidden_state[0]
    is_cls = inputs["input_ids"][0] == model.tokenizer.cls_token_id
    by_hand = {
        "mean": hidden.mean(0),
        "cls": hidden[is_cls][0],
        "first_last_mean": ((plain.hidden_states[1][0] + hidden) / 2).mean(0),
    }[pooling]
    by_hand = torch.nn.functional.normalize(by_hand, dim=0).detach().numpy()
    assert np.abs(by_hand - together[0]).max() < 1e-5

    model.save_pretrained(tmp_path / "out")
    again = SentenceEncoder.from_pretrained(tmp_path / "out")
    assert again.config.sentence_pooling == pooling
    assert np.abs(again.encode(TEXTS) - together).max() < 1e-6
    theirs = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert np.abs(theirs.encode(TEXTS) - together).max() < 1e-5
    reread = AutoModel.from_pretrained(tmp_path / "out").eval()
    assert type(reread) is type(model.base_model)
    assert torch.allclose(reread(**inputs).last_hidden_state[0], hidden, atol=1e-5)
    output = model(**inputs)
    assert torch.allclose(output.last_hidden_state[0], hidden, atol=1e-5)
    assert output.lm_losses is None
    assert model.encode([]).shape == (0, 32)
    with pytest.raises(ValueError, match="which sends every file"):
        model.save_pretrained(tmp_path / "out", push_to_hub=True)


def test_what_no_vector_depends_on_is_frozen(start: Path) -> None:
    model = SentenceEncoder.from_pretrained(start)
    model.freeze_idle()
    idle = {name for name, weight in model.named_parameters() if not weight.requires_grad}
    assert all(weight.grad is None for weight in model.parameters())
    model(**model.rows.pad(model.rows.sources(TEXTS, 9))).sentence_embedding.sum().backward()
    assert idle == {name for name, weight in model.named_parameters() if weight.grad is None}
    assert any("pooler" in name for name in idle) == (start.name == "roberta")


def test_too_long_a_text_is_cut_alike(start: Path, tmp_path: Path) -> None:
    model = SentenceEncoder.from_pretrained(start)
    text = "the cat " * 30
    if start.name == "xlnet":
        assert model.max_length > 10**9
    else:
        assert model.max_length == 40  # RoBERTa's 42 positions begin behind the padding's
    model.save_pretrained(tmp_path / "out")
    theirs = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    told = pytest.warns(UserWarning, match="more than 40 tokens were cut")
    with nullcontext() if start.name == "xlnet" else told:
        ours = model.encode(text)
    assert np.abs(theirs.encode(text) - ours).max() < 1e-5


@pytest.mark.parametrize(
    "start",
    ["roberta", *(pytest.param(n, marks=pytest.mark.slow) for n in ("distilbert", "xlnet"))],
    indirect=True,
)
def test_the_script_trains_it_and_resumes(start: Path, tmp_path: Path) -> None:
    sentences, sts = tmp_path / "sentences.txt", tmp_path / "sts.tsv"
    texts = [f"{a} {b} cat" for a in WORDS[:8] for b in WORDS[8:14]]
    sentences.write_text("\n".join(texts))
    sts.write_text("\n".join(f"{a}\t{b}\t{i % 6}" for i, (a, b) in enumerate(pairwise(texts))))

    def run(out: Path, *more: str):
        return main([
            f"--model_name_or_path={start}", f"--train_file={sentences}", f"--output_dir={out}",
            f"--sts_file={sts}", "--pooling=cls", "--training_head=true", "--use_cpu",
            "--per_device_train_batch_size=8", "--hidden_dropout=0.05", "--learning_rate=3e-3",
            "--eval_strategy=steps", "--eval_steps=12", "--save_strategy=steps", "--save_steps=12",
            "--logging_steps=1", "--report_to=none", "--disable_tqdm=true",
            "--load_best_model_at_end=false", "--max_steps=24", "--max_length=32", *more,
        ])  # fmt: skip

    trainer = run(tmp_path / "out")
    losses = losses_of(trainer)
    assert sum(losses[-4:]) < 0.9 * sum(losses[:4])
    idle = [n for n, p in trainer.model.named_parameters() if not p.requires_grad]
    unused = ("pooler", "mask_emb", "seg_embed", "r_s_bias")  # XLNet's tokenizer gives no segments
    assert all(any(part in name for part in unused) for name in idle)
    model = SentenceEncoder.from_pretrained(tmp_path / "out")
    assert model.config.sentence_pooling == "cls"
    assert not any("training_head" in name for name in model.state_dict())
    theirs = SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(TEXTS)
    assert np.abs(theirs - model.encode(TEXTS)).max() < 1e-5
    resumed = run(tmp_path / "out", f"--resume_from_checkpoint={tmp_path / 'out/checkpoint-12'}")
    ours, again = model.state_dict(), resumed.model.state_dict()
    assert all(torch.equal(ours[name], again[name].cpu()) for name in ours)


def test_what_it_cannot_do_is_refused(start: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'linear_pooler' is for BERT checkpoints"):
        SentenceEncoder.from_pretrained(start, pooling="linear_pooler")
    flags = [f"--model_name_or_path={start}", f"--output_dir={tmp_path}", "--use_cpu"]
    (tmp_path / "a.txt").write_text("a cat\nthe dog\n")
    flags += [f"--train_file={tmp_path / 'a.txt'}", "--report_to=none"]
    with pytest.raises(ValueError, match="--mlm_weight needs a BERT checkpoint"):
        main([*flags, "--mlm_weight=0.1", "--max_length=32"])
    if start.name == "xlnet":
        with pytest.raises(ValueError, match="'xlnet' model has no attention_probs_dropout_prob"):
            SentenceEncoder.from_pretrained(start, attention_probs_dropout_prob=0.2)
    else:
        model = SentenceEncoder.from_pretrained(start, attention_probs_dropout_prob=0.2)
        config = model.base_model.config
        assert 0.2 in (getattr(config, "attention_dropout", None),
                       getattr(config, "attention_probs_dropout_prob", None))  # fmt: skip
        with pytest.raises(ValueError, match="--max_length 41 is out of range"):
            main([*flags, "--max_length=41"])


@pytest.mark.filterwarnings("ignore:`gradient_checkpointing_enable` is deprecated")
def test_its_layers_are_computed_again_where_the_architecture_can(start: Path) -> None:
    model = SentenceEncoder.from_pretrained(start)
    if start.name == "xlnet":
        with pytest.raises(ValueError, match="does not support"):
            model.gradient_checkpointing_enable()
        return
    ids, mask = torch.ones(2, 3, dtype=torch.long), torch.ones(2, 3, dtype=torch.long)
    gradients = []
    for _ in range(2):
        torch.manual_seed(0)
        model.zero_grad()
        model.train()(ids, mask).sentence_embedding.square().sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
        model.gradient_checkpointing_enable()
    assert all(map(torch.allclose, *gradients))


def test_one_that_reads_no_mask_is_refused() -> None:
    with pytest.raises(ValueError, match="'fnet' model takes no mask"):
        SentenceEncoder(FNetConfig(hidden_size=8, num_hidden_layers=1, sentence_pooling="mean"))


def test_a_decoder_is_refused(tmp_path: Path) -> None:
    T5Model(
        T5Config(vocab_size=60, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)
    ).save_pretrained(tmp_path)
    unigram_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="'t5' model has a decoder"):
        SentenceEncoder.from_pretrained(tmp_path)


def test_a_text_that_it_cannot_read(start: Path) -> None:
    model = SentenceEncoder.from_pretrained(start)
    model.encode(["where is the cat on the mat 怎么"])
    with pytest.warns(UserWarning, match="trained on their language"):
        model.encode(["a cat", "怎么 退款"])
