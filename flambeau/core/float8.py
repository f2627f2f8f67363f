"""The 8-bit floats: stored and converted, but not used in arithmetic. NumPy holds them in records of one byte.

Each format is a table of 256 values; conversion finds the nearest of them, ties to the even code.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from .bfloat16 import bits_to_float32, float32_to_bits
from .dtype import FLOAT8, bfloat16, complex32, dtype

# name: (bits of the exponent, bits of the significand, bias)
_FORMATS = {
    "float8_e4m3fn": (4, 3, 7),
    "float8_e5m2": (5, 2, 15),
    "float8_e4m3fnuz": (4, 3, 8),
    "float8_e5m2fnuz": (5, 2, 16),
}
SCALES = "float8_e8m0fnu"  # powers of two, positive
_NAN = {"float8_e4m3fn": 0x7F, "float8_e5m2": 0x7F, "float8_e4m3fnuz": 0x80, "float8_e5m2fnuz": 0x80, SCALES: 0xFF}


@cache
def values(name: str) -> np.ndarray[Any, Any]:
    """Return the float32 values of the codes 0 to 255."""
    codes = np.arange(256)
    if name == SCALES:
        found = np.ldexp(1.0, codes - 127)
        found[_NAN[name]] = np.nan
        return found.astype(np.float32)
    exponent_bits, fraction_bits, bias = _FORMATS[name]
    exponent = codes >> fraction_bits & (1 << exponent_bits) - 1
    fraction = codes & (1 << fraction_bits) - 1
    normal = np.ldexp(1 + fraction / (1 << fraction_bits), exponent - bias)
    subnormal = np.ldexp(fraction / (1 << fraction_bits), 1 - bias)
    found = np.where(exponent > 0, normal, subnormal) * np.where(codes & 0x80, -1.0, 1.0)
    if name.endswith("uz"):
        found[_NAN[name]] = np.nan
    elif name.endswith("fn"):
        found[[0x7F, 0xFF]] = np.nan
    else:  # as in IEEE 754, the largest exponent is for infinities and NaN
        top = exponent == (1 << exponent_bits) - 1
        found[top & (fraction > 0)] = np.nan
        found[top & (fraction == 0)] *= np.inf
    return found.astype(np.float32)


def decode(bits: np.ndarray[Any, Any], d: dtype) -> np.ndarray[Any, Any]:
    """Return the values of codes (in NumPy's records, or as uint8), as float32; exact."""
    return values(d.name)[np.asarray(bits).view(np.uint8)]


def encode(numbers: np.ndarray[Any, Any], d: dtype) -> np.ndarray[Any, Any]:
    """Round numbers to float32 and return the codes of the nearest values, as NumPy's records of this type."""
    with np.errstate(all="ignore"):
        return np.asarray(_nearest(np.asarray(numbers, np.float32), d)).view(d.numpy)


def _nearest(numbers: np.ndarray[Any, Any], d: dtype) -> np.ndarray[Any, Any]:
    size = np.abs(numbers)
    if d.name == SCALES:
        return _encode_scales(size)
    positive = values(d.name)[:128]
    finite = positive[np.isfinite(positive)].astype(np.float64)  # ascending, as the codes are
    below = np.searchsorted(finite, size, side="right") - 1
    below = np.clip(below, 0, len(finite) - 2)
    middle = (finite[below] + finite[below + 1]) / 2
    code = below + ((size > middle) | ((size == middle) & (below % 2 == 1)))
    code = _overflow(code, size, finite, d.name)
    negative = np.signbit(numbers)
    if d.name.endswith("uz"):
        negative = negative & (code != 0)  # there is one zero, and its sign is NaN's code
    code = np.where(negative, code | 0x80, code)
    nan = np.isnan(size)
    return np.where(nan, _NAN[d.name] | (0x80 * np.signbit(numbers)), code).astype(np.uint8)


def _overflow(
    code: np.ndarray[Any, Any], size: np.ndarray[Any, Any], finite: np.ndarray[Any, Any], name: str
) -> np.ndarray[Any, Any]:
    """Replace the codes of values beyond the largest: by it (saturation), infinity, or NaN, as the format's conversion defines."""
    largest = len(finite) - 1
    limit = finite[-1] + (finite[-1] - finite[-2]) / 2
    if name == "float8_e4m3fn":
        return np.minimum(code, largest)
    beyond = size >= limit
    return np.where(beyond, 0x7C if name == "float8_e5m2" else _NAN[name], code)


def _encode_scales(size: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the nearest power of two by the bits of a float32: its exponent, and one more from one and a half upwards. Below the smallest
    normal number half of the significand is the smallest power itself."""
    word = size.view(np.uint32)
    exponent, rest = (word >> 23).astype(np.int64), word & 0x7FFFFF
    code = exponent + ((rest > 0x400000) | ((rest == 0x400000) & (exponent > 0)))
    return np.where(np.isfinite(size), np.minimum(code, 0xFF), 0xFF).astype(np.uint8)


def readable(array: np.ndarray[Any, Any], d: dtype) -> np.ndarray[Any, Any]:
    """Convert stored elements to numbers that NumPy supports: float32 or complex64 for types that it lacks."""
    if d is bfloat16:
        return bits_to_float32(array)
    if d is complex32:
        return join_halves(array)
    return decode(array, d) if d in FLOAT8 else array


def storable(numbers: np.ndarray[Any, Any], d: dtype) -> np.ndarray[Any, Any]:
    """Convert numbers to stored elements of types that NumPy lacks; other arrays are returned unchanged."""
    if d is bfloat16:
        return float32_to_bits(numbers.astype(np.float32))
    if d is complex32:
        return part_halves(numbers)
    return encode(numbers, d) if d in FLOAT8 else numbers


def join_halves(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return complex64 numbers from an array of pairs of float16."""
    joined = np.empty(np.shape(array), np.complex64)
    joined.real, joined.imag = array["real"], array["imag"]
    return joined


def part_halves(numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return complex (or real) numbers as an array of pairs of float16, rounded by way of float32."""
    parted = np.empty(np.shape(numbers), complex32.numpy)
    with np.errstate(over="ignore"):
        parted["real"] = np.real(numbers).astype(np.float32)
        parted["imag"] = np.imag(numbers).astype(np.float32)
    return parted
