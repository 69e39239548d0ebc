"""What a model is worth: while it trains (evaluators), and beside others (the other modules)."""
