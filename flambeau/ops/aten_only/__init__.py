"""Operators that only PyTorch's graphs call, and the tables that they and the other operators declare for such graphs.

Import the tables from here, so that they are complete."""

from ..machinery.aten_form import ATEN_BACKWARD, ATEN_ONLY, ATEN_PARTS
from . import attention, layers, linear_algebra, methods

__all__ = ["ATEN_BACKWARD", "ATEN_ONLY", "ATEN_PARTS", "attention", "layers", "linear_algebra", "methods"]
