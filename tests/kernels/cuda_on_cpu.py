"""Runs generated CUDA source on the CPU: the C++ compiler stands in for NVRTC, threads for threads.

Slow, but it checks the text itself (indexing, barriers, conversions) on machines without a GPU.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

COMPILER = shutil.which("g++")

_SHIM = r"""
#include <barrier>
#include <cmath>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>
using namespace std;
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(n)
#define __shared__ static
struct Index { unsigned x; };
static thread_local Index threadIdx, blockIdx;
static Index blockDim, gridDim;
static unique_ptr<barrier<>> meeting;
static void __syncthreads() { meeting->arrive_and_wait(); }
template <class To, class From> static To same_bits(From from) { To to; memcpy(&to, &from, sizeof to); return to; }
static float __uint_as_float(unsigned u) { return same_bits<float>(u); }
static float __int_as_float(int u) { return same_bits<float>(u); }
static unsigned __float_as_uint(float f) { return same_bits<unsigned>(f); }
static double __longlong_as_double(long long u) { return same_bits<double>(u); }
static float rsqrtf(float x) { return 1 / sqrtf(x); }
static double rsqrt(double x) { return 1 / sqrt(x); }
template <class F> static void run_grid(unsigned blocks, unsigned threads, F body) {
  gridDim.x = blocks; blockDim.x = threads;
  for (unsigned b = 0; b < blocks; ++b) {
    meeting = make_unique<barrier<>>(threads);
    vector<thread> team;
    for (unsigned t = 0; t < threads; ++t)
      team.emplace_back([=] { blockIdx.x = b; threadIdx.x = t; body(); });
    for (auto& member : team) member.join();
  }
}
"""
_HALF = (
    (r'asm\("cvt.f32.f16[^;]*;"[^;]*;', "f = (float)same_bits<_Float16>(h);"),
    (r'asm\("cvt.rn.f16.f32[^;]*;"[^;]*;', "h = same_bits<unsigned short>((_Float16)f);"),
)


def build(source: str, folder: Path) -> ctypes.CDLL:
    text = source
    for pattern, replacement in _HALF:
        text = re.sub(pattern, replacement, text)
    runners = []
    for name, parameters in re.findall(
        r'extern "C" __global__ void __launch_bounds__\(\d+\)\s+(\w+)\(([^)]*)\)', source
    ):
        names = ", ".join(re.findall(r"(\w+)(?:,|$)", parameters))
        head = f'extern "C" void run_{name}(unsigned blocks, unsigned threads, {parameters})'
        runners.append(f"{head} {{ run_grid(blocks, threads, [=] {{ {name}({names}); }}); }}")
    stem = folder / f"k{hashlib.sha256(source.encode()).hexdigest()[:16]}"
    stem.with_suffix(".cpp").write_text("\n".join([_SHIM, text, *runners]))
    command = [str(COMPILER), "-std=c++20", "-O0", "-w", "-shared", "-fPIC", "-pthread", "-ffp-contract=off"]
    subprocess.run([*command, "-o", f"{stem}.so", f"{stem}.cpp"], check=True)
    return ctypes.CDLL(f"{stem}.so")


def launch(library: ctypes.CDLL, name: str, blocks: int, threads: int, *arguments: Any) -> None:
    """Arrays are passed as pointers, `bytes` as a struct by value, int as long long, float as double."""
    converted: list[Any] = []
    for a in arguments:
        if isinstance(a, np.ndarray):
            converted.append(ctypes.c_void_p(a.ctypes.data))
        elif isinstance(a, bytes):
            words = (ctypes.c_int64 * (len(a) // 8)).from_buffer_copy(a)
            holder = type("Geometry", (ctypes.Structure,), {"_fields_": [("words", type(words))]})
            converted.append(holder(words))
        else:
            converted.append(ctypes.c_double(a) if isinstance(a, float) else ctypes.c_longlong(a))
    library[f"run_{name}"](ctypes.c_uint(blocks), ctypes.c_uint(threads), *converted)
