"""Padding with constants, reflections, the nearest value, or the other end."""

from __future__ import annotations

from typing import Any

from ...core.tensor import Tensor
from .. import functional as F
from .module import Module
from .utils import _ntuple

__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
    "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d",
    "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip


class _PadNd(Module):
    """Base of padding layers: amounts before and after each padded dimension, the last dimension first."""

    __constants__ = ["padding"]
    _spatial: int
    _mode: str

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _ntuple(2 * self._spatial)(padding)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _CircularPadNd(_PadNd):
    _mode = "circular"

    def _check_input_dim(self, input: Tensor) -> None:
        allowed = (self._spatial + 1, self._spatial + 2)
        if input.dim() not in allowed:
            raise ValueError(f"expected {allowed[0]}D or {allowed[1]}D input (got {input.dim()}D input)")

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        return super().forward(input)


class _ReflectionPadNd(_PadNd):
    _mode = "reflect"


class _ReplicationPadNd(_PadNd):
    _mode = "replicate"


class _ConstantPadNd(_PadNd):
    __constants__ = ["padding", "value"]
    value: float

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class CircularPad1d(_CircularPadNd):
    """Continues each sequence by its other end, as if it were a ring."""

    _spatial = 1


class CircularPad2d(_CircularPadNd):
    """Continues each image by its other side, as if it were a torus."""

    _spatial = 2


class CircularPad3d(_CircularPadNd):
    """Continues each volume by its other side, as if space were periodic."""

    _spatial = 3


class ConstantPad1d(_ConstantPadNd):
    """Continues each sequence by a constant, `padding` times on each side or (left, right)."""

    _spatial = 1


class ConstantPad2d(_ConstantPadNd):
    """Surrounds each image by a constant, `padding` pixels on each side or (left, right, top, bottom)."""

    _spatial = 2


class ConstantPad3d(_ConstantPadNd):
    """Surrounds each volume by a constant, `padding` voxels on each side, or six numbers."""

    _spatial = 3


class ReflectionPad1d(_ReflectionPadNd):
    """Continues each sequence by its mirror image, without repeating the value at the border."""

    _spatial = 1


class ReflectionPad2d(_ReflectionPadNd):
    """Surrounds each image by its mirror image, without repeating the pixels at the border."""

    _spatial = 2


class ReflectionPad3d(_ReflectionPadNd):
    """Surrounds each volume by its mirror image, without repeating the voxels at the border."""

    _spatial = 3


class ReplicationPad1d(_ReplicationPadNd):
    """Continues each sequence by its outermost values, `padding` times on each side or (left, right)."""

    _spatial = 1


class ReplicationPad2d(_ReplicationPadNd):
    """Surrounds each image by its outermost values, `padding` pixels on each side or (left, right, top, bottom)."""

    _spatial = 2


class ReplicationPad3d(_ReplicationPadNd):
    """Surrounds each volume by its outermost values, `padding` voxels on each side, or six numbers."""

    _spatial = 3


class ZeroPad1d(ConstantPad1d):
    """Continues each sequence by zeros, `padding` of them on each side or (left, right)."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    extra_repr = _PadNd.extra_repr


class ZeroPad2d(ConstantPad2d):
    """Surrounds each image by zeros, `padding` of them on each side or (left, right, top, bottom)."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    extra_repr = _PadNd.extra_repr


class ZeroPad3d(ConstantPad3d):
    """Surrounds each volume by zeros, `padding` of them on each side or (left, right, top, bottom, front, back)."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    extra_repr = _PadNd.extra_repr
