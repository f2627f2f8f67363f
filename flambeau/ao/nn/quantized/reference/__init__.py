"""Layers that compute in floating point with weights of quantized values: what a quantized layer has to give."""

from .modules import *
from .modules import __all__ as __all__
