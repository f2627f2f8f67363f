"""Order keys: integers that sort as the elements do, nan last. Sorting and selection compare keys only."""

from __future__ import annotations

from ...core.dtype import bfloat16, bool_, float16, float32, float64, int64, uint64
from ..loops import bitcast, i32, i64, isnan, scalar_function

HALF = 1 << 31
LOWEST = -(1 << 63)


@scalar_function
def order_key(v, *, kind, descending):
    """Return the key of an element of dtype `kind`: 0 .. 2**32 - 1 for up to 32 bits, else an int64 whose bits, read as unsigned, have the
    order. 0.0 and -0.0 have the same key, and every nan the largest."""
    if kind is float32 or kind is bfloat16 or kind is float16:
        b = i64(bitcast(v + 0.0, i32))
        key = b + HALF if b >= 0 else -b - 1
        if isnan(v):
            key = 2 * HALF - 1
        return 2 * HALF - 1 - key if descending else key
    if kind is float64:
        b = bitcast(v + 0.0, i64)
        key = b ^ LOWEST if b >= 0 else -b - 1
        if isnan(v):
            key = -1
        return -1 - key if descending else key
    if kind is int64:
        key = v ^ LOWEST
        return -1 - key if descending else key
    if kind is uint64:
        key = i64(v)
        return -1 - key if descending else key
    key = i64(v) + HALF
    return 2 * HALF - 1 - key if descending else key


__all__ = ["HALF", "LOWEST", "bool_", "order_key"]
