"""Convolutions of float32 with 3 x 3 taps over small feature maps, and the gradients of their inputs, on NVIDIA GPUs without tensor cores:
cuDNN's kernels for them reach a third of peak arithmetic. (For gradients of weights, and for some feature maps of other sizes, it has
Winograd's algorithm, which is faster than this.)

A block has 64 channels of the result and 64 pixels, 8 x 8 of one feature map or 4 x 4 of four, and two groups of 64 threads that share the
channels of the source: each takes four at a time. Patches of the source are copied to shared memory unchanged; a thread reads rows of six
neighbours, which contain the windows of four pixels. If that makes too few blocks, several share a result, and a second kernel adds up their
sums, in a fixed order."""

from __future__ import annotations

import functools
import math
import struct
from typing import Any

from ....core import dtype as dt
from ....core.aliases import Values
from ....core.settings import cudnn_switches
from ....core.tensor import Tensor
from ....kernels.cuda_copies import COPIES
from ... import nvidia
from .launching import address, function

_ADD = r"""
struct alignas(16) quad { float v[4]; };
extern "C" __global__ void __launch_bounds__(256) add_parts(float* out, const float* parts, i64 count, i64 quads) {
  const i64 i = blockIdx.x * (i64)256 + threadIdx.x;
  if (i >= quads) return;
  quad sum = ((const quad*)parts)[i];
  _Pragma("unroll 4") for (i64 z = 1; z < count; ++z) {
    const quad p = ((const quad*)parts)[z * quads + i];
    _Pragma("unroll") for (int j = 0; j < 4; ++j) sum.v[j] += p.v[j];
  }
  ((quad*)out)[i] = sum;
}
"""

