"""Random tensors and samples of distributions."""
