"""What devices support."""

from __future__ import annotations

import logging
from functools import cache

import torch
from torch import Tensor
from torch.utils._triton import has_triton

logger = logging.getLogger(__name__)

OLDEST = (8, 0)  # compute capability of Ampere: older GPUs lack shared memory, and bfloat16


@cache
def kernels_work(device: torch.device) -> bool:
    """Return whether :mod:`simbert_hf.training.kernels` run on a device, by running one of them.

    Triton may be installed without the C compiler or Python headers that it needs.

    Example:
        >>> kernels_work(torch.device("cpu"))
        False
    """
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < OLDEST:
        return False
    if not has_triton():
        return False
    try:
        from simbert_hf.training.kernels import slopes_kernel

        scores = torch.zeros(1, 16, dtype=torch.bfloat16, device=device)
        label, loss = torch.zeros(1, dtype=torch.long, device=device), torch.zeros(1, device=device)
        with torch.cuda.device_of(scores):
            slopes_kernel[(1,)](scores, label, loss, 16, 16)
        return True
    except Exception as error:  # Triton's errors have no common class
        logger.warning("Triton's kernels do not run here (%s); training is slower.", error)
        return False


def with_float64(tensor: Tensor) -> Tensor:
    """Move a tensor to the CPU if its device lacks float64, as Apple's GPUs do.

    Example:
        >>> ones = torch.ones(2)
        >>> with_float64(ones) is ones
        True
    """
    return tensor.cpu() if tensor.device.type == "mps" else tensor
