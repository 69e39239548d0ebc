"""Quicker linear layers on a CPU: generation spends most of its time in them.

MKL, on the CPUs it was tried on (AMD's, and one with AVX2 alone), takes 10 to 30 % less time for a
vocabulary's many outputs if it computes a thousand at a time, and a quarter to three quarters of
the time for a few rows if they are columns.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.backends import mkl

FEW = 8  # more rows, of 384 inputs, are no faster as columns
PART = 1024  # outputs at a time
MANY = 4 * PART
LEAST = {"AVX2": 0, "AVX512": MANY}  # outputs, by the CPU; MKL itself looks at the maker, too


def linear(layer: nn.Linear, rows: Tensor) -> Tensor:
    """Apply a linear layer: to few rows as columns, else, if it has many outputs, by parts.

    Args:
        layer: One with a bias; its weights have the shape (O, D).
        rows: Shape: (..., D).

    Returns:
        Shape: (..., O); the layer's own values up to rounding.

    Example:
        >>> layer, rows = nn.Linear(3, 2), torch.rand(4, 3)
        >>> torch.allclose(linear(layer, rows), layer(rows))
        True
    """
    weight, bias = layer.weight, layer.bias
    flat, has_many = rows.reshape(-1, rows.shape[-1]), len(weight) >= MANY
    count = len(flat)
    if 0 < count <= FEW and (count > 1 or has_many):
        columns = flat.repeat(2, 1).T if count == 1 else flat.T  # two take half as long as one
        product = torch.addmm(bias[:, None], weight, columns)[:, :count]
        return product.T.contiguous().view(*rows.shape[:-1], -1)
    return by_parts(rows, weight, bias) if has_many else nn.functional.linear(rows, weight, bias)


def by_parts(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute ``F.linear``: where MKL multiplies, some outputs at a time, which are held twice."""
    if rows.dtype != torch.float32 or rows.device.type != "cpu" or not mkl.is_available():
        return nn.functional.linear(rows, weight, bias)
    parts = zip(weight.split(PART), bias.split(PART), strict=True)
    return torch.cat([nn.functional.linear(rows, *part) for part in parts], dim=-1)


@contextmanager
def quick_layers(model: nn.Module) -> Iterator[None]:
    """Make a float32 model's linear layers on a CPU use :func:`linear` inside the block.

    With AVX-512 only those with many outputs do, on other CPUs none. Layers that something else has
    changed are left alone: quantised or sharded ones, or those with a ``forward`` of their own.
    """
    least = LEAST.get(torch.backends.cpu.get_cpu_capability(), sys.maxsize)
    layers = [
        module
        for module in model.modules()
        if type(module) is nn.Linear
        and module.bias is not None
        and module.out_features >= least
        and type(module.weight) is nn.Parameter
        and module.weight.device.type == "cpu"
        and module.weight.dtype == torch.float32
        and "forward" not in vars(module)
    ]
    for layer in layers:
        layer.forward = partial(linear, layer)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            vars(layer).pop("forward", None)
