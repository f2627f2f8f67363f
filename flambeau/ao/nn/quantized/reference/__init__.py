"""Reference layers: they compute in floating point with quantized and dequantized weights, and define the results of quantized layers."""

from .modules import *
from .modules import __all__ as __all__
