"""Numbers of the NumPy reference: conversions between memory, dtypes and constants.

A *value* is an array in the dtype that arithmetic happens in (`opmath`), so half-width floats appear as float32
between a load and a store. All functions here are total: nan, infinities and out-of-range numbers have PyTorch's
answer and never warn.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core import dtype as dt
from ..core import float8
from ..core.dtype import dtype, opmath


def from_memory(array: Any, d: dtype) -> np.ndarray[Any, Any]:
    """Convert elements as stored (bfloat16: uint16 bits) to a value."""
    if d is dt.bfloat16:
        return (np.asarray(array, dtype=np.uint16).astype(np.uint32) << 16).view(np.float32)
    if d in dt.FLOAT8:
        return float8.decode(np.asarray(array), d)
    if d is dt.complex32:
        return float8.join_halves(np.asarray(array, dtype=d.numpy))
    return np.asarray(array, dtype=d.numpy).astype(opmath(d).numpy)


def to_memory(value: np.ndarray[Any, Any], d: dtype) -> np.ndarray[Any, Any]:
    """Convert a value (of any dtype) to elements as stored, rounding once."""
    if d is dt.bfloat16:
        return bfloat16_bits(convert(value, dt.float32))
    if d in dt.FLOAT8:
        return float8.encode(convert(value, dt.float32), d)
    if d is dt.complex32:
        return float8.part_halves(convert(value, dt.complex64))
    if d is dt.float16:  # float64 goes through float32, as in PyTorch
        return convert(value, dt.float32).astype(np.float16)
    return convert(value, d)


def bfloat16_bits(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the upper 16 bits of float32 numbers, rounded half to even; every nan becomes the one canonical nan."""
    bits = np.ascontiguousarray(value, dtype=np.float32).view(np.uint32).reshape(np.shape(value))
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16
    return np.where(np.isnan(value), np.uint16(0x7FC0), rounded.astype(np.uint16))


def convert(value: np.ndarray[Any, Any], to: dtype) -> np.ndarray[Any, Any]:
    """Convert a value to dtype `to`, with PyTorch's semantics. A half-width `to` rounds and returns float32."""
    if opmath(to) is not to:
        return from_memory(to_memory(value, to), to)
    value = np.asarray(value)
    if value.dtype == to.numpy:
        return value
    if to is dt.bool_:
        return value != 0
    if value.dtype.kind == "c" and not to.is_complex:
        value = value.real
    if value.dtype.kind == "f" and to.category == 1:
        return _float_to_integer(value, to)
    with np.errstate(all="ignore"):
        return value.astype(to.numpy)  # integers wrap


def _float_to_integer(value: np.ndarray[Any, Any], to: dtype) -> np.ndarray[Any, Any]:
    """Truncate to integers; numbers out of range become the smallest integer of the machine conversion (int32 for narrow types, int64 for
    uint32), of which narrow types keep the low bits."""
    if to is dt.uint64:
        high = value >= 2.0**63
        low_part = _truncate(np.where(high, value - 2.0**63, value), np.int64).astype(np.uint64)
        return np.where(high, low_part ^ np.uint64(1 << 63), low_part)
    machine = np.int64 if to is dt.int64 or to is dt.uint32 else np.int32
    return _truncate(value, machine).astype(to.numpy)


def _truncate(value: np.ndarray[Any, Any], to: type) -> np.ndarray[Any, Any]:
    limits = np.iinfo(to)
    whole = np.trunc(value)
    fits = (whole >= float(limits.min)) & (whole < -float(limits.min))  # false for nan
    return np.where(fits, np.where(fits, whole, 0).astype(to), to(limits.min))


def constant(number: Any, d: dtype) -> np.ndarray[Any, Any]:
    """Return a Python number in dtype `d`; integers wrap."""
    if d.category == 1 and isinstance(number, int):
        bits = 8 * d.itemsize
        wrapped = int(number) & ((1 << bits) - 1)
        return np.array(wrapped - (1 << bits) if d.is_signed and wrapped >> (bits - 1) else wrapped, dtype=d.numpy)
    if d.is_complex or not isinstance(number, complex):
        with np.errstate(all="ignore"):
            if d.category >= 2 and isinstance(number, int):
                number = float(number) if abs(number) < 1 << 1023 else float("inf") * (1 if number > 0 else -1)
            return convert(np.asarray(number), d)
    return convert(np.asarray(number.real), d)
