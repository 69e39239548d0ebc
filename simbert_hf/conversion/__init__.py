"""Original SimBERT weights, from TensorFlow or bert4keras, in this package's form."""
