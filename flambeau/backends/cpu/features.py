"""The instruction sets of this CPU, as detected by LLVM."""

from __future__ import annotations

import functools
import importlib

_AVX512 = ("avx512f", "avx512vl", "avx512bw", "avx512dq")


@functools.cache
def host_features() -> dict[str, bool]:
    """Return LLVM's names of features, and whether this CPU has them; {} without llvmlite."""
    try:
        llvm = importlib.import_module("llvmlite.binding")
    except ImportError:
        return {}
    return dict(llvm.get_host_cpu_features())


def get_cpu_capability() -> str:
    """Return the widest vectors that kernels can use: "AVX512", "AVX2" or "DEFAULT"."""
    features = host_features()
    if all(features.get(name) for name in _AVX512):
        return "AVX512"
    return "AVX2" if features.get("avx2") and features.get("fma") else "DEFAULT"
