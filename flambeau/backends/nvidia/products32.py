"""Small matrix products of float32 without tensor cores: cuBLAS takes two or three times as long for them as their arithmetic.

A block has a tile of the result, and each of its groups of 64 threads a share of the sum: `TM` by `TN` numbers in a thread's registers,
operands passing by in shared memory. Where that makes too few blocks, several share a tile, and a second kernel adds up."""

from __future__ import annotations

import functools
from typing import Any

from .. import nvidia

_TEXT = r"""
typedef long long i64;
#define BM (8 * TM)
#define BN (8 * TN)
#define LEFT (BM + 4)  // floats from one row in shared memory to the next
#define RIGHT (BN + 4)
#define STAGE (BK * (LEFT + RIGHT))
struct alignas(16) quad { float v[4]; };
template <int BYTES> __device__ __forceinline__ void bring(float* to, const float* from, bool there) {
#ifdef __CUDA_ARCH__
  unsigned place;
  asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(place) : "l"(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(place), "l"(from), "n"(BYTES), "r"(there ? BYTES : 0) : "memory");
#else
  for (int i = 0; i < BYTES / 4; ++i) to[i] = there ? from[i] : 0.f;
#endif
}
__device__ __forceinline__ void brought() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int LATER> __device__ __forceinline__ void wait_for_all_but() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_group %0;" ::"n"(LATER) : "memory");
#endif
}
// BK x WIDE of a matrix into rows of `step` floats; ALONG: in memory, neighbours differ in the index of the sum.
template <bool ALONG, int WIDE> __device__ __forceinline__ void bring_tile(float* to, int step, const float* from, i64 apart, int first, int wide,
    int k, int end, int t) {
  if (ALONG) {
    const int inner = t & 7, outer = t >> 3;
    _Pragma("unroll") for (int m = 0; m < BK / 8; ++m)
      _Pragma("unroll") for (int i = 0; i < WIDE / 8; ++i) {
        const int r = outer + 8 * i, c = inner + 8 * m;
        bring<4>(to + c * step + r, from + (first + r) * apart + k + c, first + r < wide && k + c < end);
      }
  } else {
    _Pragma("unroll") for (int i = 0; i < BK * WIDE / 256; ++i) {
      const int e = t + 64 * i, r = e % (WIDE / 4) * 4, c = e / (WIDE / 4);
      bring<16>(to + c * step + r, from + (k + c) * apart + first + r, first + r < wide && k + c < end);
    }
  }
}

extern "C" __global__ void __launch_bounds__(64 * GROUPS) multiply(float* out, i64 out_step, const float* a, i64 a_step, const float* b,
    i64 b_step, const float* bias, int rows, int columns, int inner, int splits) {
  __shared__ quad space[GROUPS * STAGES * STAGE / 4];
  const int t = threadIdx.x & 63, group = threadIdx.x >> 6, tx = t & 7, ty = t >> 3;
  const int across = (columns + BN - 1) / BN, tiles = across * ((rows + BM - 1) / BM);
  const int tile = blockIdx.x % tiles, split = blockIdx.x / tiles, row = tile / across * BM, column = tile % across * BN;
  const int share = (inner + splits - 1) / splits, start = split * share, stop = start + share < inner ? start + share : inner;
  const int steps = (stop - start + GROUPS * BK - 1) / (GROUPS * BK);
  float* mine = space[0].v + group * (STAGES * STAGE);
  auto fetch = [&](int step) {
    float* stage = mine + step % STAGES * STAGE;
    const int k = start + (step * GROUPS + group) * BK;
    bring_tile<A_ALONG, BM>(stage, LEFT, a, a_step, row, rows, k, stop, t);
    bring_tile<B_ALONG, BN>(stage + BK * LEFT, RIGHT, b, b_step, column, columns, k, stop, t);
  };
  float sums[TM][TN];
  _Pragma("unroll") for (int i = 0; i < TM; ++i) _Pragma("unroll") for (int j = 0; j < TN; ++j) sums[i][j] = 0.f;
  _Pragma("unroll") for (int i = 0; i < STAGES - 1; ++i) {
    if (i < steps) fetch(i);
    brought();
  }
  _Pragma("unroll 1") for (int step = 0; step < steps; ++step) {
    wait_for_all_but<STAGES - 2>();
    __syncthreads();
    if (step + STAGES - 1 < steps) fetch(step + STAGES - 1);
    brought();
    const float* stage = mine + step % STAGES * STAGE;
    _Pragma("unroll") for (int k = 0; k < BK; ++k) {
      quad left[TM / 4], right[TN / 4];
      _Pragma("unroll") for (int i = 0; i < TM / 4; ++i) left[i] = *(const quad*)(stage + k * LEFT + 32 * i + 4 * ty);
      _Pragma("unroll") for (int j = 0; j < TN / 4; ++j) right[j] = *(const quad*)(stage + BK * LEFT + k * RIGHT + 32 * j + 4 * tx);
      _Pragma("unroll") for (int i = 0; i < TM; ++i)
        _Pragma("unroll") for (int j = 0; j < TN; ++j) sums[i][j] += left[i / 4].v[i % 4] * right[j / 4].v[j % 4];
    }
  }
  // One group after the other hands its sums to the first.
  wait_for_all_but<0>();
  float* exchange = space[0].v;
  _Pragma("unroll") for (int other = 1; other < GROUPS; ++other)
    _Pragma("unroll") for (int i = 0; i < TM; ++i) {
      if (i % 4 == 0) __syncthreads();
      if (group == other) _Pragma("unroll") for (int j = 0; j < TN; ++j) exchange[(i % 4 * TN + j) * 64 + t] = sums[i][j];
      if (i % 4 == 3) {
        __syncthreads();
        if (group == 0)
          _Pragma("unroll") for (int m = 0; m < 4; ++m)
            _Pragma("unroll") for (int j = 0; j < TN; ++j) sums[i - 3 + m][j] += exchange[(m * TN + j) * 64 + t];
      }
    }
  if (group) return;
  out += (i64)split * rows * columns;
  _Pragma("unroll") for (int j = 0; j < TN / 4; ++j) {
    const int c = column + 32 * j + 4 * tx;
    if (c >= columns) continue;
    quad more = {};
    if (bias) more = *(const quad*)(bias + c);
    _Pragma("unroll") for (int i = 0; i < TM; ++i) {
      const int r = row + i / 4 * 32 + 4 * ty + i % 4;
      if (r >= rows) continue;
      quad q;
      _Pragma("unroll") for (int m = 0; m < 4; ++m) q.v[m] = sums[i][4 * j + m] + more.v[m];
      *(quad*)(out + r * out_step + c) = q;
    }
  }
}

extern "C" __global__ void __launch_bounds__(256) add_up(float* out, i64 out_step, const float* parts, const float* bias, int rows,
    int columns, int splits) {
  const i64 i = blockIdx.x * (i64)256 + threadIdx.x, wide = columns / 4;
  if (i >= rows * wide) return;
  quad sum = ((const quad*)parts)[i];
  for (int z = 1; z < splits; ++z) {
    const quad p = ((const quad*)parts)[z * (rows * wide) + i];
    _Pragma("unroll") for (int j = 0; j < 4; ++j) sum.v[j] += p.v[j];
  }
  const i64 c = i % wide * 4;
  if (bias) _Pragma("unroll") for (int j = 0; j < 4; ++j) sum.v[j] += bias[c + j];
  *(quad*)(out + i / wide * out_step + c) = sum;
}
"""


