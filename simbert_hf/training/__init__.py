"""What the training scripts share, and what a run needs besides the Trainer."""
