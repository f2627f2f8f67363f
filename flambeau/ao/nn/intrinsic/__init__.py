"""Fused layers: a convolution with batch norm and relu, and similar groups that quantization treats as one layer."""

from typing import Any

from ....core import naming as _naming
from .modules import *
from .modules import __all__ as __all__
from .modules.fused import _FusedModule as _FusedModule


def __getattr__(name: str) -> Any:
    return _naming.submodule(__name__, name)
