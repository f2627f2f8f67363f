"""Facts about this installation: the text of `flambeau.__config__.show()`. installed.py adds the further lines of `flambeau info`."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys

import numpy as np

from .backends.cpu import heavy, onednn, threads
from .kernels import cache
from .torch_version import OWN_VERSION, TORCH_VERSION, TORCHVISION_VERSION

NOT_INSTALLED = "not installed"


def version_of(package: str) -> str:
    """Return the installed version of a package, or NOT_INSTALLED."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return NOT_INSTALLED


def cpu_features() -> list[str]:
    """Return the vector instruction sets the kernels may use."""
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
    """Return versions, CPU features, threads, libraries and the kernel cache, one fact per line."""
    return table(facts())


def facts() -> list[tuple[str, str]]:
    """Return the names and values that `show` prints."""
    found = (
        ".".join(map(str, onednn.version()))
        if onednn.available()
        else "not found: matrix products and convolutions go through NumPy"
    )
    if onednn.available() and not heavy.onednn_enabled():
        found += " (switched off)"
    return [
        ("Flambeau", OWN_VERSION),
        ("imitates", f"PyTorch {TORCH_VERSION}, torchvision {TORCHVISION_VERSION}"),
        ("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        ("NumPy", np.__version__),
        ("llvmlite", version_of("llvmlite")),
        ("oneDNN", found),
        ("CPU", f"{cpu_name()}, {os.cpu_count()} cores"),
        ("CPU features", " ".join(cpu_features()) or "unknown"),
        (
            "threads",
            f"{threads.get_num_threads()} of one operator, {threads.get_num_interop_threads()} operators at a time",
        ),
        ("kernel cache", cache.summary()),
        ("executable", sys.executable),
    ]


def table(lines: list[tuple[str, str]]) -> str:
    """Return names and values in two columns."""
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines)
