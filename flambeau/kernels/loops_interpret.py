"""Loop kernels interpreted as Python functions over NumPy views of their buffers.

Slow and simple: the reference for tests of compiled kernels, and the fallback without a compiler. Every index is checked against the buffer,
so a kernel that reads outside its operands fails here with a message.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ..core import dtype as dt
from ..core import float8
from ..core.dtype import FROM_NUMPY, dtype
from .loops_language import compute_dtype, convert
from .scalar_function import as_python


class Memory:
    """A buffer of an interpreted kernel: elements load as the numbers kernels compute with."""

    __slots__ = ("cells", "dtype", "name")

    def __init__(self, name: str, kind: dtype, cells: np.ndarray[Any, Any]):
        self.name, self.dtype, self.cells = name, kind, cells

    def __getitem__(self, index: Any) -> Any:
        cell = self.cells[self._check(index)]
        if self.dtype is dt.bfloat16:
            return (cell.astype(np.uint32) << np.uint32(16)).view(np.float32)
        if self.dtype in dt.FLOAT8:
            return float8.decode(cell, self.dtype)
        if self.dtype is dt.complex32:
            return float8.join_halves(cell)[()]
        return convert(cell, compute_dtype(self.dtype))

    def __setitem__(self, index: Any, value: Any) -> None:
        self.cells[self._check(index)] = to_cell(value, self.dtype)

    def _check(self, index: Any) -> int:
        if isinstance(index, (bool, np.bool_)) or not isinstance(index, (int, np.integer)):
            raise TypeError(f"'{self.name}' is indexed by an integer, not by {index!r}")
        if not 0 <= index < self.cells.size:
            raise IndexError(f"index {index} is out of bounds of '{self.name}', which has {self.cells.size} elements")
        return int(index)


def to_cell(value: Any, kind: dtype) -> Any:
    """Return a number as it is stored in memory."""
    if kind in dt.FLOAT8:
        return float8.encode(np.float32(value), kind)
    if kind is dt.complex32:
        return float8.part_halves(np.complex64(value))[()]
    if kind is not dt.bfloat16:
        return kind.numpy.type(value) if kind is dt.float16 else convert(value, kind)
    bits = int(np.float32(value).view(np.uint32))
    if bits & 0x7FFFFFFF > 0x7F800000:  # nan stays nan
        return np.uint16(bits >> 16 | 0x40)
    return np.uint16((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF)


def buffer_dtype(operand: Any) -> dtype:
    return FROM_NUMPY[operand.dtype] if isinstance(operand, np.ndarray) else operand.dtype


def memory(name: str, operand: Any) -> Memory:
    """Return the elements from an operand's first one to its last one in memory."""
    kind = buffer_dtype(operand)
    if isinstance(operand, np.ndarray):
        return Memory(name, kind, operand.reshape(-1).view())
    strides = operand.stride() if hasattr(operand, "stride") else operand._strides
    shape = tuple(operand.shape)
    count = 0 if 0 in shape else 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
    if count == 0:
        return Memory(name, kind, np.empty(0, kind.numpy))
    block = (ctypes.c_char * (count * kind.itemsize)).from_address(operand.data_ptr())
    return Memory(name, kind, np.frombuffer(memoryview(block), kind.numpy))


def interpret(function: Any, operands: dict[str, Any], constants: dict[str, Any]) -> None:
    arguments = {n: memory(n, v) if hasattr(v, "dtype") and hasattr(v, "shape") else v for n, v in operands.items()}
    plain = {n: int(v) if isinstance(v, (bool, np.integer)) else v for n, v in arguments.items()}
    with np.errstate(all="ignore"):
        as_python(function)(**plain, **constants)
