"""The package's extras, and how to install them (no package index has the package)."""

from __future__ import annotations

from importlib.util import find_spec


def install(extras: str) -> str:
    """Return the command that installs extras.

    Example:
        >>> install("app,index")
        "pip install '.[app,index]' in a clone of simbert_hf"
    """
    return f"pip install '.[{extras}]' in a clone of simbert_hf"


def require(module: str, extra: str) -> None:
    """Raise an ImportError, before any work is done, if a module of an extra is not installed.

    Example:
        >>> require("json", "index")
    """
    if not find_spec(module):
        raise ImportError(f"{module} is not installed: {install(extra)}.")
