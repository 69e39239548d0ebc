"""Layers whose queries, keys and values come of one product, with a stand-in for the kernel."""

from __future__ import annotations

import copy
import pickle
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import BertConfig

from simbert_hf.collators import PairCollator
from simbert_hf.modeling.encoder import SentenceEncoder
from simbert_hf.objectives import SimBertObjective
from simbert_hf.training import fused_attention as module
from simbert_hf.training.compiling import compile_layers
from simbert_hf.training.fused_attention import LONGEST, use_fused_attention
from simbert_hf.training.gradcache import use_gradcache
from tests.tiny import WORDS, tiny_simbert

PAIRS = [
    {"source": " ".join(WORDS[: 1 + 2 * i]), "target": WORDS[i], "group": i, "seed": i}
    for i in range(6)
]


def stand_in(
    parts: Tensor, mask: Tensor, seed: Tensor | None, scale: float, dropout: float
) -> Tensor:
    """Attend as the kernel is to."""
    q, k, v = parts.permute(2, 0, 3, 1, 4)
    found = scaled_dot_product_attention(q, k, v, mask, dropout_p=dropout, scale=scale)
    return found.transpose(1, 2)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let every layer under a mask attend by the stand-in, and count them."""
    found: list[int] = []
    monkeypatch.setattr(module, "fits", lambda layer, hidden, mask: mask is not None)
    monkeypatch.setattr(
        module, "fused_attention", lambda *given: found.append(0) or stand_in(*given)
    )
    return found


def learnt(model) -> list[Tensor]:
    """Take a step on a batch; return loss and gradients."""
    torch.manual_seed(0)
    model.zero_grad()
    loss = SimBertObjective()(model, PairCollator(model.rows, 24)(PAIRS)).total
    loss.backward()
    return [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


@pytest.mark.filterwarnings("ignore:`gradient_checkpointing_enable` is deprecated")
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("how", ["plain", "checkpointing", "gradcache"])
def test_a_layer_learns_as_by_its_own_forward(calls, how, dropout) -> None:
    plain = tiny_simbert(
        attention_probs_dropout_prob=0.0, hidden_dropout_prob=dropout, initializer_range=0.2
    ).train()
    model = copy.deepcopy(plain)
    use_fused_attention(model)
    for one in (plain, model):
        if how == "checkpointing":
            one.gradient_checkpointing_enable()
        elif how == "gradcache":
            use_gradcache(one, 5)
    for ours, theirs in zip(learnt(model), learnt(plain), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert len(calls) >= model.config.num_hidden_layers


def rows(length: int = 30, dtype: torch.dtype = torch.float16, device: str = "cuda") -> Any:
    """Stand for hidden states, or for a mask, on a GPU."""
    kind = SimpleNamespace(type=device)
    return SimpleNamespace(device=kind, dtype=dtype, shape=(4, length, 32))


def test_the_kernel_is_for_short_rows_in_half_precision_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny_simbert(hidden_size=64)  # heads of 16
    layer = model.bert.encoder.layer[0].attention.self
    mask = torch.zeros(1, 1, 30, 30)
    assert module.fits(layer, rows(), mask)
    assert module.fits(layer, rows(LONGEST), torch.zeros(4, 1, LONGEST, LONGEST))
    longer = torch.zeros(1, 1, LONGEST + 1, LONGEST + 1)
    for hidden, other in (
        (rows(LONGEST + 1), longer), (rows(), None), (rows(), mask.bool()),
        (rows(), torch.zeros(1, 4, 30, 30)), (rows(), torch.zeros(1, 1, 1, 30)),
        (rows(dtype=torch.float32), mask), (rows(device="cpu"), mask),
    ):  # fmt: skip
        assert not module.fits(layer, hidden, other)
    assert not module.fits(tiny_simbert().bert.encoder.layer[0].attention.self, rows(), mask)
    with monkeypatch.context() as patch:  # no autocast on a GPU that is not there
        patch.setattr(torch, "is_autocast_enabled", lambda kind: kind == "cuda")
        patch.setattr(torch, "get_autocast_dtype", lambda kind: torch.bfloat16)
        assert module.fits(layer, rows(dtype=torch.float32), mask)
    model.set_attn_implementation("eager")
    assert not module.fits(layer, rows(), mask)


@pytest.mark.parametrize(
    ("length", "size", "warps"),
    [(1, 16, 2), (16, 16, 2), (17, 32, 2), (33, 64, 4), (64, 64, 4), (65, 128, 8), (128, 128, 8)],
)
def test_a_kernel_holds_the_next_power_of_two(length: int, size: int, warps: int) -> None:
    found = module.constants(torch.zeros(2, length, 3, 4, 16, dtype=torch.float16), 0.1)
    assert found == {
        "SIZE": size, "DEPTH": 16, "DROPS": True, "PRECISION": "tf32", "num_warps": warps,
    }  # fmt: skip
    exact = module.constants(torch.zeros(2, length, 3, 4, 16), 0.0)
    assert (exact["DROPS"], exact["PRECISION"]) == (False, "ieee")


def test_writing_with_a_cache_goes_the_layers_own_way(calls) -> None:
    plain = tiny_simbert()
    model = copy.deepcopy(plain)
    use_fused_attention(model)
    assert model.gen_synonyms("a cat sat", n=5) == plain.gen_synonyms("a cat sat", n=5)


def test_copies_run_their_own_weights_and_pickles_are_whole(calls) -> None:
    model = tiny_simbert()
    use_fused_attention(model)
    before = model.encode(WORDS[:3])
    other = copy.deepcopy(model)
    pickled = pickle.loads(pickle.dumps(model))
    with torch.no_grad():
        model.bert.encoder.layer[0].attention.self.key.weight.mul_(5)
    for one in (other, pickled):
        assert abs(one.encode(WORDS[:3]) - before).max() < 1e-6
    assert abs(model.encode(WORDS[:3]) - before).max() > 1e-4


def test_layers_that_are_no_plain_linear_ones_keep_their_way(calls) -> None:
    class Adapted(torch.nn.Linear):
        """A layer with more to it."""

    model = tiny_simbert()
    size = model.config.hidden_size
    model.bert.encoder.layer[0].attention.self.query = Adapted(size, size)
    use_fused_attention(model)
    model(input_ids=torch.tensor([[5, 6]]))
    assert len(calls) == model.config.num_hidden_layers - 1


def test_other_encoders_are_left_alone() -> None:
    encoder = SentenceEncoder(BertConfig(vocab_size=9, hidden_size=8, num_attention_heads=2,
                                         num_hidden_layers=1, sentence_pooling="mean"))  # fmt: skip
    use_fused_attention(encoder)
    assert not [module for module in encoder.modules() if "forward" in vars(module)]


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0")
def test_compiled_layers_learn_so_too(calls, monkeypatch) -> None:
    monkeypatch.setattr(module, "fused_attention", stand_in)
    torch._dynamo.reset()
    plain = tiny_simbert(attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0).train()
    model = copy.deepcopy(plain)
    use_fused_attention(model)
    compile_layers(model, backend="eager")
    for ours, theirs in zip(learnt(model), learnt(plain), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    torch._dynamo.reset()
