"""Runs generated CUDA source on the CPU: the C++ compiler stands in for NVRTC, fibers for threads.

Slow, but it checks the text itself (indexing, barriers, shuffles, conversions) on machines without a GPU. Threads run until they have to
wait for others, in ascending or descending order: a kernel that needs a barrier it does not have gives two results.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

COMPILER = shutil.which("g++")

_SHIM = r"""
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <csetjmp>
#include <ucontext.h>
using namespace std;
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __restrict__
#define __launch_bounds__(...)
#define __shared__ static
#define __constant__ static
#define _Pragma(text)
struct Index { unsigned x, y = 0, z = 0; };
static Index threadIdx, blockIdx, blockDim, gridDim;
static unsigned fiber;  // the thread that runs, counted through the block
enum State { RUNS, WAITS_WARP, WAITS_BLOCK, ENDED };
constexpr int MOST = 1024, STACK = 1 << 16;
static State state[MOST];
static jmp_buf fibers[MOST], home;  // swapcontext would ask the system for the signals' mask at each turn
static bool begun[MOST];
static char* stacks;
static unsigned long long exchange[MOST];
static int votes[MOST], threads_here, backwards;
static void (*body_of_thread)(const void*);
static const void* captured;
static void turn_to(unsigned t) { fiber = t; threadIdx.x = t % blockDim.x; threadIdx.y = t / blockDim.x; }
static void enter() { body_of_thread(captured); state[fiber] = ENDED; _longjmp(home, 1); }
static void wait_as(State s) {
  const unsigned t = fiber;
  state[t] = s;
  if (!_setjmp(fibers[t])) _longjmp(home, 1);
  turn_to(t);
}
static void go_on(unsigned t) {
  turn_to(t);
  if (_setjmp(home)) return;
  if (begun[t]) _longjmp(fibers[t], 1);
  begun[t] = true;
  ucontext_t first;
  getcontext(&first);
  first.uc_stack.ss_sp = stacks + (size_t)t * STACK;
  first.uc_stack.ss_size = STACK;
  first.uc_link = 0;
  makecontext(&first, enter, 0);
  setcontext(&first);
}
static void __syncthreads() { wait_as(WAITS_BLOCK); }
static void __syncwarp(unsigned = ~0u) { wait_as(WAITS_WARP); }
static void __threadfence() {}
static void __threadfence_block() {}
static int __syncthreads_count(int p) {
  votes[fiber] = p != 0; __syncthreads();
  int n = 0; for (int t = 0; t < threads_here; ++t) n += votes[t];
  __syncthreads(); return n;
}
static int __syncthreads_or(int p) { return __syncthreads_count(p) > 0; }
static int __syncthreads_and(int p) { return __syncthreads_count(p) == threads_here; }
template <class T> static T lane_value(T mine, int from) {
  const int base = fiber & ~31;
  memcpy(&exchange[fiber], &mine, sizeof mine); __syncwarp();
  T result; memcpy(&result, &exchange[base + from], sizeof result); __syncwarp();
  return result;
}
template <class T> static T __shfl_sync(unsigned, T v, int lane, int width = 32) {
  const int me = fiber & 31; return lane_value(v, (me & ~(width - 1)) | (lane & (width - 1)));
}
template <class T> static T __shfl_xor_sync(unsigned, T v, int mask, int width = 32) {
  const int me = fiber & 31; return lane_value(v, (me ^ mask) / width == me / width ? me ^ mask : me);
}
template <class T> static T __shfl_down_sync(unsigned, T v, int by, int width = 32) {
  const int me = fiber & 31; return lane_value(v, me % width + by < width ? me + by : me);
}
template <class T> static T __shfl_up_sync(unsigned, T v, int by, int width = 32) {
  const int me = fiber & 31; return lane_value(v, me % width >= by ? me - by : me);
}
static unsigned __ballot_sync(unsigned, int p) {
  const int base = fiber & ~31; exchange[fiber] = p != 0; __syncwarp();
  unsigned r = 0; for (int i = 0; i < 32; ++i) if (base + i < threads_here && exchange[base + i]) r |= 1u << i;
  __syncwarp(); return r;
}
static int __any_sync(unsigned m, int p) { return __ballot_sync(m, p) != 0; }
template <class T> static unsigned __match_any_sync(unsigned mask, T v) {
  const int base = fiber & ~31; exchange[fiber] = (unsigned long long)v; __syncwarp();
  unsigned r = 0;
  for (int i = 0; i < 32; ++i) if ((mask >> i & 1) && exchange[base + i] == (unsigned long long)v) r |= 1u << i;
  __syncwarp(); return r;
}
static int __popc(unsigned x) { return __builtin_popcount(x); }
static int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static int __ffs(int x) { return __builtin_ffs(x); }
static int __clz(int x) { return x ? __builtin_clz(x) : 32; }
static unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned long long)((unsigned __int128)a * b >> 64); }
template <class T> static T __ldg(const T* p) { return *p; }
template <class T, class V> static T atomicAdd(T* p, V v) { T old = *p; *p = (T)(old + (T)v); return old; }
template <class T, class V> static T atomicMax(T* p, V v) { T old = *p; if ((T)v > old) *p = (T)v; return old; }
template <class T, class V> static T atomicMin(T* p, V v) { T old = *p; if ((T)v < old) *p = (T)v; return old; }
template <class T, class V> static T atomicOr(T* p, V v) { T old = *p; *p = old | (T)v; return old; }
template <class T, class V> static T atomicExch(T* p, V v) { T old = *p; *p = (T)v; return old; }
template <class T, class A, class B> static T atomicCAS(T* p, A a, B b) { T old = *p; if (old == (T)a) *p = (T)b; return old; }
template <class To, class From> static To same_bits(From from) { To to; memcpy(&to, &from, sizeof to); return to; }
static float __uint_as_float(unsigned u) { return same_bits<float>(u); }
static float __fmul_rn(float a, float b) { return a * b; }
static double __dmul_rn(double a, double b) { return a * b; }
static float __int_as_float(int u) { return same_bits<float>(u); }
static unsigned __float_as_uint(float f) { return same_bits<unsigned>(f); }
static int __float_as_int(float f) { return same_bits<int>(f); }
static double __longlong_as_double(long long u) { return same_bits<double>(u); }
static long long __double_as_longlong(double u) { return same_bits<long long>(u); }
static unsigned short to_bfloat(float f) {
  const unsigned u = same_bits<unsigned>(f);
  return f != f ? 0x7fff : (unsigned short)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
static float rsqrtf(float x) { return 1 / sqrtf(x); }
static double rsqrt(double x) { return 1 / sqrt(x); }
template <class T> static T min(T a, T b) { return a < b ? a : b; }
template <class T> static T max(T a, T b) { return a > b ? a : b; }
static void run_block(unsigned threads) {
  threads_here = threads;
  for (unsigned t = 0; t < threads; ++t) state[t] = RUNS, begun[t] = false;
  for (;;) {
    for (unsigned k = 0; k < threads; ++k) {
      const unsigned t = backwards ? threads - 1 - k : k;
      if (state[t] == RUNS) go_on(t);
    }
    bool left = false, all = true, moved = false;
    for (unsigned t = 0; t < threads; ++t) {
      left |= state[t] != ENDED;
      all &= state[t] == ENDED || state[t] == WAITS_BLOCK;
    }
    if (!left) return;
    for (unsigned w = 0; w < threads; w += 32) {
      bool together = false, waits = true;
      for (unsigned t = w; t < w + 32 && t < threads; ++t) {
        together |= state[t] == WAITS_WARP;
        waits &= state[t] == WAITS_WARP || state[t] == ENDED;
      }
      if (together && waits)
        for (unsigned t = w; t < w + 32 && t < threads; ++t) if (state[t] == WAITS_WARP) state[t] = RUNS, moved = true;
    }
    if (all) for (unsigned t = 0; t < threads; ++t) if (state[t] == WAITS_BLOCK) state[t] = RUNS, moved = true;
    if (!moved) { fprintf(stderr, "threads wait for each other\n"); abort(); }
  }
}
template <class F> static void run_grid(unsigned wide, unsigned high, unsigned across, unsigned down, int reverse, F body) {
  if (!stacks) stacks = (char*)malloc((size_t)MOST * STACK);
  gridDim = {wide, high, 1}; blockDim = {across, down, 1}; backwards = reverse;
  body_of_thread = [](const void* what) { (*(const F*)what)(); };
  captured = &body;
  for (unsigned k = 0; k < wide * high; ++k) {
    const unsigned b = reverse ? wide * high - 1 - k : k;
    blockIdx.x = b % wide; blockIdx.y = b / wide;
    run_block(across * down);
  }
}
"""
_HALF = (
    (r'asm\("cvt.f32.f16[^;]*;"[^;]*;', "f = (float)same_bits<_Float16>(h);"),
    (r'asm\("cvt.rn.f16.f32[^;]*;"[^;]*;', "h = same_bits<unsigned short>((_Float16)f);"),
    (r'asm\("cvt.rn.bf16.f32[^;]*;"[^;]*;', "h = to_bfloat(f);"),
    (r"extern __shared__ (\w+) (\w+)\[\];", r"static \1 \2[(227 << 10) / sizeof(\1)];"),  # all that a block may have
)
_ENTRY = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\([^)]*\))?\s*(\w+)\(([^)]*)\)')


def build(source: str, folder: Path) -> ctypes.CDLL:
    text = source
    for pattern, replacement in _HALF:
        text = re.sub(pattern, replacement, text)
    runners = []
    for name, parameters in _ENTRY.findall(source):
        names = ", ".join(re.findall(r"(\w+)(?:,|$)", parameters))
        head = f'extern "C" void run_{name}(unsigned x_, unsigned y_, unsigned across_, unsigned down_, int reverse_, {parameters})'
        runners.append(f"{head} {{ run_grid(x_, y_, across_, down_, reverse_, [&] {{ {name}({names}); }}); }}")
    from flambeau.kernels import cache  # not before a test has put its driver in place

    # Kept beside the kernels of the CPU: tests of one run share kernels, and the next run has all that did not change.
    name = cache.digest(_SHIM, source, *_COMMAND)
    path = folder / f"k{name[:16]}.so"
    if not path.exists():
        made = cache.read(name, _KEPT)
        if made is None:
            plain = path.with_suffix(".cpp")
            plain.write_text("\n".join([f'#include "{_head(folder).name}"', text, *runners]))
            subprocess.run([*_COMMAND, "-shared", "-o", str(path), str(plain), *_LIBRARIES], check=True)
            cache.write(name, path.read_bytes(), _KEPT)
        else:
            path.write_bytes(made)
    return ctypes.CDLL(str(path))


_KEPT = ".emulated"
# Later standards' headers have more templates, and the C++ library takes as long to link as a kernel to compile.
_COMMAND = [
    str(COMPILER),
    "-std=c++14",
    "-O0",
    "-w",
    "-fPIC",
    "-ffp-contract=off",
    "-fpermissive",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-threadsafe-statics",
]
_LIBRARIES = ["-nostdlib", "-lm", "-lc", "-lgcc"]


def _head(folder: Path) -> Path:
    """The stand-ins for CUDA, compiled once for a folder: they take longer than the kernels."""
    head = folder / f"shim{hashlib.sha256(_SHIM.encode()).hexdigest()[:12]}.h"
    if not head.exists():
        head.write_text(_SHIM)
        subprocess.run([*_COMMAND, "-x", "c++-header", "-o", f"{head}.gch", str(head)], check=True)
    return head


def converted(value: Any, kind: Any = None) -> Any:
    """Arrays are passed as pointers, `bytes` as a struct by value, int as long long, float as double."""
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data)
    if isinstance(value, bytes):
        data = (ctypes.c_char * len(value)).from_buffer_copy(value)
        # large structs go by memory whatever they are made of; small ones (16 bytes at most) are made of integers here
        words = (ctypes.c_uint32 * (len(value) // 4)).from_buffer_copy(data)
        return type("Geometry", (ctypes.Structure,), {"_fields_": [("words", type(words))]})(words)
    if kind == "i":
        return ctypes.c_int(value)
    if kind == "f":
        return ctypes.c_float(value)
    return ctypes.c_double(value) if kind == "d" or isinstance(value, float) else ctypes.c_longlong(value)


def plane(size: Any) -> tuple[int, int]:
    """The first two sizes of a grid or a block, which may be given as one number; the third must be 1."""
    wide, high, deep = (size, 1, 1) if isinstance(size, int) else size
    assert deep == 1
    return wide, high


class Module:
    def __init__(self, source: str, device: EmulatedDevice):
        self.library, self.device = build(source, device.folder), device

    def function(self, name: str, kinds: tuple, shared: int = 0) -> Callable:
        native = self.library[f"run_{name}"]

        def run(grid: Any, block: Any, *values: Any) -> None:
            assert len(values) == len(kinds), f"{name} takes {len(kinds)} values, not {len(values)}"
            sizes = (*plane(grid), *plane(block))
            assert 0 < sizes[2] * sizes[3] <= 1024 and sizes[0] * sizes[1] > 0
            self.device.launches.append((name, grid, block))
            passed = [converted(v, kind) for v, kind in zip(values, kinds)]
            native(*map(ctypes.c_uint, sizes), ctypes.c_int(self.device.reverse), *passed)

        return run


class EmulatedDevice:
    """What a program needs of a GPU, on the CPU."""

    processors = 4

    def __init__(self, folder: Path, reverse: bool = False):
        self.folder, self.reverse = folder, reverse
        self.launches: list[tuple[str, int, int]] = []
        self.held = np.empty(0, np.uint8)

    def load(self, source: str) -> Module:
        return Module(source, self)

    def scratch(self, nbytes: int) -> int:
        if self.held.nbytes < nbytes:
            self.held = np.empty(nbytes, np.uint8)
        self.held[:] = 0xA5
        return self.held.ctypes.data


def launch(library: ctypes.CDLL, name: str, blocks: int, threads: int, *arguments: Any) -> None:
    passed = [converted(a) for a in arguments]
    sizes = (*plane(blocks), *plane(threads))
    library[f"run_{name}"](*map(ctypes.c_uint, sizes), ctypes.c_int(0), *passed)
