"""Quicker linear layers on a CPU: the layers' own values, and no trace left behind."""

from __future__ import annotations

from contextlib import suppress

import pytest
import torch
from torch import nn

from simbert_hf.modeling.cpu_layers import FEW, MANY, PART, by_parts, quick_layers


@pytest.fixture(autouse=True)
def avx2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")


@pytest.mark.parametrize("rows", [0, 1, 2, FEW, FEW + 1])
@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
@pytest.mark.parametrize("outputs", [40, MANY + 1])
@pytest.mark.parametrize("bias", [True, False])
def test_values_are_those_of_the_layer(
    rows: int, shape: tuple[int, ...], outputs: int, bias: bool
) -> None:
    torch.manual_seed(0)
    layer, hidden = nn.Linear(24, outputs, bias=bias), torch.randn(rows, *shape, 24)
    expected = layer(hidden)
    with quick_layers(nn.Sequential(layer)), torch.no_grad():
        found = layer(hidden)
    torch.testing.assert_close(found, expected.detach(), rtol=1e-5, atol=1e-6)
    assert found.is_contiguous()


def test_layers_are_as_before_behind_the_block() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    with suppress(RuntimeError), quick_layers(model):
        with quick_layers(model):  # another thread's, which ends first
            pass
        assert all("forward" in vars(layer) for layer in model)
        raise RuntimeError
    assert not any("forward" in vars(layer) for layer in model)


@pytest.mark.parametrize("rows", [1, FEW + 1])
@pytest.mark.parametrize("outputs", [1, PART, PART + 1])
def test_parts_are_the_whole_and_have_its_gradients(rows: int, outputs: int) -> None:
    torch.manual_seed(0)
    inputs = [
        torch.randn(shape, requires_grad=True) for shape in ((rows, 3), (outputs, 3), outputs)
    ]
    whole, parts = nn.functional.linear(*inputs), by_parts(*inputs)
    torch.testing.assert_close(parts, whole)
    slopes = torch.randn_like(whole)
    torch.testing.assert_close(
        torch.autograd.grad(parts, inputs, slopes), torch.autograd.grad(whole, inputs, slopes)
    )


@pytest.mark.parametrize(
    ("capability", "changed"),
    [("AVX2", [True, True]), ("AVX512", [False, True]), ("SVE", [False] * 2)],
)
def test_which_layers_change(
    monkeypatch: pytest.MonkeyPatch, capability: str, changed: list[bool]
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    with quick_layers(model := nn.Sequential(nn.Linear(4, 4), nn.Linear(4, MANY))):
        assert ["forward" in vars(layer) for layer in model] == changed


def test_changed_layers_stay_as_they_are() -> None:
    class Doubled(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(input)

    own = nn.Linear(4, 4)
    own.forward = lambda rows: rows  # type: ignore[method-assign]
    model = nn.Sequential(Doubled(4, 4), nn.Linear(4, 4, dtype=torch.bfloat16), own)
    with quick_layers(model):
        assert [("forward" in vars(layer)) for layer in model] == [False, False, True]
    assert torch.equal(own(torch.ones(2, 4)), torch.ones(2, 4))
