"""Texts -> vectors, by any model that sentence-transformers loads."""
