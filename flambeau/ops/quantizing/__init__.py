"""Quantized tensors: their parts, and the operators on them."""
