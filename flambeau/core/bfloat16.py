"""bfloat16 without a NumPy dtype: the upper 16 bits of a float32, carried in uint16 arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

_QUIET_NAN = np.uint16(0x7FC0)


def bits_to_float32(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The values of bfloat16 `bits` (uint16, any shape or strides) as a new float32 array; exact."""
    wide = bits.astype(np.uint32)
    # The in-place shift also works for 0-dim arrays, which operators would turn into NumPy scalars.
    np.left_shift(wide, 16, out=wide)
    return wide.view(np.float32)


def float32_to_bits(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """float32 `values` rounded to nearest even, as a new uint16 array of bfloat16 bits. Every NaN becomes 0x7FC0."""
    word = np.ascontiguousarray(values, dtype=np.float32).reshape(values.shape).view(np.uint32)
    # Adding 0x7FFF, plus one when the last kept bit is odd, carries into the upper half exactly when nearest-even
    # rounds up; an overflow past the largest finite value lands on the infinity pattern by itself.
    rounded = np.right_shift(word, 16, out=np.empty(word.shape, np.uint32))
    np.bitwise_and(rounded, 1, out=rounded)
    np.add(rounded, 0x7FFF, out=rounded)
    np.add(rounded, word, out=rounded)
    np.right_shift(rounded, 16, out=rounded)
    bits = rounded.astype(np.uint16)
    # A NaN is the one value that the carry can spoil (into infinity or zero).
    bits[np.isnan(values)] = _QUIET_NAN
    return bits
