"""Quantized tensors: what they are made of, and what operators do with them."""
