"""What the training scripts share, and what a run needs beside the Trainer."""
