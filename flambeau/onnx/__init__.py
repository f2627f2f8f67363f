"""Export of models to ONNX files, and modules loaded from ONNX files.

>>> flambeau.onnx.export(model, (x,), "model.onnx")
>>> flambeau.onnx.load("model.onnx")(x)
"""

from __future__ import annotations

from . import errors, symbolic_helper, utils
from .enums import OperatorExportTypes, TensorProtoDataType, TrainingMode
from .errors import OnnxExporterError
from .exporting import export, select_model_mode_for_export
from .functions import is_in_onnx_export
from .loading import OnnxModule, load
from .picture import drawing
from .program import ONNXProgram
from .registry import register_custom_op_symbolic, unregister_custom_op_symbolic
from .trace_view import _optimize_trace as _optimize_trace

producer_name = "pytorch"
producer_version = "2.13.0"

__all__ = [
    "ONNXProgram", "OnnxExporterError", "OnnxModule", "OperatorExportTypes", "TensorProtoDataType", "TrainingMode",
    "drawing", "errors", "export", "is_in_onnx_export", "load", "register_custom_op_symbolic",
    "select_model_mode_for_export", "symbolic_helper", "unregister_custom_op_symbolic", "utils",
]  # fmt: skip
