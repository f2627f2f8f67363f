"""QAT layers whose inputs will be quantized dynamically."""

from .modules import *
from .modules import __all__ as __all__
