"""Functions of the second generation, on PIL images, tensors and tv_tensors alike."""

# ruff: noqa: F401

from __future__ import annotations

from ...interpolation import InterpolationMode
from ._color import *
from ._dispatch import is_pure_tensor, register_kernel
from ._geometry import *
from ._meta import *
from ._misc import *
from ._shapes import *
from ._warps import *
