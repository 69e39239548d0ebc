"""The optional parts of the package, which no package index has: how to get one."""

from __future__ import annotations


def install(extras: str) -> str:
    """Say how to install what some extras bring.

    Example:
        >>> install("app,index")
        "pip install '.[app,index]' in a clone of simbert_hf"
    """
    return f"pip install '.[{extras}]' in a clone of simbert_hf"
