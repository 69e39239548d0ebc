"""The kernels compute what torch computes: attention, its gradients and dropout; a token's loss.

Without a GPU, Triton's interpreter runs them: TRITON_INTERPRET=1 python -m pytest -m gpu
"""

from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor
from torch.utils._triton import has_triton

from simbert_hf.masking import prefix_mask
from simbert_hf.token_loss import token_loss
from simbert_hf.training.compiling import compile_layers
from tests.tiny import tiny_simbert

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not (has_triton() or INTERPRETED), reason="needs a GPU and Triton"),
    pytest.mark.filterwarnings("default"),  # torch itself warns, of its own deprecations
]


def rows(n: int, length: int) -> dict[str, Tensor]:
    """Ragged rows with sources and targets of any length."""
    torch.manual_seed(length)
    real = (torch.arange(length) < torch.randint(3, length + 1, (n, 1))).long()
    segments = real * (torch.arange(length) >= torch.randint(2, length, (n, 1)))
    ids = torch.randint(5, 40, (n, length)) * real
    batch = {"input_ids": ids, "attention_mask": real, "token_type_ids": segments}
    return {name: values.to(DEVICE) for name, values in batch.items()}


def inputs(n: int, heads: int, length: int, depth: int) -> tuple[Tensor, Tensor]:
    """Make queries, keys and values, laid out as layers give them, and a prefix mask."""
    batch = rows(n, length)
    mask = prefix_mask(batch["token_type_ids"], batch["attention_mask"], torch.float32)
    return torch.randn(n, length, 3, heads, depth, device=DEVICE, requires_grad=True), mask


def reference(parts: Tensor, mask: Tensor, share: Tensor | float) -> Tensor:
    """Attend in double precision, with dropout's factors given: (B, L, H, d)."""
    q, k, v = parts.double().permute(2, 0, 3, 1, 4)
    scores = q @ k.transpose(-1, -2) * q.shape[3] ** -0.5 + mask.double()
    return (scores.softmax(dim=-1) * share @ v).transpose(1, 2)


def kept_share(n: int, heads: int, length: int, seed: Tensor, dropout: float) -> Tensor:
    """Read what a kernel's dropout multiplies by: equal weights times values of one 1 each."""
    from simbert_hf.training.fused_attention import fused_attention

    depth = max(16, 1 << (length - 1).bit_length())
    parts = torch.zeros(n, length, 3, heads, depth, device=DEVICE)
    parts[:, :, 2] = torch.eye(length, depth, device=DEVICE)[None, :, None]
    free = torch.zeros(n, 1, length, length, device=DEVICE)
    found = fused_attention(parts, free, seed, 1.0, dropout).transpose(1, 2)
    return (found[..., :length] * length * (1 - dropout)).round() / (1 - dropout)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize(("length", "depth"), [(7, 16), (16, 32), (29, 64), (50, 32), (97, 64)])
def test_outputs_and_gradients_are_the_references(length, depth, dropout) -> None:
    from simbert_hf.training.fused_attention import fused_attention

    parts, mask = inputs(3, 2, length, depth)
    seed = torch.tensor([2**61 + 5], device=DEVICE)
    share = kept_share(3, 2, length, seed, dropout) if dropout else 1.0
    if dropout:
        assert share.unique().tolist() == pytest.approx([0, 1 / 0.7])
        assert (share > 0).double().mean().item() == pytest.approx(0.7, abs=0.06)
        other = kept_share(3, 2, length, seed + 10_000, dropout)
        assert not torch.equal(other, share)
        assert not torch.equal(share[0], share[1])
    found = fused_attention(parts, mask, seed if dropout else None, depth**-0.5, dropout)
    wanted = reference(parts, mask, share)
    assert (found - wanted).abs().max() < 1e-5
    for gradient in (torch.randn_like(found), torch.ones_like(found[..., :1]).expand_as(found)):
        (ours,) = torch.autograd.grad(found, parts, gradient, retain_graph=True)
        (theirs,) = torch.autograd.grad(wanted, parts, gradient.double(), retain_graph=True)
        for own, other in zip(ours.unbind(2), theirs.unbind(2), strict=True):
            assert (own - other).norm() < 1e-5 * other.norm()


