"""Quicker linear layers on a CPU: the layers' own values, and no trace left behind."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from simbert_hf.modeling.cpu_layers import FEW, MANY, PART, by_parts, quick_layers


@pytest.fixture(autouse=True)
def avx2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)


class Products(TorchFunctionMode):
    """Records the products: the outputs of one by rows, and the columns of one by columns."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function is nn.functional.linear:
            self.seen.append(("rows", len(args[1])))
        elif function is torch.addmm:
            self.seen.append(("columns", args[2].shape[1]))
        return function(*args, **kwargs or {})


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


@pytest.mark.parametrize(
    ("outputs", "rows", "products"),
    [
        (40, 1, [("rows", 40)]),
        (40, 2, [("columns", 2)]),
        (40, FEW, [("columns", FEW)]),
        (40, FEW + 1, [("rows", 40)]),
        (MANY, 1, [("columns", 2)]),
        (MANY, FEW, [("columns", FEW)]),
        (MANY, FEW + 1, [("rows", PART)] * (MANY // PART)),
    ],
)
def test_few_rows_are_columns_and_many_outputs_parts(
    outputs: int, rows: int, products: list[tuple[str, int]]
) -> None:
    layer = nn.Linear(4, outputs)
    with quick_layers(layer), Products() as found:
        layer(torch.ones(rows, 4))
    assert found.seen == products


def test_only_mkl_multiplies_by_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    def products(dtype: torch.dtype, device: str = "cpu") -> int:
        shapes = (1, 4), (2 * PART, 4), (2 * PART,)
        with Products() as found:
            by_parts(*(torch.ones(shape, dtype=dtype, device=device) for shape in shapes))
        return len(found.seen)

    assert products(torch.float32) == 2
    assert products(torch.bfloat16) == products(torch.float32, "meta") == 1
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    assert products(torch.float32) == 1


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
    half, sharded = nn.Linear(4, 4, dtype=torch.bfloat16), nn.Linear(4, 4)
    sharded.weight = type("Shard", (nn.Parameter,), {})(torch.ones(4, 4))
    model = nn.Sequential(own, Doubled(4, 4), half, sharded, nn.Linear(4, 4, device="meta"))
    with quick_layers(model):
        assert [("forward" in vars(layer)) for layer in model] == [True] + [False] * 4
    assert torch.equal(own(torch.ones(2, 4)), torch.ones(2, 4))
