"""Mine training data from raw text: hard negatives and groups of paraphrases."""
