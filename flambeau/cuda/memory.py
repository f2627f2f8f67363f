"""Statistics of the GPU's memory, and functions that release it."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from ..backends.nvidia import pinned, threads
from ..backends.nvidia.memory import DeviceMemory, in_words, memories
from ..core.absent import absent_classes, raising
from ..core.backend import has_backend
from ..core.device import device as Device
from . import _index, _require_backend, is_initialized

__all__ = [
    "caching_allocator_alloc", "caching_allocator_delete", "empty_cache", "get_allocator_backend", "get_per_process_memory_fraction",
    "host_memory_stats", "host_memory_stats_as_nested_dict",
    "list_gpu_processes", "max_memory_allocated", "max_memory_cached", "max_memory_reserved", "mem_get_info",
    "memory_allocated", "memory_cached", "memory_reserved", "memory_snapshot", "memory_stats", "memory_stats_as_nested_dict",
    "memory_summary", "reset_accumulated_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached",
    "reset_peak_memory_stats", "set_per_process_memory_fraction",
]  # fmt: skip

_ONE_POOL = "cuda.{}: there is one pool of memory for each GPU"


def _memory(where: Any, name: str = "") -> DeviceMemory:
    return _require_backend(name).memory(Device("cuda", _index(where)))


def _statistic(where: Any, name: str) -> int:
    """Return a statistic of the allocator; 0 if there is no device."""
    return getattr(_memory(where), name) if has_backend(Device("cuda")) else 0


def memory_allocated(device: Any = None) -> int:
    """Return the bytes of GPU memory that tensors use."""
    return _statistic(device, "allocated")


def max_memory_allocated(device: Any = None) -> int:
    """Return the most bytes that tensors used at once, since the start or `reset_peak_memory_stats`."""
    return _statistic(device, "peak")


def memory_reserved(device: Any = None) -> int:
    """Return the bytes allocated from the GPU: in use or cached."""
    return _statistic(device, "reserved")


def max_memory_reserved(device: Any = None) -> int:
    """Return the most bytes that were allocated from the GPU at once."""
    return _statistic(device, "reserved_peak")


memory_cached, max_memory_cached = memory_reserved, max_memory_reserved


def empty_cache() -> None:
    """Free cached memory that no tensor uses, so that other programs can use it."""
    if is_initialized():
        for memory in memories():
            memory.empty_cache()
        pinned.empty_cache()


def reset_peak_memory_stats(device: Any = None) -> None:
    """Reset the peak statistics."""
    _memory(device, "reset_peak_memory_stats").reset_peak()


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Reset the counts of allocations."""
    _memory(device, "reset_accumulated_memory_stats").reset_totals()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Return free and total bytes of the GPU, counting all processes."""
    return _memory(device, "mem_get_info").info()


def memory_stats(device: Any = None) -> OrderedDict[str, Any]:
    """Return statistics of the allocator, under PyTorch's names."""
    if not is_initialized():
        return OrderedDict()
    m = _memory(device)
    cached = m.reserved - m.allocated
    entries: dict[str, Any] = {
        "allocated_bytes.all.current": m.allocated,
        "allocated_bytes.all.peak": m.peak,
        "allocated_bytes.all.allocated": m.allocated + m.total_freed,
        "allocated_bytes.all.freed": m.total_freed,
        "active_bytes.all.current": m.allocated,
        "active_bytes.all.peak": m.peak,
        "allocation.all.current": len(m.blocks),
        "allocation.all.allocated": len(m.blocks) + m.frees,
        "allocation.all.freed": m.frees,
        "reserved_bytes.all.current": m.reserved,
        "reserved_bytes.all.peak": m.reserved_peak,
        "segment.all.current": sum(len(pool.segments) for pool in m.every_pool()),
        "segment.all.allocated": m.segment_count,
        "inactive_split_bytes.all.current": cached,
        "num_alloc_retries": m.retries,
        "num_ooms": m.failures,
        "num_device_alloc": m.segment_count,
    }
    return OrderedDict(sorted(entries.items()))


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """Return `memory_stats` with a dictionary for each part of a name."""
    return _nest_statistics(memory_stats(device))


