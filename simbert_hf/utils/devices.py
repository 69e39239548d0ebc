"""What devices lack."""

from __future__ import annotations

from torch import Tensor


def with_float64(tensor: Tensor) -> Tensor:
    """Return a tensor where float64 exists: Apple's GPUs have none, so theirs come to the CPU.

    Example:
        >>> import torch
        >>> ones = torch.ones(2)
        >>> with_float64(ones) is ones
        True
    """
    return tensor.cpu() if tensor.device.type == "mps" else tensor