_CONVOLVE = (
    COPIES
    + r"""
struct shape { int channels, results, high, wide, source_high, source_wide, down, right; };
// TILE is 8 or 4. Rows of a patch are STEP floats apart, so that eight threads with neighbouring quads meet different banks.
#define EDGE (TILE + 2)
#define IMAGES (64 / (TILE * TILE))
#define STEP (TILE == 8 ? 24 : 8)
#define IMAGE (TILE == 8 ? 240 : 52)
#define PATCH (IMAGES * IMAGE)
#define WEIGHTS 2304  // of 64 x 4 channels
#define STAGE (WEIGHTS + 4 * PATCH)
#define LINE (TILE == 8 ? 16 : 8)  // threads for a row of a patch
#define PASSES 3  // in which 64 threads bring a patch

extern "C" __global__ void __launch_bounds__(128, EACH) convolve(float* out, const float* x, const float* w, shape s, int batch, int splits) {
  extern __shared__ quad space[];
  const int t = threadIdx.x & 63, group = threadIdx.x >> 6, tx = t & 7, ty = t >> 3;
  const int tiles_wide = s.wide / TILE, tiles = s.high / TILE * tiles_wide, rows = s.results / 64;
  int which = blockIdx.x;
  const int first_row = which % rows * 64;
  which /= rows;
  const int row0 = which % tiles / tiles_wide * TILE, column0 = which % tiles % tiles_wide * TILE;
  which /= tiles;
  const int together = (batch + IMAGES - 1) / IMAGES, image0 = which % together * IMAGES, split = which / together;
  const int plane = s.source_high * s.source_wide, all = s.channels / 8, per = (all + splits - 1) / splits;
  const int begin = split * per, end = begin + per < all ? begin + per : all;
  float* mine = space[0].v + group * (2 * STAGE);
  const place start = place_of(mine);
  // What this thread brings of each channel's patch: where from, where to, whether it is its business and whether it is inside.
  int from[PASSES], to[PASSES];
  unsigned own = 0, inside = 0;
  _Pragma("unroll") for (int i = 0; i < PASSES; ++i) {
    const int line = t / LINE + 64 / LINE * i, r = line % EDGE, n = line / EDGE, c = t % LINE;
    const int row = row0 + s.down + r, column = column0 + s.right + c;
    const bool there = row >= 0 && row < s.source_high && column >= 0 && column < s.source_wide && image0 + n < batch;
    from[i] = there ? n * s.channels * plane + row * s.source_wide + column : 0;
    to[i] = WEIGHTS + n * IMAGE + r * STEP + c;
    own |= (c < EDGE && n < IMAGES ? 1u : 0u) << i;
    inside |= (there ? 1u : 0u) << i;
  }
  const float* source = x + ((i64)image0 * s.channels + 8 * begin + 4 * group) * plane;
  // Weights lie as (results, channels, taps), and are brought as 64 rows of 36; or as (channels, results, taps), as four times 64 x 9.
  const i64 apart = BACK ? (i64)s.results * 9 : 9;
  const float* weights = w + (8 * begin + 4 * group) * apart + (BACK ? first_row * 9 + 4 * t : (first_row + t / 9) * (s.channels * 9) + t % 9 * 4);
  auto fetch = [&](int stage) {
    const place here = ahead(start, stage * STAGE);
    if (BACK) {
      _Pragma("unroll") for (int m = 0; m < 4; ++m)
        _Pragma("unroll") for (int j = 0; j < 3; ++j)
          if (j < 2 || t < 16) bring<16>(ahead(here, 576 * m + 256 * j + 4 * t), weights + m * apart + 256 * j, true);
    } else {
      _Pragma("unroll") for (int j = 0; j < 10; ++j)
        if (j < 9 ? t < 63 : t < 9) bring<16>(ahead(here, 4 * t + 252 * j), weights + j * 7 * (s.channels * 9), true);
    }
    _Pragma("unroll") for (int m = 0; m < 4; ++m)
      _Pragma("unroll") for (int i = 0; i < PASSES; ++i)
        if (own >> i & 1) bring<4>(ahead(here, to[i] + m * PATCH), source + m * plane + from[i], inside >> i & 1);
    source += (i64)8 * plane;
    weights += 8 * apart;
  };
  float sums[8][8];
  _Pragma("unroll") for (int i = 0; i < 8; ++i) _Pragma("unroll") for (int j = 0; j < 8; ++j) sums[i][j] = 0.f;
  const int quad0 = TILE == 8 ? (tx >> 1) * STEP + (tx & 1) * 4 : (tx >> 2) * IMAGE + (tx & 3) * STEP;
  const int next = TILE == 8 ? 4 * STEP : 2 * IMAGE;
  if (begin < end) fetch(0);
  brought();
  _Pragma("unroll 1") for (int step = begin; step < end; ++step) {
    const int stage = step - begin & 1;
    wait_for_all_but<0>();
    __syncthreads();
    if (step + 1 < end) fetch(stage ^ 1);
    brought();
    _Pragma("unroll 1") for (int m = 0; m < 4; ++m) {
      const float *patch = mine + stage * STAGE + WEIGHTS + m * PATCH + quad0;
      const float *taps = mine + stage * STAGE + ty * (BACK ? 9 : 36) + m * (BACK ? 576 : 9);
      _Pragma("unroll") for (int kh = 0; kh < 3; ++kh) {
        float window[2][6];
        _Pragma("unroll") for (int q = 0; q < 2; ++q) {
          const float* at = patch + q * next + kh * STEP;
          const quad head = *(const quad*)at;
          const two tail = *(const two*)(at + 4);
          _Pragma("unroll") for (int c = 0; c < 4; ++c) window[q][c] = head.v[c];
          window[q][4] = tail.v[0];
          window[q][5] = tail.v[1];
        }
        _Pragma("unroll") for (int kw = 0; kw < 3; ++kw) {
          const int tap = BACK ? 8 - 3 * kh - kw : 3 * kh + kw;
          float a[8];
          _Pragma("unroll") for (int i = 0; i < 8; ++i) a[i] = taps[i * 8 * (BACK ? 9 : 36) + tap];
          _Pragma("unroll") for (int i = 0; i < 8; ++i)
            _Pragma("unroll") for (int j = 0; j < 8; ++j) sums[i][j] += a[i] * window[j / 4][j % 4 + kw];
        }
      }
    }
  }
  // The second group hands its sums to the first.
  wait_for_all_but<0>();
  float* exchange = space[0].v;
  __syncthreads();
  if (group == 1)
    _Pragma("unroll") for (int i = 0; i < 8; ++i) _Pragma("unroll") for (int j = 0; j < 8; ++j) exchange[(i * 8 + j) * 64 + t] = sums[i][j];
  __syncthreads();
  if (group == 1) return;
  out += (i64)split * batch * s.results * s.high * s.wide;
  _Pragma("unroll") for (int q = 0; q < 2; ++q) {
    const int n = image0 + (TILE == 8 ? 0 : (tx >> 2) + 2 * q), row = row0 + (TILE == 8 ? (tx >> 1) + 4 * q : tx & 3);
    const int column = column0 + (TILE == 8 ? (tx & 1) * 4 : 0);
    if (n >= batch) continue;
    _Pragma("unroll") for (int i = 0; i < 8; ++i) {
      quad r;
      _Pragma("unroll") for (int j = 0; j < 4; ++j) r.v[j] = sums[i][4 * q + j] + exchange[(i * 8 + 4 * q + j) * 64 + t];
      *(quad*)(out + (((i64)n * s.results + first_row + ty + 8 * i) * s.high + row) * s.wide + column) = r;
    }
  }
}
"""
)

