"""Helpers about tensors that libraries import from PyTorch's private module of primitives."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.layout import channels_last, channels_last_3d, contiguous_format, memory_format
from ...core.tensor import Tensor


def suggest_memory_format(x: Tensor) -> memory_format:
    """Return the memory format of a tensor: channels last if it has that layout, else contiguous."""
    for rank, wanted in ((4, channels_last), (5, channels_last_3d)):
        if x.dim() == rank and not x.is_contiguous() and x.is_contiguous(memory_format=wanted):
            return wanted
    return contiguous_format


def make_contiguous_strides_for(shape: Sequence[int], row_major: bool = True) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor; unless row_major, with its last two dimensions exchanged in memory."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= max(size, 1)
    if not row_major and len(strides) >= 2:
        strides[-2:] = [1, max(shape[-2], 1)]
    return tuple(strides)


def is_contiguous_or_false(a: Tensor) -> bool:
    """Return whether a tensor is contiguous; with sizes that are numbers this is always known."""
    return a.is_contiguous()
