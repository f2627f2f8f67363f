"""Fused layers with dynamic quantization: quantized weights, results in floating point."""

from .modules import LinearReLU

__all__ = ["LinearReLU"]
