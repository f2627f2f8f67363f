"""Operands in the layouts that kernels read, and results in the memory format of an operand."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import watching
from ...core.backend import BACKENDS
from ...core.device import device
from ...core.dtype import dtype
from ...core.graph import grad_mode
from ...core.layout import channels_last_strides, is_channels_last, suggests_channels_last
from ...core.tensor import Tensor, copy_of_array, empty, empty_strided
from .inplace import transfer


def is_last(x: Tensor) -> bool:
    """Return whether the channels of x are adjacent in memory (and x is not simply contiguous)."""
    return suggests_channels_last(x.shape, x._strides) and is_channels_last(x.shape, x._strides)


def new_like(x: Tensor, shape: tuple[int, ...], d: Any = None) -> Tensor:
    """Return an uninitialised result in the memory format of x."""
    if is_last(x):
        return empty_strided(shape, channels_last_strides(shape), d or x.dtype, x.device)
    return empty(shape, d or x.dtype, x.device)


def layout_like(x: Tensor, shape: tuple[int, ...] | None = None, d: Any = None) -> tuple[Any, ...]:
    """Return the layout of a result in the memory format of `x`, dense even if `x` has gaps (see `Op.layout`)."""
    shape, d = x.shape if shape is None else shape, d or x.dtype
    if suggests_channels_last(x.shape, x._strides) and (not x._contig or is_channels_last(x.shape, x._strides)):
        return shape, d, x.device, channels_last_strides(shape)
    return shape, d, x.device


def layout_in_format_of(x: Tensor, shape: tuple[int, ...], d: Any = None) -> tuple[Any, ...]:
    """Return the layout of a result of this shape in the memory format of `x` (see `Op.layout`)."""
    if is_last(x):
        return shape, d or x.dtype, x.device, channels_last_strides(shape)
    return shape, d or x.dtype, x.device


class Table:
    """Constant numbers that kernels read, copied to every device on first use."""

    __slots__ = ("array", "dtype", "places")

    def __init__(self, array: np.ndarray, d: dtype):
        self.array, self.dtype = array, d
        self.places: dict[device, Tensor] = {}

    def on(self, where: device) -> Tensor:
        found = self.places.get(where)
        if found is None:
            made = copy_of_array(self.array, self.dtype)
            found = made if made.device is where else empty(made.shape, self.dtype, where)
            if found is not made:
                transfer(found, made)
            self.places[where] = found
        if watching.active:
            watching.tell_constant(found)
        return found


def without_gaps(x: Tensor) -> Tensor:
    """Return x itself, or the values of a part of a channels-last tensor as a channels-last tensor without gaps or history."""
    if x._contig or not suggests_channels_last(x.shape, x._strides) or is_channels_last(x.shape, x._strides):
        return x
    copy = empty_strided(x.shape, channels_last_strides(x.shape), x.dtype, x.device)
    return copy.copy_(x._bare_alias())


def bare(x: Tensor) -> Tensor:
    """Return the values of x, contiguous, without history."""
    return (x if x._autograd is None else x._bare_alias()).contiguous()


def dense(x: Tensor) -> Tensor:
    """Return the tensor itself if it is contiguous, else a contiguous copy without history, which kernels do not need."""
    return x if x._contig else bare(x)


def recording(x: Tensor) -> bool:
    """Return whether autograd will record what is computed from x now."""
    return grad_mode.enabled and (x.requires_grad or (x._base is not None and x.grad_fn is not None))


def raise_if_set(flag: Tensor, error: Exception, operator: str = "") -> None:
    """Raise the error unless the one number in a tensor, in which a kernel reports errors, is zero. With an operator's name, devices that can
    raise it at the host's next wait do that."""
    backend, place = BACKENDS[flag.device.type], (flag.data_ptr(), flag.dtype.itemsize)
    if operator and backend.raise_later(*place, operator, error, flag.device):
        return
    if not backend.is_zero(*place, flag.device, error):
        raise error


def tells(flag: Tensor, unknown: bool) -> bool:
    """Return the one number in a tensor as a truth value, to choose between two ways to the same result; `unknown` if there are no values."""
    return bool(flag.item()) if BACKENDS[flag.device.type].has_values else unknown


def values_on_host(x: Tensor) -> Any:
    """Return the values as an array in the host's memory, for reading at once: operators that call this read values."""
    return (x if BACKENDS[x.device.type].on_host else x.cpu())._array()


def like_first(first: Tensor, *_: Any, **__: Any) -> tuple[Any, ...]:
    """Return the layout of a contiguous result like the first argument: a layout rule."""
    return first.shape, first.dtype, first.device
