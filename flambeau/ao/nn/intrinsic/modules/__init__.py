"""Fused layers in floating point."""

from .fused import *
from .fused import __all__ as __all__
from .fused import _FusedModule as _FusedModule
