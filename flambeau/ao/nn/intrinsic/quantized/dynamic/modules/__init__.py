"""Fused layers with quantized weights and results in floats."""

from .linear_relu import LinearReLU

__all__ = ["LinearReLU"]
