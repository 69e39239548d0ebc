"""Serve the page: ``python -m simbert_hf.app``."""

from simbert_hf.app.page import launch

launch()
