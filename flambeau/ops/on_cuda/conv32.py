"""Convolutions of float32 on NVIDIA GPUs without tensor cores: what cuDNN has for them leaves most of a multiprocessor idle.

A convolution and the gradient of its input are products of weights and pixels: a block has 64 channels of the result and 64 pixels, each
of its threads 8 by 8 of these, and the weights and the windows of one channel after the other pass by in shared memory. For
the gradient of the weight a thread has a channel of the input and 8 of the result, and all taps of the window: it slides over a
patch of the picture in shared memory. Where that makes too few blocks, several share a result, and a second kernel adds up what they
found, in a fixed order."""

from __future__ import annotations

import functools
import math
import struct
from typing import Any

from ...backends import nvidia
from ...core import dtype as dt
from ...core.settings import cudnn_switches
from ...core.tensor import Tensor
from ...kernels.cuda_copies import COPIES
from . import conv32_patches
from .launching import address, function

_COMMON = (
    COPIES
    + r"""extern "C" __global__ void __launch_bounds__(256) add_parts(float* out, const float* parts, i64 count, i64 quads) {
  const i64 i = blockIdx.x * (i64)256 + threadIdx.x;
  if (i >= quads) return;
  quad sum = ((const quad*)parts)[i];
  for (i64 z = 1; z < count; ++z) {
    const quad p = ((const quad*)parts)[z * quads + i];
    _Pragma("unroll") for (int j = 0; j < 4; ++j) sum.v[j] += p.v[j];
  }
  ((quad*)out)[i] = sum;
}
"""
)

