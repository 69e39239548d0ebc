"""Gathering the rows of all processes in one tensor, with gradients."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def is_distributed() -> bool:
    """Return whether several processes train together."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def gather_with_grad(local: Tensor) -> tuple[Tensor, int]:
    """Concatenate the processes' equally shaped tensors; gradients flow back to their owners.

    A loss of local queries against all keys, averaged over the local rows and, by DDP, over
    processes, has exactly the gradient of one process on the concatenated batch.

    Args:
        local: This process's rows, as many as every other process's. Shape: (B, ...).

    Returns:
        All rows, (world * B, ...), and the row at which the local ones start.

    Example:
        >>> gather_with_grad(torch.ones(2, 3))[1]
        0
    """
    if not is_distributed():
        return local, 0
    return _Gather.apply(local), dist.get_rank() * len(local)


def gather_uneven_with_grad(*local: Tensor) -> tuple[Tensor, ...]:
    """Concatenate the processes' rows, however many each has; gradients flow back to their owners.

    A loss that every process computes alike from all rows, averaged over processes by DDP, has
    exactly the gradient of one process on the concatenated batch.

    Args:
        *local: This process's rows of one or more kinds. Shape: (B, ...) each.

    Returns:
        All rows of each kind, in the order of the processes. Shape: (sum of B, ...) each.

    Example:
        >>> [tuple(rows.shape) for rows in gather_uneven_with_grad(torch.ones(2, 3), torch.ones(4))]
        [(2, 3), (4,)]
    """
    if not is_distributed():
        return local
    counts = torch.tensor([[len(rows) for rows in local]], device=local[0].device)
    sizes = gather_with_grad(counts)[0].T.tolist()  # of each kind, the processes'
    return tuple(_gather_uneven(*pair) for pair in zip(local, sizes, strict=True))


def _gather_uneven(local: Tensor, sizes: list[int]) -> Tensor:
    padding = local.new_zeros(max(sizes) - len(local), *local.shape[1:])
    rows = gather_with_grad(torch.cat([local, padding]))[0].split(max(sizes))
    return torch.cat([part[:size] for part, size in zip(rows, sizes, strict=True)])


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, local: Tensor) -> Tensor:
        ctx.size = len(local)
        parts = [torch.empty_like(local) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, local.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)  # every process's loss depends on these rows
        start = dist.get_rank() * ctx.size
        return total[start : start + ctx.size]


def sum_over_processes(local: Tensor) -> Tensor:
    """Sum the processes' equally shaped tensors; each one's gradient is that of the sum.

    For a loss that every process computes alike from the sum, when the parameters behind
    ``local`` belong to one process, so that DDP does not average their gradients.

    Example:
        >>> sum_over_processes(torch.ones(2))
        tensor([1., 1.])
    """
    if not is_distributed():
        return local
    return _Sum.apply(local)


def max_over_processes(local: Tensor) -> Tensor:
    """Return the elementwise maximum over the processes, without gradient."""
    largest = local.detach().clone()
    if is_distributed():
        dist.all_reduce(largest, dist.ReduceOp.MAX)
    return largest


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, local: Tensor) -> Tensor:
        total = local.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient
