"""Shared utilities: files and text, atomic writes, extras, flags, plots."""
