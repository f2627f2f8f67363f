"""Conversions between the usual and the blocked layout of feature maps, where a kernel of our own beats oneDNN's reorder.

A reorder is machine code for one shape, made anew for every other; these kernels take any.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from flambeau.backends.cpu.onednn import library as dnnl
from flambeau.core import dtype as dtypes
from flambeau.kernels.library.blocked import blocks_from_rows, rows_from_blocks

# Format tags of (batch, channels in blocks, *spatial, block), by number of dimensions and size of blocks.
_TAGS = {(3, 16): 56, (4, 16): 78, (5, 16): 121, (3, 8): 69, (4, 8): 102, (5, 8): 142}
_OPERANDS = (dtypes.float32, dtypes.float32, int, int, int, int, int)


class FeatureMaps:
    """Layout of a float32 tensor (batch, channels, *spatial) whose positions are dense, for the kernels."""

    __slots__ = ("shape", "numbers")

    def __init__(self, shape: Sequence[int], strides: Sequence[int], positions: int):
        self.shape = tuple(shape)
        self.numbers = (shape[0], shape[1], positions, strides[0], strides[1])

    @staticmethod
    def of(shape: Sequence[int], strides: Sequence[int], data_type: int) -> FeatureMaps | None:
        """Return the layout of feature maps; None for other dtypes and layouts."""
        if data_type != dnnl.DATA_TYPES[dtypes.float32] or not 3 <= len(shape) <= 5:
            return None
        step = 1
        for size, stride in zip(reversed(shape[2:]), reversed(strides[2:])):
            if size != 1 and stride != step:
                return None
            step *= size
        return FeatureMaps(shape, strides, step)

    def to_blocks(self, is_blocked: Any) -> Any:
        """Return the native function that converts to blocks, if `is_blocked(tag)` says that they are wanted and a kernel is faster: if
        channels fill blocks of 8."""
        if self.shape[1] % 8 or not is_blocked(_TAGS[len(self.shape), 8]):
            return None
        return _native(blocks_from_rows, 8)

    def from_blocks(self, is_blocked: Any) -> Any:
        """Return the kernel that converts from blocks: if the last block of channels is not full, but at least half."""
        for block in (16, 8):
            channels = self.shape[1]
            if channels % block and 2 * channels >= block and is_blocked(_TAGS[len(self.shape), block]):
                return _native(rows_from_blocks, block)
        return None


@functools.cache
def _native(kernel: Any, block: int) -> Any:
    """Return the compiled kernel for blocks of this size; None if nothing can be compiled."""
    return kernel.native(*_OPERANDS, block=block)
