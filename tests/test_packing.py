"""Packing: what the padded model computes, out of real tokens alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from transformers import BertConfig

from scripts.train_simbert import main
from simbert_hf import SimBert
from simbert_hf.collators import SimCseCollator
from simbert_hf.gru import CharGru, CharGruConfig
from simbert_hf.masking import prefix_mask
from simbert_hf.modeling.architectures import (
    FactorisedConfig,
    FactorisedSimBert,
    RotaryConfig,
    RotarySimBert,
)
from simbert_hf.modeling.encoder import SentenceEncoder
from simbert_hf.objectives import SimCseObjective
from simbert_hf.pooling import POOLINGS
from simbert_hf.training.compiling import compile_layers
from simbert_hf.training.gradcache import use_gradcache
from simbert_hf.training.packing import use_packing
from tests.test_compiling import losses
from tests.test_gradcache import PAIRS, assert_equal, joint_batch, step
from tests.tiny import WORDS, save_tiny_simbert, tiny_simbert


def packed(**config) -> SimBert:
    model = tiny_simbert(attention_probs_dropout_prob=0.0, **config)
    use_packing(model)
    return model


def rows(n: int, length: int = 20) -> dict[str, torch.Tensor]:
    """Ragged rows; some have no target, one is full, one padded on the left."""
    torch.manual_seed(n)
    ends = torch.randint(2, length + 1, (n, 1))
    ends[0] = length
    columns = torch.arange(length)
    real = columns < ends
    segments = real & (columns >= ends // 2) & (torch.arange(n) % 3 > 0)[:, None]
    real[-1], segments[-1] = real[-1].flip(0), columns > length - 2
    ids = torch.randint(5, 40, (n, length)) * real
    return {
        "input_ids": ids, "attention_mask": real.long(), "token_type_ids": segments.long()
    }  # fmt: skip


@pytest.mark.parametrize("pooling", POOLINGS)
def test_outputs_are_those_among_padding(pooling: str) -> None:
    batch, model = rows(40), packed(pooling=pooling).double()
    plain = tiny_simbert(pooling).double()
    places = batch["attention_mask"].flatten().nonzero().squeeze(1)
    wanted = plain(**batch, lm_positions=places)
    found = model(**batch, lm_positions=places)
    torch.testing.assert_close(found.sentence_embedding, wanted.sentence_embedding)
    torch.testing.assert_close(found.logits, wanted.logits)
    real = batch["attention_mask"].bool()
    torch.testing.assert_close(found.last_hidden_state[real], wanted.last_hidden_state[real])
    assert not found.last_hidden_state[~real].any()
    positions = (batch["attention_mask"].cumsum(1) - 1).clamp(min=0)
    wanted, found = (m(**batch, position_ids=positions) for m in (plain, model))
    torch.testing.assert_close(found.sentence_embedding, wanted.sentence_embedding)


@pytest.mark.parametrize("size", [0, 4])
def test_gradients_are_those_among_padding(size: int) -> None:
    plain, model = tiny_simbert().double(), packed().double()
    if size:
        use_gradcache(model, size)
    objective, batch = joint_batch(plain)
    assert (batch["attention_mask"] == 0).any()
    assert_equal(step(model, objective, batch), step(plain, objective, batch))
    objective, batch = SimCseObjective(), SimCseCollator(model.rows)(PAIRS)
    assert_equal(step(model, objective, batch), step(plain, objective, batch))


def test_single_precision_is_kept() -> None:
    plain, model = tiny_simbert(), packed()
    found, wanted = (m(**rows(40)).sentence_embedding for m in (model, plain))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)


def test_another_row_changes_nothing() -> None:
    batch, model = rows(40), packed()
    before = model(**batch)
    batch["input_ids"][7] = 9  # as long as before, so that all stay at their places
    after = model(**batch)
    moved = (after.last_hidden_state != before.last_hidden_state).flatten(1).any(dim=1)
    assert moved.nonzero().tolist() == [[7]]


def test_only_real_tokens_pass_through_the_layers() -> None:
    seen: list[int] = []
    model = packed()
    model.bert.encoder.layer[0].intermediate.register_forward_pre_hook(
        lambda _module, inputs: seen.append(inputs[0].shape[:-1].numel())
    )
    model(**rows(40))
    assert seen == [int(rows(40)["attention_mask"].sum())]


def test_dropout_of_attention_stays() -> None:
    model = tiny_simbert(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.5).train()
    use_packing(model)
    batch = rows(4)
    once, twice = (model(**batch).sentence_embedding for _ in range(2))
    assert not torch.allclose(once, twice)


@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable. is deprecated:FutureWarning")
def test_gradient_checkpointing_changes_nothing() -> None:
    model = packed(hidden_dropout_prob=0.3).double().train()
    objective, batch = joint_batch(model)
    wanted = step(model, objective, batch)
    model.gradient_checkpointing_enable()
    assert_equal(step(model, objective, batch), wanted, tolerance=1e-12)


def test_without_gradient_nothing_changes(tmp_path: Path) -> None:
    plain, model = tiny_simbert(), packed()
    assert (model.encode(WORDS) == plain.encode(WORDS)).all()
    options = {"n": 3, "k": 3, "seed": 1}
    assert model.gen_synonyms("a cat", **options) == plain.gen_synonyms("a cat", **options)
    batch = rows(4)
    mask = prefix_mask(batch["token_type_ids"], batch["attention_mask"], torch.float32)
    ready = {"input_ids": batch["input_ids"], "attention_mask": mask}
    assert torch.equal(model(**ready).last_hidden_state, plain(**ready).last_hidden_state)
    two_d = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    found, wanted = (m.bert(**two_d).last_hidden_state for m in (model, plain))
    assert torch.equal(found, wanted)
    for kind, name in ((model, "packed"), (plain, "plain")):
        kind.save_pretrained(tmp_path / name)
    config = json.loads((tmp_path / "packed" / "config.json").read_text())
    assert config | {"attention_probs_dropout_prob": 0.1} == json.loads(
        (tmp_path / "plain" / "config.json").read_text()
    )


def test_electra_is_packed_and_others_are_refused() -> None:
    sizes = {
        "vocab_size": 47, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 48, "initializer_range": 0.3,
    }  # fmt: skip
    torch.manual_seed(0)
    model = FactorisedSimBert(FactorisedConfig(embedding_size=16, **sizes)).double().eval()
    batch = rows(9)
    places = torch.arange(5)
    wanted = model(**batch, lm_positions=places)
    use_packing(model)
    found = model(**batch, lm_positions=places)
    torch.testing.assert_close(found.sentence_embedding, wanted.sentence_embedding)
    torch.testing.assert_close(found.logits, wanted.logits)
    rotary = RotarySimBert(RotaryConfig(**sizes))
    encoder = SentenceEncoder(BertConfig(sentence_pooling="mean", **sizes))
    gru = CharGru(CharGruConfig(vocab_size=47, hidden_size=8))
    for other in (rotary, encoder, gru):
        with pytest.raises(ValueError, match=f"{type(other).__name__} has its own attention"):
            use_packing(other)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0")
@pytest.mark.filterwarnings("ignore:.*Function.* should not be instantiated:DeprecationWarning")
def test_one_compiled_graph_serves_every_length() -> None:
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("eager")
    model, plain = packed(num_hidden_layers=4), tiny_simbert(num_hidden_layers=4)
    compile_layers(model, backend=counter)
    assert losses(model) == pytest.approx(losses(plain), abs=1e-5)
    use_gradcache(model, 4)
    losses(model)
    assert counter.frame_count == 1
    torch._dynamo.reset()


def train(tmp_path: Path, *more: str) -> list[dict[str, float]]:
    save_tiny_simbert(tmp_path / "start")
    found = [{"text": p["source"], "synonyms": [p["target"]]} for p in PAIRS]
    (tmp_path / "groups.jsonl").write_text("\n".join(map(json.dumps, found)))
    trainer = main(
        [f"--model_name_or_path={tmp_path / 'start'}", "--use_cpu", "--max_steps=4",
         f"--train_file={tmp_path / 'groups.jsonl'}", f"--output_dir={tmp_path / 'out'}",
         "--per_device_train_batch_size=3", "--validation_groups=2", "--save_strategy=no",
         "--report_to=none", "--disable_tqdm=true", "--max_length=24", "--hidden_dropout=0",
         "--attention_dropout=0", "--learning_rate=0.01", "--mlm_weight=0.5", "--logging_steps=1",
         *more]
    )  # fmt: skip
    names = ("loss", "seq2seq", "similarity", "mlm", "eval_loss", "grad_norm")
    return [{n: v for n, v in line.items() if n in names} for line in trainer.state.log_history]


@pytest.mark.parametrize(
    "more", [[], pytest.param(["--gradcache_batch_size=4"], marks=pytest.mark.slow)]
)
def test_a_run_has_the_losses_of_one_with_padding(tmp_path: Path, more: list[str]) -> None:
    wanted, found = train(tmp_path), train(tmp_path, "--packing", *more)
    assert sum("loss" in line for line in wanted) == 4
    assert any("eval_loss" in line for line in wanted)
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("default")  # torch itself warns: of TF32, of its own deprecations
@pytest.mark.parametrize("compiled", [False, True])
def test_gpu_gradients_are_those_among_padding(compiled) -> None:
    sizes = {"hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 128}
    plain = tiny_simbert(initializer_range=0.05, **sizes).cuda()
    model = packed(initializer_range=0.05, **sizes).cuda()
    if compiled:
        compile_layers(model)
    found = {}
    for name, module in (("plain", plain), ("packed", model)):
        for n in (40, 7, 200):  # the last one's gradients are compared
            batch = {key: values.cuda() for key, values in rows(n).items()}
            module.zero_grad()
            vectors = module(**batch).sentence_embedding
            (vectors.float() * torch.linspace(-1, 1, vectors.shape[1]).cuda()).sum().backward()
        found[name] = vectors.float(), module.bert.embeddings.word_embeddings.weight.grad.float()
    for ours, theirs in zip(found["packed"], found["plain"], strict=True):
        assert (ours - theirs).abs().max() < 1e-4 * theirs.abs().max()
