"""Comparing a quantized model with the one it was made of: weights, results of layers, results of layers fed alike."""
