"""Comparison of a recording's values with those of the function."""

from __future__ import annotations

import ctypes
import functools
import hashlib
from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...backends.cpu import jit
from ...core.dtype import FLOAT8
from ...core.tensor import Tensor
from ...graph.replay import modes_off
from ...kernels.llvm_text import Function


class Print:
    """Fingerprint of some memory, to compare other memory with later: the bytes themselves if they are few, else a
    weighted sum of every 32 floating-point numbers (a thirty-second of their size), and for other kinds of data a digest."""

    def __init__(self, address: int, size: int, kind: Any = np.float32):
        self.size, self.kind = size, kind
        self.bytes = ctypes.string_at(address, size) if size <= _SMALL else None
        self.digest = _digest(address, size) if self.bytes is None and kind is None else b""
        self.sums = _sums(address, size, kind) if self.bytes is None and kind is not None else None

    def matches(self, address: int) -> bool:
        """Return whether the memory at an address holds the same bytes, or floating-point numbers equal up to rounding."""
        if self.bytes is not None:
            return ctypes.string_at(address, self.size) == self.bytes or self._close(address)
        if self.sums is None:
            return _digest(address, self.size) == self.digest
        found = _sums(address, self.size, self.kind)
        if found == self.sums:
            return True
        sums, known = (np.frombuffer(s, s.typecode) for s in (found, self.sums))
        row, largest = _magnitudes(address, self.size, self.kind)
        limit = _OF_SUMS[np.dtype(self.kind).itemsize]
        with np.errstate(invalid="ignore"):
            near = np.abs(sums - known) <= limit * (row + max(largest, 1e-6))
        return bool(np.all(near | (sums == known)))

    def _close(self, address: int) -> bool:
        if self.bytes is None or self.kind is None or self.size % np.dtype(self.kind).itemsize:
            return False
        held = ctypes.create_string_buffer(self.bytes, self.size)
        a, b = (numbers(at, self.size, self.kind).astype(np.float64) for at in (address, ctypes.addressof(held)))
        fine = np.isfinite(a) & np.isfinite(b)
        limit = _TOLERANCE[np.dtype(self.kind).itemsize]
        scale = float(np.abs(a[fine]).max(initial=0.0))
        return bool(np.allclose(a, b, rtol=limit, atol=limit * max(scale, 1e-6), equal_nan=True))


class TensorPrint:
    """Fingerprint of a tensor: its shape, dtype and values."""

    def __init__(self, t: Tensor):
        with modes_off():
            self.shape, self.dtype = t.shape, t.dtype
            dense = t.detach().contiguous()
            self.print = Print(dense.data_ptr(), dense.numel() * dense.dtype.itemsize, kind_of(dense.dtype))

    def matches(self, other: Any) -> bool:
        if other is None or other.shape != self.shape or other.dtype is not self.dtype:
            return False
        with modes_off():
            dense = other.detach().contiguous()
            return not self.print.size or self.print.matches(dense.data_ptr())


_SMALL = 1 << 13
_ROW, _PIECE = 32, 1 << 20  # numbers in a sum, and bytes that are looked at together
_TOLERANCE = {2: 1e-2, 4: 2e-5, 8: 1e-9}  # by the size of numbers
_OF_SUMS = {2: 1e-2, 4: 1.6e-4, 8: 8e-9}
WEIGHTS = np.array([(0.5 + (k + 1) * 0.6180339887498949 % 1) * (1 if k * 7 % 5 < 2 else -1) for k in range(_ROW)])
_look = ctypes.pythonapi.PyMemoryView_FromMemory  # makes no type of its own for each size, as arrays of ctypes would
_look.restype, _look.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
_WRITABLE = 0x200


def kind_of(d: Any) -> Any:
    """Return NumPy's scalar type for the numbers of a floating-point or complex dtype (uint16 for bfloat16), or None for other dtypes."""
    real = d.to_real()
    return real.numpy.type if real.limits is not None and real not in FLOAT8 else None


def numbers(address: int, size: int, kind: Any) -> np.ndarray:
    """Return numbers in memory as an array of float32 or float64."""
    raw = np.frombuffer(view(address, size), kind)
    if kind is np.uint16:
        return (raw.astype(np.uint32) << 16).view(np.float32)
    return raw.astype(np.float32) if kind is np.float16 else raw


