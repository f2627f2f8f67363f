"""Fused quantized layers: a convolution with relu, and similar groups."""

from typing import Any

from .....core import naming as _naming
from .modules import *
from .modules import __all__ as __all__


def __getattr__(name: str) -> Any:
    return _naming.submodule(__name__, name)
