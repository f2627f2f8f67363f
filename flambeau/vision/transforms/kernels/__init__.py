"""Computations of transforms, on plain tensors (..., C, H, W) and on PIL images; nothing here draws random numbers."""
