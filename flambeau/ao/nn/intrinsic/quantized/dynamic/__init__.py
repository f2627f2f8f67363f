"""Fused layers with quantized weights and results in floats."""

from .modules import LinearReLU

__all__ = ["LinearReLU"]
