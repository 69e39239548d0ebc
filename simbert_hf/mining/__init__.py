"""Training data out of raw text: hard negatives, and paraphrases of one another."""
