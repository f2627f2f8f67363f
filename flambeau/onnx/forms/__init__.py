"""The ONNX forms of operators, a file for each family."""

from __future__ import annotations

from . import absent, indexing, neural, pointwise, products, quantization, recurrent, reductions, shapes, vision

__all__ = [
    "absent", "indexing", "neural", "pointwise", "products", "quantization", "recurrent", "reductions", "shapes",
    "vision",
]  # fmt: skip
