"""CUDA C++ compiled to machine code with NVRTC, cached on disk. Compiling needs no GPU."""

from __future__ import annotations

import ctypes
import functools
import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ...core.locks import COMPILER, new_lock
from ...kernels import cache
from ...kernels.notice import NOTICE
from .driver import CudaError
from .libraries import library

_lock = new_lock(COMPILER)
_under_way: dict[tuple[Any, ...], Future[bytes]] = {}  # what other threads compile


@dataclass
class Stats:
    """Counters since the process started."""

    compiled: int = 0
    loaded: int = 0  # from disk
    compile_seconds: float = 0.0


stats = Stats()


def begin(source: str, architecture: str, options: tuple[str, ...] = ()) -> None:
    """Compile a source in another thread, so that `cubin` finds it done, or waits for it."""
    if (source, architecture, options) not in _under_way:
        _under_way[source, architecture, options] = _workers().submit(_made, source, architecture, options)


@functools.cache
def _workers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(12, len(os.sched_getaffinity(0))), "nvrtc")


def cubin(source: str, architecture: str, options: tuple[str, ...] = ()) -> bytes:
    """Return the machine code of a CUDA source for an architecture such as "sm_90"."""
    begun = _under_way.pop((source, architecture, options), None)
    return _made(source, architecture, options) if begun is None else begun.result()


def _made(source: str, architecture: str, options: tuple[str, ...]) -> bytes:
    every = (f"--gpu-architecture={architecture}", "--std=c++17", "-default-device", *options)
    name = cache.digest(source, *every, _version())
    stored = cache.read(name, cache.CUBIN)
    if stored is not None:
        stats.loaded += 1
        return stored
    started = time.perf_counter()
    with NOTICE.compiling():
        code = _quickly_compiled(source, every)
    with _lock:
        stats.compiled += 1
        stats.compile_seconds += time.perf_counter() - started
    cache.write(name, code, cache.CUBIN)
    return code


@functools.cache
def _version() -> str:
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc = library("nvrtc")
    nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"nvrtc {major.value}.{minor.value}"


def _quickly_compiled(source: str, options: tuple[str, ...]) -> bytes:
    """Return the machine code of a source. NVRTC first reads headers of its own, which takes five times as long as most kernels; -minimal
    omits those for textures and for CUDA's runtime. A source that needs these is compiled with all of them."""
    if _knows_minimal():
        try:
            return _compile(source, (*options, "-minimal"))
        except CudaError:
            pass  # what is wrong with it is said below
    return _compile(source, options)


@functools.cache
def _knows_minimal() -> bool:
    """Return whether this NVRTC has the option -minimal."""
    try:
        _compile("__global__ void nothing() {}", ("--gpu-architecture=sm_80", "-minimal"))
    except CudaError:
        return False
    return True


def _compile(source: str, options: tuple[str, ...]) -> bytes:
    nvrtc: Any = library("nvrtc")
    program = ctypes.c_void_p()
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None), "create")
    try:
        words = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        status = nvrtc.nvrtcCompileProgram(program, len(options), words)
        if status:
            raise CudaError(
                f"NVRTC does not compile a kernel: {_log(nvrtc, program)}\n--- the source:\n{_numbered(source)}"
            )
        size = ctypes.c_size_t()
        _check(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)), "size")
        code = ctypes.create_string_buffer(size.value)
        _check(nvrtc.nvrtcGetCUBIN(program, code), "code")
        return code.raw
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _log(nvrtc: Any, program: Any) -> str:
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value + 1)
    nvrtc.nvrtcGetProgramLog(program, text)
    return text.value.decode(errors="replace")


def _numbered(source: str) -> str:
    return "\n".join(f"{i:4} {line}" for i, line in enumerate(source.splitlines(), 1))


def _check(status: int, what: str) -> None:
    if status:
        raise CudaError(f"NVRTC failed with status {status} ({what})")
