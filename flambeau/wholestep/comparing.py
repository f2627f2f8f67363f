"""Whether a recording gave what the function gives."""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any

import numpy as np

from ..core.casts import casts
from ..core.graph import grad_mode
from ..core.tensor import Tensor


class Print:
    """What is remembered of some memory, to compare other memory with it later: of a little, its bytes; of much, a digest of them and,
    for numbers, a weighted sum of each 32, which costs a sixteenth of what it stands for."""

    def __init__(self, address: int, size: int, kind: Any = np.float32):
        self.size, self.kind = size, kind
        self.bytes = ctypes.string_at(address, size) if size <= _SMALL else None
        self.digest, self.sums = b"", None
        if self.bytes is None:
            self.digest = _digest(address, size)
            self.sums = _sums(address, size, kind)[0] if kind is not None else None

    def matches(self, address: int) -> bool:
        """Whether the memory there holds the same bytes, or numbers that are as good as the same."""
        if self.bytes is not None:
            return ctypes.string_at(address, self.size) == self.bytes or self._close(address)
        if _digest(address, self.size) == self.digest:
            return True
        if self.sums is None:
            return False
        sums, spread, largest = _sums(address, self.size, self.kind)
        limit = _TOLERANCE[np.dtype(self.kind).itemsize] * 8
        return bool(np.all(np.abs(sums - self.sums) <= limit * (spread + max(largest, 1e-6))))

    def _close(self, address: int) -> bool:
        assert self.bytes is not None
        if self.kind is None or self.size % np.dtype(self.kind).itemsize:
            return False
        a = numbers_at(address, self.size, self.kind)
        b = numbers_at(ctypes.addressof(held := ctypes.create_string_buffer(self.bytes, self.size)), self.size, self.kind)
        fine = np.isfinite(a) & np.isfinite(b)
        limit = _TOLERANCE[np.dtype(self.kind).itemsize]
        scale = float(np.abs(a[fine]).max(initial=0.0))
        del held
        return bool(np.allclose(a, b, rtol=limit, atol=limit * max(scale, 1e-6), equal_nan=True))


class TensorPrint:
    """A `Print` of a tensor's values, and what it looks like."""

    def __init__(self, t: Tensor):
        with modes_off():
            self.shape, self.dtype = t.shape, t.dtype
            dense = t.detach().contiguous()
            self.print = Print(dense.data_ptr(), dense.numel() * dense.dtype.itemsize, _KINDS.get(dense.dtype.name))

    def matches(self, other: Any) -> bool:
        if other is None or other.shape != self.shape or other.dtype is not self.dtype:
            return False
        with modes_off():
            dense = other.detach().contiguous()
            return not self.print.size or self.print.matches(dense.data_ptr())


_SMALL = 1 << 16
_ROW, _PIECE = 32, 1 << 18  # numbers in a sum, and bytes that are looked at together
_TOLERANCE = {2: 1e-2, 4: 2e-5, 8: 1e-9}
_WEIGHTS = np.random.default_rng(0).uniform(0.5, 1.5, _ROW) * np.where(np.arange(_ROW) * 7 % 5 < 2, 1, -1)
_KINDS: dict[str, Any] = {
    "float32": np.float32, "float64": np.float64, "float16": np.float16, "bfloat16": np.uint16,
    "complex64": np.float32, "complex128": np.float64,
}  # fmt: skip


def numbers_at(address: int, size: int, kind: Any) -> np.ndarray:
    """Numbers in memory, as float64. uint16 stands for bfloat16: NumPy has none."""
    raw = np.frombuffer((ctypes.c_char * size).from_address(address), kind)
    if kind is np.uint16:
        raw = (raw.astype(np.uint32) << 16).view(np.float32)
    return raw.astype(np.float64)


def _digest(address: int, size: int) -> bytes:
    return hashlib.blake2b((ctypes.c_char * size).from_address(address), digest_size=16).digest()


def _sums(address: int, size: int, kind: Any) -> tuple[np.ndarray, np.ndarray, float]:
    """Of each row of numbers a weighted sum and the sum of their weighted magnitudes; and the largest magnitude. Infinities and nan count
    by their kind and place."""
    sums, spreads, largest = [], [], 0.0
    width = np.dtype(kind).itemsize
    for at in range(0, size - size % width, _PIECE):
        values = numbers_at(address + at, min(_PIECE, size - size % width - at), kind)
        values = np.pad(values, (0, -len(values) % _ROW))
        odd = ~np.isfinite(values)
        marks = 0.0
        if odd.any():
            kinds = np.where(np.isnan(values), 3.0, np.where(values > 0, 5.0, 7.0)) * odd
            values = np.where(odd, 0.0, values)
            marks = kinds.reshape(-1, _ROW) @ _WEIGHTS * 1e30
        rows = values.reshape(-1, _ROW)
        sums.append(rows @ _WEIGHTS + marks)
        spreads.append(np.abs(rows).max(1))
        largest = max(largest, float(np.abs(rows).max(initial=0.0)))
    return np.concatenate(sums), np.concatenate(spreads), largest


class modes_off:  # noqa: N801 - reads like a keyword
    """Inside, nothing is recorded or cast."""

    def __enter__(self) -> None:
        self.before, grad_mode.enabled = grad_mode.enabled, False
        self.cast, casts.active = casts.active, False

    def __exit__(self, *exc: Any) -> None:
        grad_mode.enabled, casts.active = self.before, self.cast


__all__ = ["Print", "TensorPrint", "modes_off"]
