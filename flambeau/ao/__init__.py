"""PyTorch's tools for smaller models: quantization (`ao.quantization`) and the layers that go with it (`ao.nn`)."""

from typing import Any

from ..core import naming as _naming

__all__ = ["nn", "quantization"]


def __getattr__(name: str) -> Any:
    return _naming.submodule(__name__, name)
