"""Softmax of rows that do not fit into registers, such as a vocabulary's, written for NVIDIA GPUs by hand.

A block of 1024 threads reads a row once for its maximum and the sum of its exponentials together (the sum is rescaled when the maximum
grows), and once more to write the result: then from the L2 cache, because no more rows are processed at once than it holds. The gradients
take two passes as well. Each has the parameters of the loop kernel of that name, for rows that begin at multiples of 16 bytes; other rows are
left to the loop kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core import dtype as dt
from . import ir
from .cuda_loops import LoopProgram
from .cuda_operands import Device
from .cuda_values import PRELUDE, loaded, memory_type, stored, value_type

LONG = 4096  # elements from which a row counts as long
_THREADS = 1024
_CACHED = 24 << 20  # bytes of rows that are under way at a time
_FLOATS = (dt.float32, dt.float64, dt.float16, dt.bfloat16)

_COMMON = r"""
#define THREADS 1024
struct alignas(16) Pack { T v[V]; };
__device__ __forceinline__ A least() { return -(A)__int_as_float(0x7f800000); }
__device__ __forceinline__ A larger(A a, A b) { return a > b ? a : b; }
__device__ __forceinline__ A power(A v) { return sizeof(A) == 4 ? (A)expf((float)v) : (A)exp((double)v); }
__device__ __forceinline__ A together(A v) {
  __shared__ A parts[32];
  _Pragma("unroll") for (int d = 16; d; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
  if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = v;
  __syncthreads();
  v = parts[threadIdx.x & 31];
  _Pragma("unroll") for (int d = 16; d; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
  __syncthreads();
  return v;
}
__device__ __forceinline__ A largest(A v) {
  __shared__ A parts[32];
  _Pragma("unroll") for (int d = 16; d; d /= 2) v = larger(v, __shfl_xor_sync(0xffffffffu, v, d));
  if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = v;
  __syncthreads();
  v = parts[threadIdx.x & 31];
  _Pragma("unroll") for (int d = 16; d; d /= 2) v = larger(v, __shfl_xor_sync(0xffffffffu, v, d));
  __syncthreads();
  return v;
}
"""

_FORWARD = r"""
extern "C" __global__ void __launch_bounds__(THREADS) softmax_rows(T* out, const T* x, i64 rows, i64 n) {
  const i64 count = n / V;
  for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
    const Pack* from = (const Pack*)(x + row * n);
    Pack* to = (Pack*)(out + row * n);
    A top = least(), total = 0;
    _Pragma("unroll 2") for (i64 i = threadIdx.x; i < count; i += THREADS) {
      const Pack p = from[i];
      A m = top, sum = 0;
      _Pragma("unroll") for (int k = 0; k < V; ++k) m = larger(get(p.v[k]), m);
      _Pragma("unroll") for (int k = 0; k < V; ++k) sum += power(get(p.v[k]) - m);
      if (m > top) total *= power(top - m);
      total += m == least() && sum != sum && !odd(p) ? (A)0 : sum;
      top = m;
    }
    const A best = largest(top);
    total = together(top == least() ? total : total * power(top - best));
    const A scale = 1 / total, shift = sizeof(A) == 4 ? (A)logf((float)total) : (A)log((double)total);
    _Pragma("unroll 2") for (i64 i = threadIdx.x; i < count; i += THREADS) {
      Pack p = from[i];
      _Pragma("unroll") for (int k = 0; k < V; ++k) {
        const A v = get(p.v[k]) - best;
        p.v[k] = put(LOG ? v - shift : power(v) * scale);
      }
      to[i] = p;
    }
  }
}
"""

_ODD = r"""
__device__ __forceinline__ bool odd(const Pack& p) {
  bool found = false;
  _Pragma("unroll") for (int k = 0; k < V; ++k) found = found || get(p.v[k]) != get(p.v[k]);
  return found;
}
"""

_BACKWARD = r"""
extern "C" __global__ void __launch_bounds__(THREADS) softmax_backward_rows(T* grad_in, const T* grad, const T* y, i64 rows, i64 n) {
  const i64 count = n / V;
  for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
    const Pack *g = (const Pack*)(grad + row * n), *o = (const Pack*)(y + row * n);
    Pack* to = (Pack*)(grad_in + row * n);
    A total = 0;
    _Pragma("unroll 2") for (i64 i = threadIdx.x; i < count; i += THREADS) {
      const Pack a = g[i];
      if (LOG) {
        _Pragma("unroll") for (int k = 0; k < V; ++k) total += get(a.v[k]);
      } else {
        const Pack b = o[i];
        _Pragma("unroll") for (int k = 0; k < V; ++k) total += get(a.v[k]) * get(b.v[k]);
      }
    }
    total = together(total);
    _Pragma("unroll 2") for (i64 i = threadIdx.x; i < count; i += THREADS) {
      Pack a = g[i];
      const Pack b = o[i];
      _Pragma("unroll") for (int k = 0; k < V; ++k)
        a.v[k] = put(LOG ? get(a.v[k]) - power(get(b.v[k])) * total : (get(a.v[k]) - total) * get(b.v[k]));
      to[i] = a;
    }
  }
}
"""


class LongRows:
    """Program of a loop kernel over rows, with another text for long ones."""

    def __init__(self, kernel: ir.Kernel, recipe: ir.LoopCall, d: Any, text: str):
        self.otherwise = LoopProgram(kernel)
        self.name, self.itemsize = recipe.name, d.itemsize
        self.buffers = sum(isinstance(p, ir.Buffer) for p in kernel.params)
        log_result = int(bool(recipe.bindings.get("log_result")))
        self.source = PRELUDE + (
            f"typedef {memory_type(d)} T;\ntypedef {value_type(d)} A;\n#define V {16 // d.itemsize}\n#define LOG {log_result}\n"
            f"__device__ __forceinline__ A get(T v) {{ return {loaded('v', d)}; }}\n"
            f"__device__ __forceinline__ T put(A v) {{ return {stored('v', d)}; }}\n"
        ) + _COMMON + _ODD + text  # fmt: skip

    def bind(self, device: Device) -> Callable[..., None]:
        plain = self.otherwise.bind(device)
        width, buffers = self.itemsize, self.buffers
        function: Any = None

        def run(*values: Any) -> None:
            nonlocal function
            rows, n = values[buffers : buffers + 2]
            if n < LONG or n * width % 16 or any(v & 15 for v in values[:buffers]):
                plain(*values)
                return
            if function is None:
                function = device.load(self.source).function(self.name, ("q",) * (buffers + 2))
            most = max(1, min(2, _CACHED // (device.processors * n * width))) * device.processors
            function(min(rows, most), _THREADS, *values[: buffers + 2])

        return run


_WRITTEN = {"softmax_rows": _FORWARD, "softmax_backward_rows": _BACKWARD}


def program(recipe: ir.LoopCall, kernel: ir.Kernel) -> LongRows | None:
    """Return the program of a loop kernel that has a text for long rows, or None."""
    text = _WRITTEN.get(recipe.name)
    buffers = [p for p in kernel.params if isinstance(p, ir.Buffer)]
    dtypes = {p.dtype for p in buffers}
    if text is None or len(dtypes) != 1 or not dtypes <= set(_FLOATS) or len(kernel.params) != len(buffers) + 2:
        return None
    return LongRows(kernel, recipe, dtypes.pop(), text)
