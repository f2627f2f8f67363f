"""PyTorch's tools for smaller models: quantization (`ao.quantization`), the layers that go with it (`ao.nn`), and zeros in weights (`ao.pruning`)."""

from typing import Any

from ..core import naming as _naming

__all__ = ["nn", "pruning", "quantization"]


def __getattr__(name: str) -> Any:
    return _naming.submodule(__name__, name)
