"""Linear layers for few rows: the layers' own values, and no trace left behind."""

from __future__ import annotations

from contextlib import suppress

import pytest
import torch
from torch import nn

from simbert_hf.generation.few_rows import FEW, few_rows


@pytest.fixture(autouse=True)
def avx2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")


@pytest.mark.parametrize("rows", [0, 1, 2, FEW, FEW + 1])
@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
@pytest.mark.parametrize("bias", [True, False])
def test_values_are_those_of_the_layer(rows: int, shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(0)
    layer, hidden = nn.Linear(24, 40, bias=bias), torch.randn(rows, *shape, 24)
    expected = layer(hidden)
    with few_rows(nn.Sequential(layer)), torch.no_grad():
        found = layer(hidden)
    torch.testing.assert_close(found, expected.detach(), rtol=1e-5, atol=1e-6)
    assert found.is_contiguous()


def test_layers_are_as_before_behind_the_block() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    with suppress(RuntimeError), few_rows(model):
        with few_rows(model):  # another thread's, which ends first
            pass
        assert all("forward" in vars(layer) for layer in model)
        raise RuntimeError
    assert not any("forward" in vars(layer) for layer in model)


def test_layers_stay_as_they_are_with_avx512(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    with few_rows(layer := nn.Linear(4, 4)):
        assert "forward" not in vars(layer)


def test_changed_layers_stay_as_they_are() -> None:
    class Doubled(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(input)

    own = nn.Linear(4, 4)
    own.forward = lambda rows: rows  # type: ignore[method-assign]
    model = nn.Sequential(Doubled(4, 4), nn.Linear(4, 4, dtype=torch.bfloat16), own)
    with few_rows(model):
        assert [("forward" in vars(layer)) for layer in model] == [False, False, True]
    assert torch.equal(own(torch.ones(2, 4)), torch.ones(2, 4))
