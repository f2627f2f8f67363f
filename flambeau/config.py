"""What this installation is made of: the text `flambeau info` and `flambeau.__config__.show()` print."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys

import numpy as np

from .backends.cpu import heavy, onednn, threads
from .kernels import cache


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def cpu_features() -> list[str]:
    """The vector instruction sets the kernels may use."""
    wanted = (
        "sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_bf16", "avx512_vnni",
        "amx_bf16",
    )  # fmt: skip
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            flags = next((line for line in file if line.startswith("flags")), "").split()
    except OSError:
        flags = []
    return [f for f in wanted if f in flags]


def cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def show() -> str:
    """Versions, CPU features, threads, libraries and the kernel cache, one fact per line."""
    found = (
        f"oneDNN {onednn.version()}"
        if onednn.available()
        else "not found: matrix products and convolutions go through NumPy"
    )
    if onednn.available() and not heavy.onednn_enabled():
        found += " (switched off)"
    lines = [
        ("Flambeau", _version("flambeau")),
        ("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        ("NumPy", np.__version__),
        ("llvmlite", _version("llvmlite")),
        ("oneDNN", found),
        ("CPU", f"{cpu_name()}, {os.cpu_count()} cores"),
        ("CPU features", " ".join(cpu_features()) or "unknown"),
        ("threads", str(threads.get_num_threads())),
        ("kernel cache", cache.summary()),
        ("executable", sys.executable),
    ]
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines)
