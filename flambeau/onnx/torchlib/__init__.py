"""onnxscript's torchlib: functions that translate aten operators to ONNX nodes."""

from __future__ import annotations

from .calls import call, function_of
from .library import names, names_of, since
from .schemas import find_shape

__all__ = ["call", "find_shape", "function_of", "names", "names_of", "since"]
