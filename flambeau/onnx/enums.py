"""Options of an export, under PyTorch's names."""

from __future__ import annotations

import enum


class TrainingMode(enum.Enum):
    """Mode in which a model is exported: evaluation, its current mode, or training."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class OperatorExportTypes(enum.Enum):
    """Treatment of operators without an ONNX form. Only ONNX is supported: files of the other kinds could not be run."""

    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    ONNX_FALLTHROUGH = 3


TensorProtoDataType = enum.IntEnum(
    "TensorProtoDataType",
    "UNDEFINED FLOAT UINT8 INT8 UINT16 INT16 INT32 INT64 STRING BOOL FLOAT16 DOUBLE UINT32 UINT64 COMPLEX64 COMPLEX128 BFLOAT16 "
    "FLOAT8E4M3FN FLOAT8E4M3FNUZ FLOAT8E5M2 FLOAT8E5M2FNUZ",
    module=__name__,
    start=0,
)
TensorProtoDataType.__doc__ = "ONNX's numbers for dtypes."
