"""MobileNets that can be quantized."""

# ruff: noqa: F403, F405 - re-exports

from .mobilenetv2 import *
from .mobilenetv2 import __all__ as _second
from .mobilenetv3 import *
from .mobilenetv3 import __all__ as _third

__all__ = [*_second, *_third]
