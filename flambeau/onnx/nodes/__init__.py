"""Implementations of ONNX operators: functions by their names, one file per family."""

from __future__ import annotations

from . import elementwise, layers, pooling, recurrent, reductions, sequences, shapes, signals
from .reference import reference
from .table import NODES, Call

__all__ = [
    "NODES", "Call", "elementwise", "layers", "pooling", "recurrent", "reductions", "reference", "sequences", "shapes", "signals",
]  # fmt: skip
