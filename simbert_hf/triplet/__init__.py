"""Triplets: a positive pair nearer than a negative one, by a margin."""
