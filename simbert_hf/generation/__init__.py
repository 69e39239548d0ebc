"""Paraphrases: decoding, ranking, and spelling them like their text."""
