"""Paraphrases: decoding, ranking, and spelling them as their text."""