# A result's pixel (a, b) sums taps (i, j) of a window: the source's pixel (step * a + down + turn * i, step * b + right + turn * j) times
# the weight's tap (first + skip * i, second + skip * j).
_PRODUCT = r"""
struct shape {
  int channels, results, source_high, source_wide, high, wide, step, down, right, turn, first, second, skip, taps_wide;
  int row_step, channel_step;  // of the weight, from one channel of the result or of the source to the next
  int apart, under, beside, full_wide;  // where a pixel of the result lies
};
#define STRIDE 68  // floats from one row in shared memory to the next
#define MOST 9     // of them at once
#define STAGE (MOST * STRIDE)
#define STAGES 3

template <int TH, int TW> __device__ __forceinline__ void product(float* space, float* out, const float* x, const float* w, const shape& s,
    i64 pixels, i64 which, int splits) {
  constexpr int TAPS = TH * TW, CHANNELS = MOST / TAPS;
  const int t = threadIdx.x & 63, group = threadIdx.x >> 6, tx = t & 7, ty = t >> 3;
  const int plane = s.high * s.wide, tiles = (int)((pixels + 63) / 64), across = s.results / 64;
  const int first_row = (int)(which % across) * 64;
  which /= across;
  const i64 first = which % tiles * 64;
  const int split = (int)(which / tiles);
  float* mine = space + group * (2 * STAGE);  // of a stage; stages are 4 * STAGE apart
  const place start = place_of(mine);
  // The pixel whose window this thread brings.
  const i64 pixel = first + t, picture = pixel / plane;
  const int at = (int)(pixel - picture * plane), above = at / s.wide * s.step + s.down, left = at % s.wide * s.step + s.right;
  const int source_plane = s.source_high * s.source_wide;
  const float* source = x + picture * s.channels * source_plane + (i64)above * s.source_wide + left;
  unsigned inside = 0;
  _Pragma("unroll") for (int k = 0; k < TAPS; ++k) {
    const int r = above + s.turn * (k / TW), c = left + s.turn * (k % TW);
    inside |= (pixel < pixels && r >= 0 && r < s.source_high && c >= 0 && c < s.source_wide ? 1u : 0u) << k;
  }
  int from[TAPS], to[TAPS];  // weights
  _Pragma("unroll") for (int i = 0; i < TAPS; ++i) {
    const int e = t + 64 * i, row = e / TAPS, k = e % TAPS;
    to[i] = k * STRIDE + row;
    from[i] = (first_row + row) * s.row_step + (s.first + s.skip * (k / TW)) * s.taps_wide + s.second + s.skip * (k % TW);
  }
  const int per = (s.channels + splits - 1) / splits, begin = split * per, end = begin + per < s.channels ? begin + per : s.channels;
  const int steps = (end - begin + 2 * CHANNELS - 1) / (2 * CHANNELS);
  int next = begin + group * CHANNELS;  // the channel that comes next
  const float* weights = w + (i64)next * s.channel_step;
  source += (i64)next * source_plane;
  auto fetch = [&](int step) {
    const place stage = ahead(start, step % STAGES * (4 * STAGE));
    _Pragma("unroll") for (int m = 0; m < CHANNELS; ++m) {
      const bool live = next + m < end;
      _Pragma("unroll") for (int i = 0; i < TAPS; ++i) bring<4>(ahead(stage, m * (TAPS * STRIDE) + to[i]), weights + from[i], live);
      _Pragma("unroll") for (int k = 0; k < TAPS; ++k)
        bring<4>(ahead(stage, STAGE + (m * TAPS + k) * STRIDE + t), source + s.turn * (k / TW * s.source_wide + k % TW), live && (inside >> k & 1));
      weights += s.channel_step;
      source += source_plane;
    }
    next += 2 * CHANNELS;
    weights += (i64)CHANNELS * s.channel_step;
    source += (i64)CHANNELS * source_plane;
  };
  float sums[8][8];
  _Pragma("unroll") for (int i = 0; i < 8; ++i) _Pragma("unroll") for (int j = 0; j < 8; ++j) sums[i][j] = 0.f;
  _Pragma("unroll") for (int i = 0; i < STAGES - 1; ++i) {
    if (i < steps) fetch(i);
    brought();
  }
  _Pragma("unroll 1") for (int step = 0; step < steps; ++step) {
    wait_for_all_but<STAGES - 2>();
    __syncthreads();
    if (step + STAGES - 1 < steps) fetch(step + STAGES - 1);
    brought();
    const float* stage = mine + step % STAGES * (4 * STAGE);
    _Pragma("unroll") for (int k = 0; k < TAPS * CHANNELS; ++k) {
      const float *a = stage + k * STRIDE + 4 * ty, *b = stage + STAGE + k * STRIDE + 4 * tx;
      const quad a0 = *(const quad*)a, a1 = *(const quad*)(a + 32), b0 = *(const quad*)b, b1 = *(const quad*)(b + 32);
      _Pragma("unroll") for (int i = 0; i < 4; ++i) _Pragma("unroll") for (int j = 0; j < 4; ++j) {
        sums[i][j] += a0.v[i] * b0.v[j];
        sums[i][j + 4] += a0.v[i] * b1.v[j];
        sums[i + 4][j] += a1.v[i] * b0.v[j];
        sums[i + 4][j + 4] += a1.v[i] * b1.v[j];
      }
    }
  }
  // The second group hands its sums to the first.
  wait_for_all_but<0>();
  __syncthreads();
  _Pragma("unroll") for (int half = 0; half < 2; ++half) {
    if (group == 1)
      _Pragma("unroll") for (int i = 0; i < 4; ++i) _Pragma("unroll") for (int j = 0; j < 8; ++j)
        space[(i * 8 + j) * 64 + t] = sums[half * 4 + i][j];
    __syncthreads();
    if (group == 0)
      _Pragma("unroll") for (int i = 0; i < 4; ++i) _Pragma("unroll") for (int j = 0; j < 8; ++j)
        sums[half * 4 + i][j] += space[(i * 8 + j) * 64 + t];
    __syncthreads();
  }
  if (group == 1) return;
  const i64 full = (i64)plane * s.apart * s.apart;
  out += split * (pixels * s.apart * s.apart * s.results);
  _Pragma("unroll") for (int side = 0; side < 2; ++side) {
    const i64 p = first + side * 32 + 4 * tx, n = p / plane;
    if (p >= pixels) continue;
    const int rest = (int)(p - n * plane), a = rest / s.wide, b = rest - a * s.wide;
    float* to_picture = out + n * s.results * full;
    _Pragma("unroll") for (int i = 0; i < 8; ++i) {
      float* to_plane = to_picture + (i64)(first_row + i / 4 * 32 + 4 * ty + i % 4) * full;
      quad q;
      _Pragma("unroll") for (int j = 0; j < 4; ++j) q.v[j] = sums[i][side * 4 + j];
      if (s.apart == 1) *(quad*)(to_plane + rest) = q;
      else _Pragma("unroll") for (int j = 0; j < 4; ++j) to_plane[(2 * a + s.under) * s.full_wide + 2 * (b + j) + s.beside] = q.v[j];
    }
  }
}
"""

_ONCE = r"""
extern "C" __global__ void __launch_bounds__(128) convolve(float* out, const float* x, const float* w, shape s, i64 pixels, int splits) {
  __shared__ quad space[STAGES * STAGE];
  product<KH, KW>(space[0].v, out, x, w, s, pixels, blockIdx.x, splits);
}
"""

