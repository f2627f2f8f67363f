"""Random tensors and what is drawn from distributions."""