def _nest_statistics(figures: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in figures.items():
        *path, last = name.split(".")
        place = result
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return result


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """Return a table of the allocator's statistics and the largest users of memory."""
    index = _index(device)
    m = _memory(device, "memory_summary")
    rows = [
        ("Allocated memory", m.allocated, m.peak),
        ("Reserved memory", m.reserved, m.reserved_peak),
        ("Kept for later", m.reserved - m.allocated, None),
    ]
    lines = [f"CUDA memory of device {index}", f"{'':24}{'now':>14}{'peak':>14}"]
    lines += [f"{name:24}{in_words(now):>14}{'' if most is None else in_words(most):>14}" for name, now, most in rows]
    lines.append(f"{'Allocations':24}{len(m.blocks):>14}{len(m.blocks) + m.frees:>14} in all")
    lines.append(f"{'Out of memory':24}{m.failures:>14}{m.retries:>14} after giving back")
    held = [] if abbreviated else m.largest()
    return "\n".join([*lines, *(f"  {line}" for line in held)]) + "\n"


def memory_snapshot(mempool_id: Any = None, include_traces: bool = True) -> list[dict[str, Any]]:
    """Return every segment of memory taken from the GPU, with the blocks in it that are used."""
    if not is_initialized():
        return []
    return [s for memory in memories() for s in memory.snapshot()]


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Limit this process to a fraction of the GPU's memory."""
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    memory = _memory(device, "set_per_process_memory_fraction")
    memory.limit = None if fraction == 1 else int(fraction * memory.info()[1])


def get_per_process_memory_fraction(device: Any = None) -> float:
    """Return the fraction of the GPU's memory that this process may allocate."""
    memory = _memory(device, "get_per_process_memory_fraction")
    return 1.0 if memory.limit is None else memory.limit / memory.info()[1]


def caching_allocator_alloc(size: int, device: Any = None, stream: Any = None) -> int:
    """Allocate memory for another library, to be freed with `caching_allocator_delete`."""
    index = _index(device)
    handle = getattr(stream, "cuda_stream", stream)
    with _on_stream(index, handle):
        return _memory(device, "caching_allocator_alloc").allocate(size)


@contextlib.contextmanager
def _on_stream(index: int, handle: int | None) -> Iterator[None]:
    if handle is None:
        yield
        return
    before = threads.set_stream(index, handle)
    try:
        yield
    finally:
        threads.set_stream(index, before)


def caching_allocator_delete(mem_ptr: int) -> None:
    """Free memory from `caching_allocator_alloc`."""
    for memory in _require_backend("caching_allocator_delete").memories:
        if mem_ptr in memory.blocks:
            memory.release(mem_ptr)
            return
    raise ValueError(f"{mem_ptr:#x} is no address that caching_allocator_alloc has given")


def get_allocator_backend() -> str:
    """Return the name of the allocator in use."""
    return "native"


def host_memory_stats() -> dict[str, Any]:
    """Return statistics of page-locked host memory."""
    return pinned.stats()


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """Return `host_memory_stats` with one dictionary for each part of its names."""
    return _nest_statistics(host_memory_stats())


reset_accumulated_host_memory_stats, reset_peak_host_memory_stats, caching_allocator_enable, caching_allocator_disabled = raising(
    "reset_accumulated_host_memory_stats reset_peak_host_memory_stats caching_allocator_enable caching_allocator_disabled",
    NotImplementedError,
    "cuda.{}(): locked memory has no such counters, and memory of the GPU is always kept for the next tensor",
).values()  # fmt: skip
change_current_allocator, use_mem_pool = raising(
    "change_current_allocator use_mem_pool", NotImplementedError, _ONE_POOL
).values()
CUDAPluggableAllocator, MemPool = absent_classes(
    "CUDAPluggableAllocator MemPool", _ONE_POOL, NotImplementedError
).values()
__all__ += [
    "CUDAPluggableAllocator", "MemPool", "caching_allocator_disabled", "caching_allocator_enable", "change_current_allocator",
    "reset_accumulated_host_memory_stats", "reset_peak_host_memory_stats", "use_mem_pool",
]  # fmt: skip


def list_gpu_processes(device: Any = None) -> str:
    """Raise NotImplementedError: NVIDIA's management library, which lists processes, is not used."""
    raise NotImplementedError("cuda.list_gpu_processes(): `nvidia-smi` tells which processes use the GPU")
