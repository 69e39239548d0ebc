"""The chunked token loss against PyTorch's own cross-entropy of all logits."""

from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from simbert_hf import losses
from simbert_hf import token_loss as module
from simbert_hf.collators import PairCollator
from simbert_hf.objectives import SimBertObjective
from simbert_hf.token_loss import token_loss
from tests.tiny import tiny_simbert

TOKENS, SIZE, VOCABULARY = 23, 8, 50


@pytest.fixture(params=[5 * VOCABULARY, VOCABULARY - 1, 2**22])
def _chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five tokens a chunk (which leaves a last, shorter one), one, and all."""
    monkeypatch.setattr(losses, "CPU_CHUNK", request.param)


def inputs(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    shapes = ((TOKENS, SIZE), (VOCABULARY, SIZE), (VOCABULARY,))
    hidden, weight, bias = (torch.randn(s, dtype=dtype, requires_grad=True) for s in shapes)
    labels = torch.randint(VOCABULARY, (TOKENS,))
    labels[:3] = 7  # a token that is right several times
    return hidden, weight, bias, labels


def plain(hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(hidden, weight, bias).float(), labels, reduction="sum")


@pytest.mark.usefixtures("_chunks")
def test_value_and_gradients_are_cross_entropys() -> None:
    *tensors, labels = inputs()
    logits = tensors[0] @ tensors[1].T + tensors[2]
    wanted = F.cross_entropy(logits, labels, reduction="sum")
    found = token_loss(*tensors, labels)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-11)
    for ours, theirs in zip(
        torch.autograd.grad(found / 7, tensors), torch.autograd.grad(wanted / 7, tensors),
        strict=True,
    ):  # fmt: skip
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize("trained", [(0,), (1,), (2,), (0, 1), (0, 1, 2)])
def test_gradcheck_with_any_part_frozen(trained: tuple[int, ...]) -> None:
    *tensors, labels = inputs()
    for i, tensor in enumerate(tensors):
        tensor.requires_grad_(i in trained)
    assert torch.autograd.gradcheck(partial(token_loss, labels=labels), tensors, fast_mode=True)


def test_backward_twice_gives_the_same() -> None:
    *tensors, labels = inputs()
    loss = token_loss(*tensors, labels)
    once = torch.autograd.grad(loss, tensors, retain_graph=True)
    twice = torch.autograd.grad(loss, tensors)
    assert all(torch.equal(a, b) for a, b in zip(once, twice, strict=True))


def test_no_token_costs_nothing_but_takes_part() -> None:
    hidden, weight, bias, labels = inputs()
    loss = token_loss(hidden[:0], weight, bias, labels[:0])
    loss.backward()
    assert loss.item() == 0
    assert not weight.grad.any()  # a gradient, as DDP waits for one
    assert not bias.grad.any()


def test_no_gradient_is_formed_without_need(monkeypatch: pytest.MonkeyPatch) -> None:
    *tensors, labels = inputs()
    monkeypatch.setattr(module, "_add_gradients", None)
    with torch.no_grad():
        assert not token_loss(*tensors, labels).requires_grad
    assert token_loss(*(t.detach() for t in tensors), labels).isfinite()


@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize("autocast", [True, False])
def test_bfloat16_is_as_near_the_truth_as_plain_cross_entropy(autocast: bool) -> None:
    dtype = torch.float32 if autocast else torch.bfloat16
    *tensors, labels = inputs(dtype)
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    truth = torch.autograd.grad(token_loss(*exact, labels), exact)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        found, reference = token_loss(*tensors, labels), plain(*tensors, labels)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(reference.item(), rel=1e-3)
    both = [torch.autograd.grad(loss, tensors) for loss in (found, reference)]
    for ours, theirs, right in zip(*both, truth, strict=True):
        assert ours.dtype == dtype
        assert (ours - right).norm() <= 1.2 * (theirs - right).norm() + 1e-6


@pytest.mark.parametrize("autocast", [True, False])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_one_label_of_many_tokens_overflows_nothing(dtype: torch.dtype, autocast: bool) -> None:
    kept = torch.float32 if autocast else dtype
    hidden = torch.full((5000, 2), 14.0, dtype=kept)
    weight = torch.zeros(100, 2, dtype=kept, requires_grad=True)
    with torch.autocast("cpu", dtype, enabled=autocast):
        loss = token_loss(hidden, weight, torch.zeros(100, dtype=kept), torch.zeros(5000).long())
    (loss / 5000).backward()
    assert weight.grad is not None
    assert weight.grad[0].tolist() == pytest.approx([14 * (1 / 100 - 1)] * 2, rel=1e-2)


def test_logits_are_never_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    widest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal widest
            result = function(*args, **(kwargs or {}))
            if isinstance(result, Tensor):
                widest = max(widest, result.numel())
            return result

    monkeypatch.setattr(losses, "CPU_CHUNK", 4 * VOCABULARY)
    *tensors, labels = inputs()
    with Watch():
        token_loss(*tensors, labels).backward()
    assert widest == VOCABULARY * SIZE  # the weight's gradient, and less than 23 tokens' logits


def test_model_gives_the_losses_of_its_own_logits() -> None:
    """The decoder is tied to the word embeddings, whose gradient adds both uses."""
    model = tiny_simbert().double()
    pair = {"source": "a cat sat", "target": "the cat is sitting", "group": 0, "seed": 3}
    batch = PairCollator(model.rows, mlm=True)([pair])
    rows = {k: batch[k] for k in ("input_ids", "attention_mask", "token_type_ids")}
    sums = {}
    for name in ("target", "mlm"):
        logits = model(**rows, lm_positions=batch[f"{name}_positions"]).logits
        sums[name] = F.cross_entropy(logits, batch[f"{name}_labels"], reduction="sum")
    means = sum(sums[name] / len(batch[f"{name}_labels"]) for name in sums)
    wanted = torch.autograd.grad(means, model.get_input_embeddings().weight)[0]
    parts = SimBertObjective()(model, batch)
    found = torch.autograd.grad(parts.seq2seq + parts.mlm, model.get_input_embeddings().weight)[0]
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)
    half = {"target_count": torch.tensor(2 * len(batch["target_labels"]))}
    counted = SimBertObjective()(model, batch | half)
    assert counted.seq2seq.item() == pytest.approx(parts.seq2seq.item() / 2)
    assert counted.mlm.item() == pytest.approx(parts.mlm.item())