@pytest.mark.skipif(INTERPRETED, reason="the layers ask for the kernel on a GPU alone")
@pytest.mark.parametrize("compiled", [False, True])
def test_a_model_learns_as_with_torchs_attention(monkeypatch, compiled) -> None:
    from simbert_hf.training import fused_attention

    calls, inner = [], fused_attention.fused_attention
    if not compiled:
        monkeypatch.setattr(
            fused_attention, "fused_attention", lambda *given: calls.append(0) or inner(*given)
        )
    sizes = {"hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 128}
    found = {}
    for name in ("torch", "fused"):
        model = tiny_simbert(
            attention_probs_dropout_prob=0.0,
            hidden_dropout_prob=0.0,
            initializer_range=0.05,
            max_position_embeddings=256,
            **sizes,
        )
        model.to(DEVICE).train()
        if name == "fused":
            fused_attention.use_fused_attention(model)
        if compiled:
            compile_layers(model)
        for length in (12, 140, 30, 60):  # the last one's gradients are compared
            model.zero_grad()
            with torch.autocast(DEVICE, torch.bfloat16):
                vectors = model(**rows(20, length)).sentence_embedding.float()
            (vectors * torch.linspace(-1, 1, vectors.shape[1], device=DEVICE)).sum().backward()
        found[name] = vectors, model.bert.embeddings.word_embeddings.weight.grad.float()
    if not compiled:
        assert len(calls) == 3 * model.config.num_hidden_layers  # rows of 140 tokens are too long
    for ours, theirs in zip(found["fused"], found["torch"], strict=True):
        assert (ours - theirs).norm() < 0.03 * theirs.norm()


@pytest.mark.skipif(INTERPRETED, reason="CUDA's generator draws")
def test_dropout_follows_torchs_seed() -> None:
    from simbert_hf.training.fused_attention import use_fused_attention

    sizes = {"hidden_size": 32, "num_attention_heads": 2, "initializer_range": 0.5}
    model = tiny_simbert(attention_probs_dropout_prob=0.5, hidden_dropout_prob=0.0, **sizes)
    model.to(DEVICE).train()
    use_fused_attention(model)
    batch, found = rows(8, 20), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        with torch.autocast(DEVICE, torch.bfloat16):
            found.append(model(**batch).sentence_embedding)
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_scores_become_the_slopes_of_the_losses(dtype) -> None:
    from simbert_hf.training.kernels import slopes_kernel

    scores = (3 * torch.randn(7, 5000, device=DEVICE)).to(dtype)
    scores[:, -3:], scores[2, :4500] = -torch.inf, -torch.inf  # a block without any, too
    labels = torch.tensor([0, 4996, 4500, 17, 4095, 4096, 17], device=DEVICE)
    exact = scores.double().requires_grad_()
    wanted = torch.nn.functional.cross_entropy(exact, labels, reduction="none")
    (slopes,) = torch.autograd.grad(wanted.sum(), exact)
    losses = torch.empty(7, device=DEVICE)
    slopes_kernel[(7,)](scores, labels, losses, 5000, 4096, num_warps=8)
    assert (losses - wanted).abs().max() < 1e-5
    assert (scores - slopes).abs().max() < 2 * torch.finfo(dtype).eps


@pytest.mark.skipif(DEVICE == "cpu", reason="the loss asks for the kernel on a GPU alone")
def test_a_token_loss_is_that_of_all_logits() -> None:
    shapes = ((300, 64), (1003, 64), (1003,))
    tensors = [torch.randn(s, device=DEVICE, requires_grad=True) for s in shapes]
    labels = torch.randint(1003, (600,), device=DEVICE)[::2]
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    wanted = torch.nn.functional.linear(*exact)
    wanted = torch.nn.functional.cross_entropy(wanted, labels, reduction="sum")
    with torch.autocast(DEVICE, torch.bfloat16):
        found = token_loss(*tensors, labels)
    assert found.item() == pytest.approx(wanted.item(), rel=1e-3)
    both = (
        torch.autograd.grad(loss / 300, given)
        for loss, given in ((found, tensors), (wanted, exact))
    )
    for ours, theirs in zip(*both, strict=True):
        assert ours.dtype == torch.float32
        assert (ours - theirs).norm() < 0.01 * theirs.norm()
