"""Operators that only PyTorch's graphs call, and the tables that they and the other operators declare for such graphs.

Read the tables from here: then they are filled."""

from ..machinery.aten_form import ATEN_BACKWARD, ATEN_ONLY, ATEN_PARTS
from . import layers, methods

__all__ = ["ATEN_BACKWARD", "ATEN_ONLY", "ATEN_PARTS", "layers", "methods"]
