"""Layers of models during quantization (`intrinsic`, `qat`, `quantizable`) and of quantized models (`quantized`)."""

from typing import Any

from ...core import naming as _naming

__all__ = ["intrinsic", "qat", "quantizable", "quantized"]


def __getattr__(name: str) -> Any:
    return _naming.submodule(__name__, name)