_BACK = r"""
// The gradient of the input of a convolution of 3 x 3 taps with stride 2: pixels in even and odd rows and columns have other taps.
template <int TH, int TW> __device__ __forceinline__ void quarter(float* space, float* out, const float* x, const float* w, shape s,
    i64 pixels, i64 which, int splits) {
  s.first = TH == 1;
  s.second = TW == 1;
  s.under = (s.down ^ s.first) & 1;
  s.beside = (s.right ^ s.second) & 1;
  s.down = (s.under + s.down - s.first) / 2;
  s.right = (s.beside + s.right - s.second) / 2;
  product<TH, TW>(space, out, x, w, s, pixels, which, splits);
}

extern "C" __global__ void __launch_bounds__(128) convolve_back(float* out, const float* x, const float* w, shape s, i64 pixels,
    int splits) {
  __shared__ quad space[STAGES * STAGE];
  const i64 each = gridDim.x / 4, which = blockIdx.x % each;
  switch ((int)(blockIdx.x / each)) {  // the most work first
    case 0: quarter<2, 2>(space[0].v, out, x, w, s, pixels, which, splits); break;
    case 1: quarter<1, 2>(space[0].v, out, x, w, s, pixels, which, splits); break;
    case 2: quarter<2, 1>(space[0].v, out, x, w, s, pixels, which, splits); break;
    default: quarter<1, 1>(space[0].v, out, x, w, s, pixels, which, splits);
  }
}
"""

# A step of the sum is RH x SEG pixels of the result.
_WEIGHT = r"""
struct shape { int channels, results, high, wide, result_high, result_wide, down, right; };
#define TAPS (KH * KW)
#define PIX (RH * SEG)
#define PR (ST * (RH - 1) + KH)  // rows and columns of a patch
#define PC (ST * (SEG - 1) + KW)
#define PATCH ((PR * PC * 17 + 3) / 4 * 4)
#define STAGE (PATCH + PIX * 64)

extern "C" __global__ void __launch_bounds__(128) weigh(float* out, const float* x, const float* g, shape s, int batch, int splits) {
  __shared__ quad space[STAGES * STAGE / 4];
  const int t = threadIdx.x, tx = t & 15, ty = t >> 4;
  const int plane = s.high * s.wide, result_plane = s.result_high * s.result_wide;
  const int across = (s.result_wide + SEG - 1) / SEG, steps = (s.result_high + RH - 1) / RH * across;
  int which = blockIdx.x;
  const int first_in = which % ((s.channels + 15) / 16) * 16;
  which /= (s.channels + 15) / 16;
  const int first_out = which % (s.results / 64) * 64, split = which / (s.results / 64);
  const int per = (batch * steps + splits - 1) / splits, begin = split * per;
  const int end = begin + per < batch * steps ? begin + per : batch * steps;
  const place start = place_of(space[0].v);
  auto fetch = [&](int step) {
    const int n = step / steps, rest = step % steps, high = rest / across * RH, wide = rest % across * SEG;
    const place xs = ahead(start, (step - begin) % STAGES * STAGE), gs = ahead(xs, PATCH);
    const float* pictures = x + ((i64)n * s.channels + first_in) * plane;
    const int above = high * ST - s.down, left = wide * ST - s.right;
    _Pragma("unroll") for (int i = 0; i < (PR * PC * 16 + 127) / 128; ++i) {
      const int e = t + 128 * i, c = e % PC, r = e / PC % PR, m = e / (PR * PC), row = above + r, column = left + c;
      const bool there = row >= 0 && row < s.high && column >= 0 && column < s.wide && first_in + m < s.channels;
      if (PR * PC * 16 % 128 == 0 || e < PR * PC * 16)
        bring<4>(ahead(xs, (r * PC + c) * 17 + m), pictures + (m * plane + row * s.wide + column), there);
    }
    const float* grads = g + ((i64)n * s.results + first_out + (t >> 3)) * result_plane;
    _Pragma("unroll") for (int i = 0; i < PIX / 2; ++i) {
      const int p = i / 4 * 8 + (t & 7), m = (t >> 3) + i % 4 * 16, r = high + p / SEG, c = wide + p % SEG;
      bring<4>(ahead(gs, p * 64 + (m ^ 4 * (p & 7))), grads + (i % 4 * 16 * result_plane + r * s.result_wide + c), r < s.result_high && c < s.result_wide);
    }
  };
  float sums[8][TAPS];
  _Pragma("unroll") for (int i = 0; i < 8; ++i) _Pragma("unroll") for (int k = 0; k < TAPS; ++k) sums[i][k] = 0.f;
  _Pragma("unroll") for (int i = 0; i < STAGES - 1; ++i) {
    if (begin + i < end) fetch(begin + i);
    brought();
  }
  _Pragma("unroll 1") for (int step = begin; step < end; ++step) {
    wait_for_all_but<STAGES - 2>();
    __syncthreads();
    if (step + STAGES - 1 < end) fetch(step + STAGES - 1);
    brought();
    const float *xs = space[0].v + (step - begin) % STAGES * STAGE + tx, *gs = xs - tx + PATCH;
    _Pragma("unroll 1") for (int r = 0; r < RH; ++r) {
      _Pragma("unroll") for (int c = 0; c < SEG; ++c) {
        const int p = r * SEG + c;
        const quad g0 = *(const quad*)(gs + p * 64 + (8 * ty ^ 4 * (p & 7)));
        const quad g1 = *(const quad*)(gs + p * 64 + (8 * ty + 4 ^ 4 * (p & 7)));
        _Pragma("unroll") for (int k = 0; k < TAPS; ++k) {
          const float v = xs[((r * ST + k / KW) * PC + c * ST + k % KW) * 17];
          _Pragma("unroll") for (int i = 0; i < 4; ++i) {
            sums[i][k] += g0.v[i] * v;
            sums[i + 4][k] += g1.v[i] * v;
          }
        }
      }
    }
  }
  if (first_in + tx >= s.channels) return;
  out += ((i64)split * s.results * s.channels + (i64)(first_out + 8 * ty) * s.channels + first_in + tx) * TAPS;
  _Pragma("unroll") for (int i = 0; i < 8; ++i)
    _Pragma("unroll") for (int k = 0; k < TAPS; ++k) out[(i64)i * s.channels * TAPS + k] = sums[i][k];
}
"""

