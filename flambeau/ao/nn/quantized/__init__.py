"""Quantized layers, as modules and as functions."""

from typing import Any

from ....core import naming as _naming
from . import functional as functional
from .modules import *
from .modules import MaxPool2d as MaxPool2d
from .modules import __all__ as _names

_HOMES = {"LSTM": "modules", "MultiheadAttention": "modules"}
__all__ = [*_names, *_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(_naming.submodule(__name__, _HOMES[name]), name)
    return _naming.submodule(__name__, name)
