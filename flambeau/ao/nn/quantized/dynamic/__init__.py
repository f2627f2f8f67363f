"""Layers with dynamic quantization: weights are quantized, inputs are quantized at each call, results are floats."""

from typing import Any

from .....core import naming as _naming
from .modules import *
from .modules import __all__ as __all__


def __getattr__(name: str) -> Any:
    return _naming.submodule(__name__, name)
