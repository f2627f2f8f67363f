"""PyTorch's tools for smaller models: quantization (`ao.quantization`), the layers that go with it (`ao.nn`), pruning (`ao.pruning`), and
comparison of models (`ao.ns`)."""

from typing import Any

from ..core import naming as _naming

__all__ = ["nn", "ns", "pruning", "quantization"]


def __getattr__(name: str) -> Any:
    return _naming.submodule(__name__, name)
