"""Layers that round their weights while they are trained, as quantizing will."""

from .modules import *
from .modules import __all__ as __all__
