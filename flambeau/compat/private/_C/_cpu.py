"""Features of the processor, by the names of PyTorch's compiled part."""

from __future__ import annotations

import functools


@functools.cache
def _flags() -> frozenset[str]:
    """Return the CPU flags that Linux reports; empty on other systems."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            return frozenset(next((line for line in file if line.startswith("flags")), "").split())
    except OSError:
        return frozenset()


def _is_avx2_supported() -> bool:
    """Return whether the CPU has AVX2, 256-bit integer vectors."""
    return "avx2" in _flags()


def _is_avx512_supported() -> bool:
    """Return whether the CPU has AVX-512, in all variants that PyTorch uses."""
    return {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= _flags()


def _is_vnni_supported() -> bool:
    """Return whether the CPU has AVX-512 VNNI, dot products of bytes."""
    return "avx512_vnni" in _flags()


def _is_amx_tile_supported() -> bool:
    """Return whether the CPU has AMX, products of tiles."""
    return "amx_tile" in _flags()
