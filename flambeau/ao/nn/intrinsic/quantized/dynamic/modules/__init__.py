"""Fused layers with dynamic quantization."""

from .linear_relu import LinearReLU

__all__ = ["LinearReLU"]
