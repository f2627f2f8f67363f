"""Aliases of the exporter's functions."""

from __future__ import annotations

from typing import Any

from .exporting import export as _export
from .exporting import select_model_mode_for_export
from .functions import is_in_onnx_export
from .registry import register_custom_op_symbolic, unregister_custom_op_symbolic

__all__ = [
    "export",
    "is_in_onnx_export",
    "register_custom_op_symbolic",
    "select_model_mode_for_export",
    "unregister_custom_op_symbolic",
]


def export(model: Any, args: Any, f: Any, **options: Any) -> None:
    """Write a model as an ONNX file, with nodes named after the modules they come from (dynamo=False)."""
    _export(model, args, f, dynamo=False, **options)
