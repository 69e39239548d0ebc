"""What generated paraphrases are worth: a trained judge, metrics, controls, one table."""
