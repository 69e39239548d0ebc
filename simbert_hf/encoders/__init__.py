"""Turn texts into vectors with any model that sentence-transformers loads."""
