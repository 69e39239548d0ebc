"""A page to try a model (extra ``app``)."""

from __future__ import annotations

from simbert_hf.app.page import launch, make_page

__all__ = [
    "launch",
    "make_page",
]