_PATCHES, _QUADS, _EACH = True, False, 4
_BLOCKS = _WEIGH_BLOCKS = 264  # two for each multiprocessor of a large GPU
_SHAPE, _PICTURE = struct.Struct("<20i"), struct.Struct("<8i")


def takes(kind: str, x: Tensor, w: Tensor, y: Tensor, window: tuple) -> bool:
    """Whether these kernels are for such a convolution (or the gradient that `kind` names)."""
    if x.dtype is not dt.float32 or cudnn_switches.allow_tf32 or not (x._contig and w._contig and y._contig):
        return False
    return not (address(x) | address(w) | address(y)) % 16 and _fits(kind, x.shape, w.shape, y.shape, window, x.device)


@functools.lru_cache(4096)
def _fits(kind: str, x: tuple, w: tuple, y: tuple, window: tuple, where: Any) -> bool:
    if nvidia.capability(where) < (8, 0) or len(x) != 4 or w[2:] != (3, 3) or 0 in x or 0 in y:
        return False
    (step, other), ((high, low), (left, right)), dilation, groups = window
    if groups != 1 or dilation != (1, 1) or step != other or high != low or left != right:
        return False
    _, rows, tall, wide = x if kind == "input" else y
    if rows % 64 or max(math.prod(x), math.prod(y)) >= 1 << 31 or (kind != "weight" and tall * wide % 4):
        return False
    return step == 1 or kind != "input" or (step == 2 and tall % 2 == 0 and wide % 8 == 0 and high < 3 > left)


def convolve(kind: str, x: Tensor, w: Tensor, y: Tensor, window: tuple) -> None:
    """y from x and w ("forward"), x from y and w ("input"), or w from x and y ("weight")."""
    out = {"forward": y, "input": x, "weight": w}[kind]
    given = [address(t) for t in (x, w, y) if t is not out]
    if kind == "input":
        given.reverse()
    _plan(kind, x.shape, w.shape, y.shape, window, x.device).run(address(out), *given)


