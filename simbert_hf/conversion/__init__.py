"""Convert original SimBERT weights, of TensorFlow or bert4keras, to this package's format."""
