"""SimBert, the encoders beside it, and what makes their checkpoints."""
