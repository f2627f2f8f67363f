"""Fused layers that round their weights while they are trained."""

from .modules import *
from .modules import __all__ as __all__