@functools.cache
def _kernels(where: Any, tile: tuple[int, int], groups: int, along: tuple[bool, bool]) -> tuple[Any, Any]:
    stages = 4 if groups < 4 else 2 if max(tile) > 4 else 4
    sizes = (
        f"#define TM {tile[0]}\n#define TN {tile[1]}\n#define GROUPS {groups}\n#define STAGES {stages}\n#define BK 8\n"
    )
    lie = f"#define A_ALONG {int(along[0])}\n#define B_ALONG {int(along[1])}\n"
    module = nvidia.load_source(sizes + lie + _TEXT, where)
    return module.function("multiply", tuple("qqqqqqqiiii")), module.function("add_up", tuple("qqqqiii"))


class Plan:
    """One product, ready to be called with addresses: out = a @ b + bias, all matrices with gaps only between rows (or columns)."""

    def __init__(
        self, where: Any, sizes: tuple[int, int, int], steps: tuple[int, int, int], along: tuple[bool, bool],
        tile: tuple[int, int], groups: int, splits: int,
    ) -> None:  # fmt: skip
        self.where, self.sizes, self.steps, self.splits = where, sizes, steps, splits
        self.multiply, self.add_up = _kernels(where, tile, groups, along)
        rows, columns, _ = sizes
        self.blocks = -(-rows // (8 * tile[0])) * -(-columns // (8 * tile[1])) * splits
        self.threads = 64 * groups
        self.stream = -1

    def run(self, out: int, a: int, b: int, bias: int) -> None:
        (rows, columns, inner), (out_step, a_step, b_step) = self.sizes, self.steps
        if self.splits == 1:
            self.multiply(self.blocks, self.threads, out, out_step, a, a_step, b, b_step, bias, rows, columns, inner, 1)
            return
        parts = nvidia.workspace(4 * rows * columns * self.splits, self.where)
        self.multiply(
            self.blocks, self.threads, parts.ptr, columns, a, a_step, b, b_step, 0, rows, columns, inner, self.splits
        )
        self.add_up(-(-rows * columns // 1024), 256, out, out_step, parts.ptr, bias, rows, columns, self.splits)


__all__ = ["Plan"]
