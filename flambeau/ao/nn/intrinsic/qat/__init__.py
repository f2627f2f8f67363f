"""Fused layers for quantization-aware training (QAT), with fake-quantized weights."""

from .modules import *
from .modules import __all__ as __all__
