"""The optional parts of the package, which no package index has: how to get one."""

from __future__ import annotations

from importlib.util import find_spec


def install(extras: str) -> str:
    """Say how to install what some extras bring.

    Example:
        >>> install("app,index")
        "pip install '.[app,index]' in a clone of simbert_hf"
    """
    return f"pip install '.[{extras}]' in a clone of simbert_hf"


def require(module: str, extra: str) -> None:
    """Raise an ImportError, before any work, unless a module is installed that an extra brings.

    Example:
        >>> require("json", "index")
    """
    if not find_spec(module):
        raise ImportError(f"{module} is not installed: {install(extra)}.")
