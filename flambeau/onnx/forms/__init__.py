"""The ONNX forms of operators, a file for each family."""

from __future__ import annotations

from . import indexing, neural, pointwise, products, recurrent, reductions, shapes, vision

__all__ = ["indexing", "neural", "pointwise", "products", "recurrent", "reductions", "shapes", "vision"]
