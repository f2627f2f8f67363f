"""Small matrix products of float32 without tensor cores: cuBLAS takes two or three times as long for them as their arithmetic.

A block has a tile of the result, and each of its groups of 64 threads a share of the sum: `TM` by `TN` numbers in a thread's registers,
operands in shared memory. If that makes too few blocks, several share a tile, and a second kernel adds up. A product can also compute the
sums of its first factor's rows: the bias's gradient with that of a weight."""

from __future__ import annotations

import functools
from typing import Any

from ...kernels.cuda_copies import COPIES
from .. import nvidia
from . import driver

_TEXT = (
    COPIES
    + r"""
typedef long long i64;
#define BM (8 * TM)
#define BN (8 * TN)
#define BK 32
#define STAGE (BK * (BM + BN))
// A matrix whose neighbours in memory differ in the index of the sum (ALONG) lies in shared memory as [row][32], else as [32][row].
// Which four numbers of a row come where is shifted from row to row, so that threads with different rows meet different banks.
template <bool FIRST> __device__ __forceinline__ int shift(int row) { return FIRST ? row & 7 : row >> 2 & 7; }
template <bool ALONG, int WIDE, bool FIRST> __device__ __forceinline__ void bring_tile(place to, const float* from, i64 apart, int first, int wide,
    int k, int end, int t) {
  _Pragma("unroll") for (int i = 0; i < WIDE / 8; ++i) {
    const int e = t + 64 * i;
    if (ALONG) {
      const int r = e / 8, c = e % 8;
      bring<16>(ahead(to, r * BK + 4 * (c ^ shift<FIRST>(r))), from + (first + r) * apart + k + 4 * c, first + r < wide && k + 4 * c < end);
    } else {
      const int r = e % (WIDE / 4) * 4, c = e / (WIDE / 4);
      bring<16>(ahead(to, c * WIDE + r), from + (k + c) * apart + first + r, first + r < wide && k + c < end);
    }
  }
}
// Four steps of the sum, of the rows of a thread: of the first matrix y + 8 i (where ALONG), else 4 y + i % 4 + 32 (i / 4).
template <bool ALONG, int WIDE, int MINE, bool FIRST> __device__ __forceinline__ void take(float (*into)[4], const float* tile, int k, int y) {
  if (ALONG) {
    _Pragma("unroll") for (int i = 0; i < MINE; ++i) {
      const int r = FIRST ? y + 8 * i : 4 * y + i % 4 + 32 * (i / 4);
      const quad q = *(const quad*)(tile + r * BK + 4 * (k ^ shift<FIRST>(r)));
      _Pragma("unroll") for (int m = 0; m < 4; ++m) into[i][m] = q.v[m];
    }
  } else {
    _Pragma("unroll") for (int i = 0; i < MINE / 4; ++i)
      _Pragma("unroll") for (int m = 0; m < 4; ++m) {
        const quad q = *(const quad*)(tile + (4 * k + m) * WIDE + 32 * i + 4 * y);
        _Pragma("unroll") for (int j = 0; j < 4; ++j) into[4 * i + j][m] = q.v[j];
      }
  }
}

extern "C" __global__ void __launch_bounds__(64 * GROUPS) multiply(float* out, i64 out_step, const float* a, i64 a_step, const float* b,
    i64 b_step, float* bias, int rows, int columns, int inner, int splits) {  // SUMS: to `bias` go the sums of a's rows
  extern __shared__ quad space[];
  const int t = threadIdx.x & 63, group = threadIdx.x >> 6, tx = t & 7, ty = t >> 3;
  const int across = (columns + BN - 1) / BN, tiles = across * ((rows + BM - 1) / BM);
  const int tile = blockIdx.x % tiles, split = blockIdx.x / tiles, row = tile / across * BM, column = tile % across * BN;
  const int share = (inner / 4 + splits - 1) / splits * 4, start = split * share, stop = start + share < inner ? start + share : inner;
  const int steps = (stop - start + GROUPS * BK - 1) / (GROUPS * BK);
  float* mine = space[0].v + group * (STAGES * STAGE);
  const place here = place_of(mine);
  auto fetch = [&](int step) {
    const place stage = ahead(here, step % STAGES * STAGE);
    const int k = start + (step * GROUPS + group) * BK;
    bring_tile<A_ALONG, BM, true>(stage, a, a_step, row, rows, k, stop, t);
    bring_tile<B_ALONG, BN, false>(ahead(stage, BK * BM), b, b_step, column, columns, k, stop, t);
  };
  float sums[TM][TN], totals[TM];
  _Pragma("unroll") for (int i = 0; i < TM; ++i) {
    totals[i] = 0.f;
    _Pragma("unroll") for (int j = 0; j < TN; ++j) sums[i][j] = 0.f;
  }
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
    _Pragma("unroll 2") for (int k = 0; k < BK / 4; ++k) {
      float left[TM][4], right[TN][4];
      take<A_ALONG, BM, TM, true>(left, stage, k, ty);
      take<B_ALONG, BN, TN, false>(right, stage + BK * BM, k, tx);
      _Pragma("unroll") for (int m = 0; m < 4; ++m)
        _Pragma("unroll") for (int i = 0; i < TM; ++i)
          _Pragma("unroll") for (int j = 0; j < TN; ++j) sums[i][j] += left[i][m] * right[j][m];
      if (SUMS && column == 0)
        _Pragma("unroll") for (int i = 0; i < TM; ++i) totals[i] += (left[i][0] + left[i][1]) + (left[i][2] + left[i][3]);
    }
  }
  // Every group writes its sums; each then adds up and stores every GROUPS-th four of them.
  wait_for_all_but<0>();
  constexpr int FOURS = TM * TN / 4;
  float* others = space[GROUPS * FOURS * 64].v;
  if (GROUPS > 1) {
    __syncthreads();
    _Pragma("unroll") for (int u = 0; u < FOURS; ++u) {
      quad q;
      _Pragma("unroll") for (int m = 0; m < 4; ++m) q.v[m] = sums[4 * u / TN][4 * u % TN + m];
      space[(group * FOURS + u) * 64 + t] = q;
    }
    if (SUMS && column == 0) _Pragma("unroll") for (int i = 0; i < TM; ++i) others[(group * TM + i) * 64 + t] = totals[i];
    __syncthreads();
  }
  out += (i64)split * rows * columns;
  _Pragma("unroll") for (int u = 0; u < FOURS; ++u) {
    const int i = 4 * u / TN, r = row + (A_ALONG ? ty + 8 * i : i / 4 * 32 + 4 * ty + i % 4), c = column + 4 * u % TN * 8 + 4 * tx;
    if ((GROUPS > 1 && u % GROUPS != group) || r >= rows || c >= columns) continue;
    quad q;
    _Pragma("unroll") for (int m = 0; m < 4; ++m) q.v[m] = (SUMS || !bias ? 0.f : bias[c + m]) + (GROUPS > 1 ? 0.f : sums[i][4 * u % TN + m]);
    if (GROUPS > 1)
      _Pragma("unroll") for (int other = 0; other < GROUPS; ++other) {
        const quad p = space[(other * FOURS + u) * 64 + t];
        _Pragma("unroll") for (int m = 0; m < 4; ++m) q.v[m] += p.v[m];
      }
    *(quad*)(out + r * out_step + c) = q;
  }
  if (!SUMS || column || tx || group) return;
  _Pragma("unroll") for (int i = 0; i < TM; ++i) {
    const int r = row + (A_ALONG ? ty + 8 * i : i / 4 * 32 + 4 * ty + i % 4);
    if (GROUPS > 1) _Pragma("unroll") for (int other = 1; other < GROUPS; ++other) totals[i] += others[(other * TM + i) * 64 + t];
    if (r < rows) bias[(i64)split * rows + r] = totals[i];
  }
}

extern "C" __global__ void __launch_bounds__(256) add_up(float* out, i64 out_step, const float* parts, float* bias, int rows,
    int columns, int splits) {
  const i64 i = blockIdx.x * (i64)256 + threadIdx.x, wide = columns / 4, all = rows * wide;
  const bool more = SUMS && i >= all;  // sums of rows follow those of the product
  const i64 at = more ? splits * all + i - all : i, apart = more ? rows / 4 : all;
  if (i >= all + (SUMS ? rows / 4 : 0)) return;
  quad sum = ((const quad*)parts)[at];
  _Pragma("unroll 4") for (int z = 1; z < splits; ++z) {
    const quad p = ((const quad*)parts)[at + z * apart];
    _Pragma("unroll") for (int j = 0; j < 4; ++j) sum.v[j] += p.v[j];
  }
  const i64 c = more ? (i - all) * 4 : i % wide * 4;
  if (more) {
    _Pragma("unroll") for (int j = 0; j < 4; ++j) bias[c + j] = sum.v[j];
    return;
  }
  if (!SUMS && bias) _Pragma("unroll") for (int j = 0; j < 4; ++j) sum.v[j] += bias[c + j];
  *(quad*)(out + i / wide * out_step + c) = sum;
}
"""
)


