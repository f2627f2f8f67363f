"""Parts of fx that may change without notice."""
