"""The ONNX forms of operators, a file for each family."""

from __future__ import annotations

from . import (
    absent,
    activations,
    comparisons,
    creation,
    indexing,
    losses,
    neural,
    pointwise,
    pooling,
    products,
    quantization,
    recurrent,
    reductions,
    resizing,
    shapes,
    vision,
)

__all__ = [
    "absent", "activations", "comparisons", "creation", "indexing", "losses", "neural", "pointwise", "pooling",
    "products", "quantization", "recurrent", "reductions", "resizing", "shapes", "vision",
]  # fmt: skip
