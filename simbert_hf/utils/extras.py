"""The package's extras, and how to install them (no package index has the package)."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def install(extras: str) -> str:
    """Return the command that installs extras.

    Example:
        >>> install("app,index")
        "pip install '.[app,index]' in a clone of simbert_hf"
    """
    return f"pip install '.[{extras}]' in a clone of simbert_hf"


def require(module: str, extra: str) -> Any:
    """Import a module of an extra; raise an ImportError that names the extra if it is missing.

    Example:
        >>> require("json", "index").dumps(None)
        'null'
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{module} is not installed: {install(extra)}.") from error
