"""Operands as kernels read them, and results in the memory format of an operand."""

from __future__ import annotations

from typing import Any

from ...core.device import cpu
from ...core.graph import grad_mode
from ...core.layout import channels_last_strides, is_channels_last, suggests_channels_last
from ...core.tensor import Tensor, empty, empty_strided


def is_last(x: Tensor) -> bool:
    """Whether the channels of x lie next to each other in memory (and that is not simply contiguous)."""
    return suggests_channels_last(x.shape, x._strides) and is_channels_last(x.shape, x._strides)


def new_like(x: Tensor, shape: tuple[int, ...], d: Any = None) -> Tensor:
    """An uninitialised result in the memory format of x."""
    if is_last(x):
        return empty_strided(shape, channels_last_strides(shape), d or x.dtype, x.device)
    return empty(shape, d or x.dtype, x.device)


def without_gaps(x: Tensor) -> Tensor:
    """x itself, or the values of a part of a channels-last tensor as a channels-last tensor without gaps or history."""
    if x._contig or not suggests_channels_last(x.shape, x._strides) or is_channels_last(x.shape, x._strides):
        return x
    copy = empty_strided(x.shape, channels_last_strides(x.shape), x.dtype, x.device)
    return copy.copy_(x._bare_alias())  # type: ignore[attr-defined]


def bare(x: Tensor) -> Tensor:
    """The values of x, contiguous, without history."""
    return (x if x._autograd is None else x._bare_alias()).contiguous()


def dense(x: Tensor) -> Tensor:
    """The tensor itself if it is contiguous, else a contiguous copy without history: for kernels, which see no history."""
    return x if x._contig else bare(x)


def recording(x: Tensor) -> bool:
    """Whether autograd will want the gradient of what is computed from x now."""
    return grad_mode.enabled and (x.requires_grad or (x._base is not None and x.grad_fn is not None))


def is_computed(x: Tensor) -> bool:
    """Whether there is memory to work on: not on the meta device."""
    return x.device is cpu
