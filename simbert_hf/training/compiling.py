"""Compiling transformer layers, once for all lengths."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from torch import nn

logger = logging.getLogger(__name__)


def compile_layers(
    model: Any, backend: str | Callable[..., Any] = "inductor", mode: str | None = None
) -> None:
    """Compile each repeated layer of a model in place, for batches of any shape.

    Nearly all the time is spent there. All layers share one graph, in which the numbers of rows and
    of tokens are symbolic, so that no other length or depth triggers a recompilation; evaluation,
    which needs no gradient, has a second one. The rest of the model varies in too many ways (how
    many tokens have a loss, in which chunks) to be worth it. Gradient checkpointing, GradCache, DDP
    and FSDP work with compiled layers as with others.

    Args:
        model: A module; its repeated layers are in an ``nn.ModuleList``.
        backend: As for ``torch.compile``.
        mode: As for ``torch.compile``. Modes with CUDA graphs only suit batches of one shape.

    Raises:
        ValueError: If the model has no such layers.

    Example:
        >>> compile_layers(nn.GRU(2, 2))
        Traceback (most recent call last):
        ValueError: --torch_compile compiles the repeated layers of a transformer; GRU has none.
    """
    stacks = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    if not stacks:
        raise ValueError(
            "--torch_compile compiles the repeated layers of a transformer; "
            f"{type(model).__name__} has none."
        )
    if mode in ("reduce-overhead", "max-autotune"):
        logger.warning(
            "--torch_compile_mode %s records a CUDA graph for each layer and batch shape; "
            "max-autotune-no-cudagraphs does not.",
            mode,
        )
    for layer in (layer for stack in stacks for layer in stack):
        layer.compile(dynamic=True, backend=backend, mode=mode)