class _Plan:
    """The launches of a convolution: `run` computes a result from the source and the weight, or from pictures and gradients."""

    def __init__(
        self, text: str, kernel: str, blocks: int, splits: int, numbers: tuple, kinds: tuple, count: int, where: Any, shared: int = 0
    ) -> None:  # fmt: skip
        self.kernel = function(text, kernel, kinds, where, shared)
        self.add = function(_COMMON, "add_parts", "qqqq", where) if splits > 1 else None
        self.blocks, self.splits, self.numbers, self.count, self.where = blocks, splits, numbers, count, where

    def run(self, out: int, first: int, second: int) -> None:
        if self.add is None:
            self.kernel(self.blocks, 128, out, first, second, *self.numbers)
            return
        parts = nvidia.workspace(4 * self.count * self.splits, self.where)
        self.kernel(self.blocks, 128, parts.ptr, first, second, *self.numbers)
        self.add(-(-self.count // 1024), 256, out, parts.ptr, self.splits, self.count // 4)


@functools.lru_cache(4096)
def _plan(kind: str, x: tuple, w: tuple, y: tuple, window: tuple, where: Any) -> _Plan:
    if (
        _PATCHES
        and window[0] == (1, 1)
        and (x[1] % 16 == 0 == y[3] % 4 if kind == "weight" else (x, y)[kind == "input"][1] % 8 == 0)
    ):
        return _patches(kind, x, w, y, window, where)
    return _weight(x, w, y, window, where) if kind == "weight" else _product(kind == "input", x, w, y, window, where)


def _product(back: bool, x: tuple, w: tuple, y: tuple, window: tuple, where: Any) -> _Plan:
    (step, _), ((high, _), (left, _)), _, _ = window
    out, source = (x, y) if back else (y, x)
    kh, kw = w[2:]
    (_, rows, tall, wide), channels, many = out, source[1], kh * kw
    apart = step if back else 1
    sizes = tall // apart, wide // apart
    shape = _SHAPE.pack(
        channels, rows, *source[2:], *sizes, 1 if back else step, *((high, left, -1) if back else (-high, -left, 1)),
        0, 0, apart, kw, *((many, rows * many) if back else (channels * many, many)), apart, 0, 0, wide,
    )  # fmt: skip
    pixels = out[0] * sizes[0] * sizes[1]
    blocks = -(-pixels // 64) * (rows // 64) * apart * apart
    splits = _splits(blocks, channels // 16, _BLOCKS)
    text = _defines(KH=kh, KW=kw) + _COMMON + _PRODUCT + (_ONCE if apart == 1 else _BACK)
    kinds = (*"qqq", _SHAPE.size, "q", "i")
    name = "convolve" if apart == 1 else "convolve_back"
    return _Plan(text, name, blocks * splits, splits, (shape, pixels, splits), kinds, math.prod(out), where)


def _patches(kind: str, x: tuple, w: tuple, y: tuple, window: tuple, where: Any) -> _Plan:
    _, ((high, _), (left, _)), _, _ = window
    back, weigh = kind == "input", kind == "weight"
    out, source = (x, y) if back else (y, x)
    (batch, rows, tall, wide), channels = out, source[1]
    tile = 4 if tall <= 4 and wide <= 4 else 8
    around = (high - 2, left - 2) if back else (-high, -left)
    shape = _PICTURE.pack(channels, rows, tall, wide, *source[2:], *around)
    steps = -(-batch // (64 // tile**2)) * -(-tall // tile) * -(-wide // tile)
    blocks = (channels // 16 if weigh else steps) * (rows // 64)
    splits = _splits(blocks, steps if weigh else channels // 16, _WEIGH_BLOCKS if weigh else _BLOCKS)
    names = _defines(TILE=tile, BACK=int(back), QUADS=int(_QUADS and not back), EACH=_EACH)
    text = names + (conv32_patches.WEIGH if weigh else conv32_patches.CONVOLVE)
    kinds, shared = (*"qqq", _PICTURE.size, "i", "i"), conv32_patches.shared_bytes(tile, weigh)
    count = math.prod(w if weigh else out)
    name = "weigh_patches" if weigh else "convolve_patches"
    return _Plan(text, name, blocks * splits, splits, (shape, batch, splits), kinds, count, where, shared)


def _weight(x: tuple, w: tuple, y: tuple, window: tuple, where: Any) -> _Plan:
    (step, _), ((high, _), (left, _)), _, _ = window
    (batch, channels, *sizes), (_, rows, *results) = x, y
    across = min(16, max(4, 1 << (results[1] - 1).bit_length()))
    down = max(1, (32 if step == 1 and across > 4 else 16) // across)
    text = _defines(KH=w[2], KW=w[3], ST=step, RH=down, SEG=across, STAGES=3) + _COMMON + _WEIGHT
    shape = _PICTURE.pack(channels, rows, *sizes, *results, high, left)
    blocks = -(-channels // 16) * (rows // 64)
    splits = _splits(blocks, batch * -(-results[0] // down) * -(-results[1] // across), _BLOCKS)
    kinds = (*"qqq", _PICTURE.size, "i", "i")
    return _Plan(text, "weigh", blocks * splits, splits, (shape, batch, splits), kinds, math.prod(w), where)


def _splits(blocks: int, most: int, wanted: int) -> int:
    """In how many parts a sum is computed, so that every multiprocessor has two blocks."""
    return max(1, min(wanted // blocks, most))


def _defines(**values: Any) -> str:
    return "".join(f"#define {name} {value}\n" for name, value in values.items())


__all__ = ["convolve", "takes"]
