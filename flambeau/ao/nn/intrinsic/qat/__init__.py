"""Fused layers that round their weights while they are trained."""

from .modules import *  # noqa: F403
from .modules import __all__ as __all__
