"""ONNX forms of operators, one file per family."""

from __future__ import annotations

from . import (
    absent,
    indexing,
    layer_parts,
    neural,
    parts,
    pointwise,
    quantization,
    recurrent,
    reductions,
    resizing,
    shapes,
    vision,
)

__all__ = [
    "absent", "indexing", "layer_parts", "neural", "parts", "pointwise",
    "quantization", "recurrent", "reductions", "resizing", "shapes", "vision",
]  # fmt: skip