_EACH = 4  # blocks on a multiprocessor
_LARGEST = 32  # pixels of a side: beyond that cuDNN has not been measured
_SHAPE = struct.Struct("<8i")


def takes(kind: str, x: Tensor, w: Tensor, y: Tensor, window: Values) -> bool:
    """Return whether these kernels compute such a convolution (or the gradient that `kind` names)."""
    if x.dtype is not dt.float32 or cudnn_switches.allow_tf32 or not (x._contig and w._contig and y._contig):
        return False
    return not (address(x) | address(w) | address(y)) % 16 and _fits(kind, x.shape, w.shape, y.shape, window, x.device)


@functools.lru_cache(4096)
def _fits(kind: str, x: Values, w: Values, y: Values, window: Values, where: Any) -> bool:
    if kind == "weight" or len(x) != 4 or w[2:] != (3, 3) or 0 in x or 0 in y or nvidia.capability(where) < (8, 0):
        return False
    step, ((high, low), (left, right)), dilation, groups = window
    if groups != 1 or dilation != (1, 1) or step != (1, 1) or high != low or left != right:
        return False
    (_, rows, *sizes), (_, channels, *_) = (x, y) if kind == "input" else (y, x)
    if rows % 64 or channels % 8 or max(math.prod(x), math.prod(y)) >= 1 << 31:
        return False
    return sizes == [4, 4] or all(n % 8 == 0 and n <= _LARGEST for n in sizes)


def convolve(kind: str, x: Tensor, w: Tensor, y: Tensor, window: Values) -> None:
    """Compute y from x and w ("forward"), or x from y and w ("input")."""
    out, source = (x, y) if kind == "input" else (y, x)
    _plan(kind == "input", x.shape, w.shape, y.shape, window, x.device).run(address(out), address(source), address(w))


class _Plan:
    """The launches of a convolution."""

    def __init__(self, back: bool, x: Values, w: Values, y: Values, window: Values, where: Any) -> None:
        _, ((high, _), (left, _)), _, _ = window
        out, source = (x, y) if back else (y, x)
        (batch, rows, tall, wide), channels = out, source[1]
        tile = min(tall, 8)
        around = (high - 2, left - 2) if back else (-high, -left)
        blocks = -(-batch // (64 // tile**2)) * (tall // tile) * (wide // tile) * (rows // 64)
        splits = max(1, min(_EACH * nvidia.processors(where) // blocks, channels // 16))
        text = f"#define TILE {tile}\n#define BACK {int(back)}\n#define EACH {_EACH}\n" + _CONVOLVE
        shared = 16 * (2304 + 4 * (240 if tile == 8 else 208))  # two stages of two groups
        self.kernel = function(text, "convolve", (*"qqq", _SHAPE.size, "i", "i"), where, shared)
        self.add = function(_ADD, "add_parts", "qqqq", where) if splits > 1 else None
        self.numbers = _SHAPE.pack(channels, rows, tall, wide, *source[2:], *around), batch, splits
        self.blocks, self.splits, self.count, self.where = blocks * splits, splits, math.prod(out), where

    def run(self, out: int, source: int, weight: int) -> None:
        if self.add is None:
            self.kernel(self.blocks, 128, out, source, weight, *self.numbers)
            return
        parts = nvidia.workspace(4 * self.count * self.splits, self.where)
        self.kernel(self.blocks, 128, parts.ptr, source, weight, *self.numbers)
        self.add(-(-self.count // 1024), 256, out, parts.ptr, self.splits, self.count // 4)


_plan = functools.lru_cache(4096)(_Plan)
