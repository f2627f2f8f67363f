"""Recurrent layers and attention composed of parts that can be observed one by one."""

from .modules import *
from .modules import __all__ as __all__
