"""The same work done by this package, by a naive port of SimBERT and by the package's peers."""
