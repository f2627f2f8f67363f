"""The fastest of the algorithms that cuBLASLt recommends for a large product, found by measuring once and stored on disk.

The library's heuristic puts an algorithm first that takes up to a fifth longer than the best of its list (H200, bfloat16). Measuring takes
some milliseconds a product, so it is done for those of compiled functions only, which run many times."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.backend import backend_of
from ...core.storage import UntypedStorage
from ...kernels import cache
from . import cublaslt, driver, streams

_RUNS = 4
_GAIN = 0.985  # of the first one's time that another must not exceed to be taken
_BLOCK = 1 << 19  # random numbers, which are repeated


def tune(where: Any) -> bool:
    """Measure the products that this thread has computed on a device, unless that was done before. Return whether another algorithm than the
    first was best for one."""
    found = False
    blocks: dict[Any, UntypedStorage] = {}
    for key, plan in cublaslt.plans(where):
        if len(plan.candidates) < 2 or plan.quickest is not plan.candidates[0]:
            continue
        name = cache.digest("product", repr(key), driver.device_name(where.index or 0), str(cublaslt.version()))
        known = cache.read(name, cache.CHOICE)
        if known is not None and len(known) == ctypes.sizeof(plan.quickest):
            plan.quickest = type(plan.quickest).from_buffer_copy(known)
        else:
            plan.quickest = _measured(plan, (key[7], key[5], key[6]), max(*key[0], *key[1]), blocks)
            cache.write(name, bytes(plan.quickest), cache.CHOICE)
        found = found or bytes(plan.quickest) != bytes(plan.candidates[0])
        del plan.candidates[1:]
    return found


def _measured(plan: Any, dtypes: tuple[Any, ...], most: int, blocks: dict[Any, UntypedStorage]) -> Any:
    """Return the algorithm that took the least time, on random numbers. A bias has at most `most` elements."""
    where = plan.where
    out, a, b = (_random(span, d, where, blocks) for span, d in zip(plan.spans, dtypes))
    bias = _random(most, dtypes[0], where, blocks) if plan.bias > 0 else None
    given = (out.ptr, a.ptr, b.ptr, 0 if bias is None else bias.ptr)
    times = [_time(plan, algorithm, given) for algorithm in plan.candidates]
    plan.use(plan.candidates[0])
    best = min(range(len(times)), key=times.__getitem__)
    return plan.candidates[best if times[best] < _GAIN * times[0] else 0]


def _time(plan: Any, algorithm: Any, given: tuple[int, ...]) -> float:
    begin, end = streams.Event(enable_timing=True), streams.Event(enable_timing=True)
    first, plan.candidates[0] = plan.candidates[0], algorithm
    plan.use(algorithm)
    try:
        plan.run(*given)
        begin.record()
        for _ in range(_RUNS):
            plan.run(*given)
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)
    except driver.CudaError:  # the library recommends what it then refuses to run
        return math.inf
    finally:
        plan.candidates[0] = first


def _random(count: int, d: Any, where: Any, blocks: dict[Any, UntypedStorage]) -> UntypedStorage:
    """Return memory with random numbers of this dtype: on zeros a product is faster than on anything else."""
    backend, width = backend_of(where), d.itemsize
    if d not in blocks:
        wide = np.random.default_rng(0).standard_normal(_BLOCK).astype(np.float32)
        bits = (wide.view(np.uint32) >> 16).astype(np.uint16) if d is dt.bfloat16 else wide.astype(np.dtype(d.name))
        blocks[d] = UntypedStorage(_BLOCK * width, where)
        backend.write(blocks[d].ptr, bits.ctypes.data, _BLOCK * width, where)
    made = UntypedStorage(count * width, where)
    for at in range(0, count, _BLOCK):
        backend.copy(made.ptr + at * width, blocks[d].ptr, min(_BLOCK, count - at) * width, where)
    return made
