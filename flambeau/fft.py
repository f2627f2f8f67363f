"""Fourier transforms: every operator declared in the namespace "fft"."""

from typing import TYPE_CHECKING, Any

from . import ops as _ops
from .core.tensor import Tensor as _Tensor

__all__ = sorted(_ops.namespace("fft"))
globals().update(_ops.namespace("fft"), Tensor=_Tensor)

if TYPE_CHECKING:  # names that are put here when the module is imported

    def __getattr__(name: str) -> Any: ...
