"""The QAT linear layer for dynamic quantization."""

from .linear import Linear

__all__ = ["Linear"]
