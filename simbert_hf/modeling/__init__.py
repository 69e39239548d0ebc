"""SimBert, the other encoders, and the code behind their checkpoints."""
