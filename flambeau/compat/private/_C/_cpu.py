"""Features of the processor, as libraries ask PyTorch's compiled part for them."""

from __future__ import annotations

import functools

__all__ = ["_is_amx_tile_supported", "_is_avx2_supported", "_is_avx512_supported", "_is_vnni_supported"]


@functools.cache
def _flags() -> frozenset[str]:
    """Return the CPU flags that Linux reports; empty on other systems."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            return frozenset(next((line for line in file if line.startswith("flags")), "").split())
    except OSError:
        return frozenset()


def _is_avx2_supported() -> bool:
    """Return whether there are 256-bit vectors of whole numbers."""
    return "avx2" in _flags()


def _is_avx512_supported() -> bool:
    """Return whether there are 512-bit vectors, of all kinds that PyTorch uses."""
    return {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= _flags()


def _is_vnni_supported() -> bool:
    """Return whether there are sums of products of bytes in 512-bit vectors."""
    return "avx512_vnni" in _flags()


def _is_amx_tile_supported() -> bool:
    """Return whether there are products of tiles."""
    return "amx_tile" in _flags()
