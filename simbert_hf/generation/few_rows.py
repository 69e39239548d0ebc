"""Linear layers for few rows on a CPU, where a step of a search spends most of its time.

On a CPU with AVX2 only, MKL took a third to a half as long for weights times columns as for rows
times weights; on one with AVX-512, it took longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

FEW = 8  # more rows are no faster as columns; nor is a single one


def linear(layer: nn.Linear, rows: Tensor) -> Tensor:
    """Apply a linear layer, by a product with the rows as columns if they are few.

    Args:
        layer: Its weights have the shape (O, D).
        rows: Shape: (..., D).

    Returns:
        Shape: (..., O); the layer's own values up to rounding.

    Example:
        >>> layer, rows = nn.Linear(3, 2), torch.rand(4, 3)
        >>> torch.allclose(linear(layer, rows), layer(rows))
        True
    """
    weight, bias = layer.weight, layer.bias
    columns = rows.reshape(-1, rows.shape[-1]).T
    if not 1 < columns.shape[1] <= FEW or bias is None:
        return nn.functional.linear(rows, weight, bias)
    product = torch.addmm(bias[:, None], weight, columns)
    return product.T.contiguous().view(*rows.shape[:-1], -1)


@contextmanager
def few_rows(model: nn.Module) -> Iterator[None]:
    """Make a float32 model's linear layers on a CPU use :func:`linear` inside the block.

    They do if the CPU has AVX2 and no AVX-512. Layers that something else has changed are left
    alone: quantised or sharded ones, or those with a ``forward`` of their own.
    """
    slow = torch.backends.cpu.get_cpu_capability() == "AVX2"
    layers = [
        module
        for module in model.modules()
        if slow
        and type(module) is nn.Linear
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
