"""A web page to try a model (extra ``app``)."""

from __future__ import annotations

from simbert_hf.app.page import launch

__all__ = ["launch"]
