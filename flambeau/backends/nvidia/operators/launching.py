"""Loading of hand-written kernels: CUDA text, compiled once for a device."""

from __future__ import annotations

import functools
from typing import Any

from ....core.aliases import AnyFunction
from ....core.device import device
from ....core.dtype import dtype
from ....core.raw_memory import first_address as address
from ....kernels.cuda_values import PRELUDE, loaded, memory_type, stored, value_type
from ... import nvidia


@functools.cache
def function(source: str, name: str, kinds: str | tuple[Any, ...], where: device, shared: int = 0) -> AnyFunction:
    """Return the function `name` of a text, with one letter per parameter (see nvidia.load_source): f(grid, block, *values). Blocks get
    `shared` bytes of dynamic shared memory."""
    return nvidia.load_source(PRELUDE + source, where).function(name, tuple(kinds), shared)


def element_text(d: dtype) -> str:
    """Return the text of the types of an element in memory (T) and in arithmetic (A), and of the conversions between them."""
    return f"""
typedef {memory_type(d)} T;
typedef {value_type(d)} A;
__device__ __forceinline__ A get(T v) {{ return {loaded("v", d)}; }}
__device__ __forceinline__ T put(A v) {{ return {stored("v", d)}; }}
"""


def blocks_for(count: int, per_block: int, most: int = 1 << 30) -> int:
    return max(1, min(-(-count // per_block), most))


__all__ = ["address", "blocks_for", "element_text", "function"]