def _shared(tile: tuple[int, int], groups: int, sums: bool) -> int:
    """Return the bytes of shared memory that a block needs: for operands, and then for the sums that groups exchange."""
    each = 64 * tile[0] * (tile[1] + int(sums)) if groups > 1 else 0
    return 4 * groups * max(_stages(groups) * 32 * 8 * sum(tile), each)


def _stages(groups: int) -> int:
    return 3 if groups < 4 else 2


@functools.cache
def _kernels(where: Any, tile: tuple[int, int], groups: int, along: tuple[bool, bool], sums: bool) -> tuple[Any, Any]:
    sizes = f"#define TM {tile[0]}\n#define TN {tile[1]}\n#define GROUPS {groups}\n#define STAGES {_stages(groups)}\n"
    lie = f"#define A_ALONG {int(along[0])}\n#define B_ALONG {int(along[1])}\n#define SUMS {int(sums)}\n"
    module = nvidia.load_source(sizes + lie + _TEXT, where)
    multiply = module.function("multiply", tuple("qqqqqqqiiii"), _shared(tile, groups, sums))
    return multiply, module.function("add_up", tuple("qqqqiii"))


class ProductPlan:
    """Matrix product ready to be called with addresses: out = a @ b + bias, all matrices with gaps only between
    rows (or columns). With `sums`, the sums of a's rows are written to the address that otherwise holds the bias."""

    def __init__(
        self, where: Any, sizes: tuple[int, int, int], steps: tuple[int, int, int], along: tuple[bool, bool],
        tile: tuple[int, int], groups: int, splits: int, sums: bool = False,
    ) -> None:  # fmt: skip
        self.where, self.sizes, self.steps, self.splits, self.sums = where, sizes, steps, splits, sums
        self.multiply, self.add_up = _kernels(where, tile, groups, along, sums)
        rows, columns, _ = sizes
        self.blocks = -(-rows // (8 * tile[0])) * -(-columns // (8 * tile[1])) * splits
        self.threads = 64 * groups
        self.stream = -1

    def run(self, out: int, a: int, b: int, bias: int) -> None:
        (rows, columns, inner), (out_step, a_step, b_step) = self.sizes, self.steps
        if self.splits == 1:
            self.multiply(self.blocks, self.threads, out, out_step, a, a_step, b, b_step, bias, rows, columns, inner, 1)
            return
        numbers = rows * columns + (rows if self.sums else 0)
        parts = nvidia.workspace(4 * numbers * self.splits, self.where)
        totals = parts.ptr + 4 * rows * columns * self.splits if self.sums else 0
        self.multiply(
            self.blocks,
            self.threads,
            parts.ptr,
            columns,
            a,
            a_step,
            b,
            b_step,
            totals,
            rows,
            columns,
            inner,
            self.splits,
        )
        self.add_up(-(-numbers // 1024), 256, out, out_step, parts.ptr, bias, rows, columns, self.splits)


_LEAST, _MOST = 1 << 22, 1 << 27  # multiplications
# Tiles, groups, and the share of a multiprocessor's arithmetic that they reach when it is full.
_WAYS = (((8, 8), 2, 0.8), ((8, 4), 2, 0.7), ((4, 8), 2, 0.7), ((8, 4), 4, 0.7), ((6, 4), 4, 0.65), ((4, 4), 4, 0.55))
_SPLITS = (1, 2, 4, 6, 8, 12)
_WARPS = 8  # that keep a multiprocessor busy


@functools.cache
def chosen(
    sizes: tuple[int, int, int], along: tuple[bool, bool], processors: int, shared: int = 227 << 10
) -> tuple[tuple[int, int], int, int]:
    """Return (tile, groups, splits) by an estimate of the time that each takes, in cycles."""
    rows, columns, inner = sizes

    def cycles(way: tuple[tuple[int, int], int, float], splits: int) -> float:
        (tm, tn), groups, share = way
        blocks = -(-rows // (8 * tm)) * -(-columns // (8 * tn)) * splits
        each = -(-blocks // processors)
        busy = min(1.0, 2 * groups * each / _WARPS)
        return each * 64 * tm * tn * (inner / splits) / (128 * share * busy) + (
            4000 + rows * columns * splits / 200 if splits > 1 else 0
        )

    ways = [w for w in _WAYS if (along[0] or w[0][0] % 4 == 0) and _shared(w[0], w[1], True) <= shared]
    able = [(w, s) for w in ways for s in _SPLITS if s == 1 or inner >= 64 * s * w[1]]
    way, splits = min(able, key=lambda pair: cycles(*pair))
    return way[0], way[1], splits


def plan(
    where: Any,
    sizes: tuple[int, int, int],
    out: tuple[bool, int],
    a: tuple[bool, int],
    b: tuple[bool, int],
    alignment: int,
    sums: bool = False,
) -> ProductPlan | None:
    """Return the product of matrices that are stored by rows or by columns (True or False), with steps from one of these to the next. None if
    these kernels do not apply."""
    rows, columns, inner = sizes
    if (
        not out[0]
        or alignment < 16
        or not _LEAST <= rows * columns * inner <= _MOST
        or min(rows, columns) < 32
        or inner < 64
    ):
        return None
    if any(n % 4 for n in (*sizes, out[1], a[1], b[1])) or nvidia.capability(where) < (8, 0):
        return None
    along = (a[0], not b[0])
    shared = driver.attribute("shared_memory_per_block_optin", where.index or 0)
    way = chosen(sizes, along, nvidia.processors(where), shared)
    return ProductPlan(where, sizes, (out[1], a[1], b[1]), along, *way, sums)
