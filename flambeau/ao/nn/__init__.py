"""Layers of models that are being quantized (`intrinsic`, `qat`, `quantizable`) and of those that are (`quantized`)."""

from typing import Any

from ...core import naming as _naming

__all__ = ["intrinsic", "qat", "quantizable", "quantized"]


def __getattr__(name: str) -> Any:
    return _naming.submodule(__name__, name)
