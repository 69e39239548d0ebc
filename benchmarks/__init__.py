"""Compare this package with a naive port of SimBERT and with the package's peers."""