def view(address: int, size: int) -> memoryview:
    """Return a view of bytes in memory that another object keeps alive."""
    return _look(address, size, _WRITABLE)


def _digest(address: int, size: int) -> bytes:
    return hashlib.blake2b(view(address, size), digest_size=16).digest()


def _rows(address: int, size: int, kind: Any) -> Iterator[np.ndarray]:
    """Yield numbers in memory as rows, a piece at a time, the last row padded with zeros."""
    size -= size % np.dtype(kind).itemsize
    for at in range(0, size, _PIECE):
        values = numbers(address + at, min(_PIECE, size - at), kind)
        yield (values if len(values) % _ROW == 0 else np.pad(values, (0, -len(values) % _ROW))).reshape(-1, _ROW)


def _sums(address: int, size: int, kind: Any) -> array:
    """Return a weighted sum of each row of numbers, in which infinities and NaN count by their kind and place."""
    letter = {np.float32: "f", np.float64: "d"}.get(kind)
    if letter is not None:
        width = array(letter).itemsize
        rows, rest = divmod(size // width, _ROW)
        found, odd = array(letter, bytes((rows + bool(rest)) * width)), array(letter, [0])
        native, out, flag = _summing(letter), found.buffer_info()[0], odd.buffer_info()[0]
        native(address, rows, out, flag)
        if rest:
            last = array(letter, bytes(_ROW * width))
            ctypes.memmove(last.buffer_info()[0], address + rows * _ROW * width, rest * width)
            native(last.buffer_info()[0], 1, out + rows * width, flag)
        if odd[0] == 0:
            return found
    return array(letter or "f", b"".join(_odd_sums(rows).tobytes() for rows in _rows(address, size, kind)))


def _odd_sums(rows: np.ndarray) -> np.ndarray:
    """Return the weighted sums of rows that may contain infinities and nan."""
    odd = ~np.isfinite(rows)
    kinds = np.where(np.isnan(rows), 3.0, np.where(rows > 0, 5.0, 7.0)) * odd
    with np.errstate(invalid="ignore", over="ignore"):
        return (np.where(odd, 0.0, rows).astype(np.float64) @ WEIGHTS + 1e30 * (kinds @ WEIGHTS)).astype(rows.dtype)


@functools.cache
def _summing(letter: str) -> Any:
    """Return a native function sums(numbers, number of rows, place for the sums, place for a flag that is set if a sum is not finite).
    NumPy's version would load a library of linear algebra into memory."""
    kind, name, size = ("float", "f32", 4) if letter == "f" else ("double", "f64", 8)
    bits = array("Q", array("d", array(letter, WEIGHTS.tolist())).tobytes())  # as LLVM writes numbers of both kinds
    weights = ", ".join(f"{kind} 0x{word:016X}" for word in bits)
    vector, total = f"<{_ROW} x {kind}>", f"@llvm.vector.reduce.fadd.v{_ROW}{name}"
    f = Function("define void @sums(ptr %numbers, i64 %rows, ptr %sums, ptr %odd)")
    sign = f.slot(kind)
    f.write(kind, f.read(kind, "%odd"), sign)
    with f.loop("%rows") as i:
        row = f.new(f"load {vector}, ptr {f.place('%numbers', i, vector)}, align {size}")
        weighted = f.new(f"fmul {vector} {row}, <{weights}>")
        found = f.call(kind, total, f"{kind} 0.0", f"{vector} {weighted}", flags="reassoc ")
        f.write(kind, found, f.place("%sums", i, kind))
        nothing = f.new(f"fmul {kind} {found}, 0.0")
        f.write(kind, f.new(f"fadd {kind} {f.read(kind, sign)}, {nothing}"), sign)
    f.write(kind, f.read(kind, sign), "%odd")
    return jit.support_function(f, signature="plpp", brief=True)


def _magnitudes(address: int, size: int, kind: Any) -> tuple[np.ndarray, float]:
    """Return the largest magnitude of each row, and of all, ignoring infinities and nan."""
    found = [np.abs(np.where(np.isfinite(rows), rows, 0)).max(1) for rows in _rows(address, size, kind)]
    together = np.concatenate(found)
    return together, float(together.max(initial=0.0))
