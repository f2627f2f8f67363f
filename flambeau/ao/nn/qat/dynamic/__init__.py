"""Layers trained with rounded weights whose inputs will be quantized while the model runs."""

from .modules import *
from .modules import __all__ as __all__
