"""Convolutions of float32 on NVIDIA GPUs without tensor cores: what cuDNN has for them leaves most of a multiprocessor idle.

A convolution and the gradient of its input are products of weights and pixels: a block has 64 channels of the result and 64 pixels, each
of its threads 8 by 8 of these, and the weights and the windows of one channel after the other pass by in shared memory. For
the gradient of the weight a thread has a channel of the input and 8 of the result, and all taps of the window: it slides over a
patch of the picture in shared memory. Where that makes too few blocks, several share a result, and a second kernel adds up what they
found, in a fixed order."""

from __future__ import annotations

from typing import Any

from ...backends import nvidia
from ...core import dtype as dt
from ...core.settings import cudnn_switches
from ...core.tensor import Tensor
from .launching import address, function

_COMMON = r"""
struct alignas(16) quad { float v[4]; };
// Four bytes from global to shared memory, or zero, without waiting.
__device__ __forceinline__ void bring(float* to, const float* from, bool there) {
#ifdef __CUDA_ARCH__
  unsigned place;
  asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(place) : "l"(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(place), "l"(from), "r"(there ? 4 : 0) : "memory");
#else
  *to = there ? *from : 0.f;
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
extern "C" __global__ void __launch_bounds__(256) add_parts(float* out, const float* parts, i64 count, i64 quads) {
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

# The taps of a window: where in the source they look, from ST times the place in the result, and which of the weight's they are.
_PRODUCT = r"""
#define PIXELS (GH * GW)
#define STEP 68  // floats from one row in shared memory to the next
#define STAGE (TAPS * STEP)
#define STAGES 3
__device__ __forceinline__ int tap_of(int k) { const int table[TAPS] = {TAP}; return table[k]; }

extern "C" __global__ void __launch_bounds__(128) convolve(float* out, const float* x, const float* w, i64 pixels, i64 splits) {
  __shared__ quad space[STAGES * STAGE];  // of two groups of threads: weights, pixels
  const int t = threadIdx.x & 63, group = threadIdx.x >> 6, tx = t & 7, ty = t >> 3;
  const i64 tiles = (pixels + 63) / 64;
  i64 which = blockIdx.x;
  const int first_row = (int)(which % (CO / 64)) * 64;
  which /= CO / 64;
  const i64 first = which % tiles * 64, split = which / tiles;
  float* mine = space[0].v + group * (2 * STAGE);  // of a stage; stages are 4 * STAGE apart
  const int rows[TAPS] = {DOWN}, columns[TAPS] = {RIGHT};
  // The pixel whose window this thread brings.
  const i64 pixel = first + t, picture = pixel / PIXELS;
  const int at = (int)(pixel - picture * PIXELS), above = at / GW * ST, left = at % GW * ST;
  const float* source = x + picture * CI * SH * SW + above * SW + left;
  unsigned inside = 0;
  _Pragma("unroll") for (int k = 0; k < TAPS; ++k) {
    const int r = above + rows[k], c = left + columns[k];
    inside |= (pixel < pixels && r >= 0 && r < SH && c >= 0 && c < SW ? 1u : 0u) << k;
  }
  int from[TAPS], to[TAPS];  // weights
  _Pragma("unroll") for (int i = 0; i < TAPS; ++i) {
    const int e = t + 64 * i, row = e / TAPS, k = e % TAPS;
    to[i] = k * STEP + row;
    from[i] = (first_row + row) * ROW_STEP + tap_of(k);
  }
  const int per = (int)((CI + splits - 1) / splits), begin = (int)split * per, end = begin + per < CI ? begin + per : CI;
  const int steps = (end - begin + 1) / 2;
  auto fetch = [&](int step) {
    const int c = begin + 2 * step + group;
    const bool live = c < end;
    float* stage = mine + step % STAGES * (4 * STAGE);
    const float *weights = w + (i64)c * CHANNEL_STEP, *place = source + (i64)c * (SH * SW);
    _Pragma("unroll") for (int i = 0; i < TAPS; ++i) bring(stage + to[i], weights + from[i], live);
    _Pragma("unroll") for (int k = 0; k < TAPS; ++k)
      bring(stage + STAGE + k * STEP + t, place + rows[k] * SW + columns[k], live && (inside >> k & 1));
  };
  float sums[8][8];
  _Pragma("unroll") for (int i = 0; i < 8; ++i) _Pragma("unroll") for (int j = 0; j < 8; ++j) sums[i][j] = 0.f;
  _Pragma("unroll") for (int s = 0; s < STAGES - 1; ++s) {
    if (s < steps) fetch(s);
    brought();
  }
  _Pragma("unroll 1") for (int step = 0; step < steps; ++step) {
    wait_for_all_but<STAGES - 2>();
    __syncthreads();
    if (step + STAGES - 1 < steps) fetch(step + STAGES - 1);
    brought();
    const float* stage = mine + step % STAGES * (4 * STAGE);
    _Pragma("unroll") for (int k = 0; k < TAPS; ++k) {
      const float *a = stage + k * STEP + 4 * ty, *b = stage + STAGE + k * STEP + 4 * tx;
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
  float* exchange = space[0].v;
  _Pragma("unroll") for (int half = 0; half < 2; ++half) {
    if (group == 1)
      _Pragma("unroll") for (int i = 0; i < 4; ++i) _Pragma("unroll") for (int j = 0; j < 8; ++j)
        exchange[(i * 8 + j) * 64 + t] = sums[half * 4 + i][j];
    __syncthreads();
    if (group == 0)
      _Pragma("unroll") for (int i = 0; i < 4; ++i) _Pragma("unroll") for (int j = 0; j < 8; ++j)
        sums[half * 4 + i][j] += exchange[(i * 8 + j) * 64 + t];
    __syncthreads();
  }
  if (group == 1) return;
  out += split * pixels * CO;
  _Pragma("unroll") for (int side = 0; side < 2; ++side) {
    const i64 p = first + side * 32 + 4 * tx, n = p / PIXELS;
    if (p >= pixels) continue;
    float* to_picture = out + n * CO * PIXELS + (p - n * PIXELS);
    _Pragma("unroll") for (int i = 0; i < 8; ++i) {
      quad q;
      _Pragma("unroll") for (int j = 0; j < 4; ++j) q.v[j] = sums[i][side * 4 + j];
      *(quad*)(to_picture + (i64)(first_row + i / 4 * 32 + 4 * ty + i % 4) * PIXELS) = q;
    }
  }
}
"""

_WEIGHT = r"""
#define TAPS (KH * KW)
#define PIX (RH * SEG)
#define PR (ST * (RH - 1) + KH)  // rows and columns of a patch
#define PC (ST * (SEG - 1) + KW)
#define PATCH (PR * PC * 17)
#define STAGE (PATCH + 3) / 4 * 4 + PIX * 64
#define ACROSS ((OW + SEG - 1) / SEG)
#define DOWN ((OH + RH - 1) / RH)

extern "C" __global__ void __launch_bounds__(128) weigh(float* out, const float* x, const float* g, i64 batch, i64 splits) {
  __shared__ quad space[STAGES * (STAGE) / 4];
  const int t = threadIdx.x, tx = t & 15, ty = t >> 4;
  i64 which = blockIdx.x;
  const int first_ci = (int)(which % ((CI + 15) / 16)) * 16;
  which /= (CI + 15) / 16;
  const int first_co = (int)(which % (CO / 64)) * 64;
  const int split = (int)(which / (CO / 64));
  const int all = (int)batch * (DOWN * ACROSS), per = (all + (int)splits - 1) / (int)splits;
  const int begin = split * per, end = begin + per < all ? begin + per : all;
  auto fetch = [&](int step) {
    const int n = step / (DOWN * ACROSS), rest = step % (DOWN * ACROSS), oh = rest / ACROSS * RH, ow = rest % ACROSS * SEG;
    float *xs = space[0].v + (step - begin) % STAGES * (STAGE), *gs = xs + (PATCH + 3) / 4 * 4;
    const float* pictures = x + ((i64)n * CI + first_ci) * (H * W);
    const int above = oh * ST - PH, left = ow * ST - PW;
    _Pragma("unroll") for (int i = 0; i < (PR * PC * 16 + 127) / 128; ++i) {
      const int e = t + 128 * i, c = e % PC, r = e / PC % PR, ci = e / (PR * PC), row = above + r, column = left + c;
      const bool there = row >= 0 && row < H && column >= 0 && column < W && first_ci + ci < CI;
      if (PR * PC * 16 % 128 == 0 || e < PR * PC * 16) bring(xs + (r * PC + c) * 17 + ci, pictures + (ci * (H * W) + row * W + column), there);
    }
    const float* grads = g + ((i64)n * CO + first_co + (t >> 3)) * (OH * OW);
    _Pragma("unroll") for (int i = 0; i < PIX / 2; ++i) {
      const int p = i / 4 * 8 + (t & 7), co = (t >> 3) + i % 4 * 16, r = oh + p / SEG, c = ow + p % SEG;
      bring(gs + p * 64 + (co ^ 4 * (p & 7)), grads + (i % 4 * (16 * OH * OW) + r * OW + c), r < OH && c < OW);
    }
  };
  float sums[8][TAPS];
  _Pragma("unroll") for (int i = 0; i < 8; ++i) _Pragma("unroll") for (int k = 0; k < TAPS; ++k) sums[i][k] = 0.f;
  _Pragma("unroll") for (int s = 0; s < STAGES - 1; ++s) {
    if (begin + s < end) fetch(begin + s);
    brought();
  }
  _Pragma("unroll 1") for (int step = begin; step < end; ++step) {
    wait_for_all_but<STAGES - 2>();
    __syncthreads();
    if (step + STAGES - 1 < end) fetch(step + STAGES - 1);
    brought();
    const float *xs = space[0].v + (step - begin) % STAGES * (STAGE) + tx, *gs = xs - tx + (PATCH + 3) / 4 * 4;
    _Pragma("unroll 1") for (int r = 0; r < RH; ++r) {
      _Pragma("unroll") for (int c = 0; c < SEG; ++c) {
        const int p = r * SEG + c;
        const quad g0 = *(const quad*)(gs + p * 64 + (8 * ty ^ 4 * (p & 7))), g1 = *(const quad*)(gs + p * 64 + (8 * ty + 4 ^ 4 * (p & 7)));
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
  if (first_ci + tx >= CI) return;
  out += (i64)split * (CO * CI * TAPS) + ((i64)(first_co + 8 * ty) * CI + first_ci + tx) * TAPS;
  _Pragma("unroll") for (int i = 0; i < 8; ++i)
    _Pragma("unroll") for (int k = 0; k < TAPS; ++k) out[i * (CI * TAPS) + k] = sums[i][k];
}
"""

_BLOCKS = 264  # two for each multiprocessor of a large GPU
_MOST_TAPS = 9


def takes(kind: str, x: Tensor, w: Tensor, y: Tensor, window: tuple) -> bool:
    """Whether these kernels are for such a convolution (or the gradient that `kind` names)."""
    stride, pads, dilation, groups = window
    if x.dtype is not dt.float32 or cudnn_switches.allow_tf32 or len(x.shape) != 4 or not (x._contig and w._contig and y._contig):
        return False
    if groups != 1 or dilation != (1, 1) or w.shape[2:] != (3, 3) or any(a != b for a, b in pads) or stride[0] != stride[1]:
        return False
    result = x if kind == "input" else y
    if result.shape[1] % 64 or result.shape[2] * result.shape[3] % 4 or x.shape[0] * max(x[0].numel(), y[0].numel()) >= 1 << 31:
        return False
    if any(address(t) % 16 for t in (x, w, y)):
        return False
    return stride == (1, 1) or kind != "input"


def convolve(kind: str, x: Tensor, w: Tensor, y: Tensor, window: tuple) -> None:
    """y from x and w ("forward"), x from y and w ("input"), or w from x and y ("weight")."""
    if kind == "weight":
        _weight(x, w, y, window)
    else:
        _product(kind, x, w, y, window)


def _product(kind: str, x: Tensor, w: Tensor, y: Tensor, window: tuple) -> None:
    (step, _), ((high, _), (wide, _)), _, _ = window
    out, source = (x, y) if kind == "input" else (y, x)
    kh, kw = w.shape[2:]
    taps = [(i, j) for i in range(kh) for j in range(kw)]
    away = [(high - i, wide - j) if kind == "input" else (i - high, j - wide) for i, j in taps]
    rows, channels = out.shape[1], source.shape[1]
    many = kh * kw
    steps = (many, rows * many) if kind == "input" else (channels * many, many)
    text = _defines(
        CI=channels, CO=rows, SH=source.shape[2], SW=source.shape[3], GH=out.shape[2], GW=out.shape[3], ST=step, TAPS=many,
        ROW_STEP=steps[0], CHANNEL_STEP=steps[1], TAP=", ".join(map(str, range(many))),
        DOWN=", ".join(str(a) for a, _ in away), RIGHT=", ".join(str(b) for _, b in away),
    )  # fmt: skip
    pixels = out.shape[0] * out.shape[2] * out.shape[3]
    blocks = -(-pixels // 64) * (rows // 64)
    splits = _splits(blocks, channels // 8)
    run = function(text + _COMMON + _PRODUCT, "convolve", "qqqqq", x.device)
    _in_parts(text + _COMMON + _PRODUCT, out, splits, lambda to: run(blocks * splits, 128, to, address(source), address(w), pixels, splits))


def _weight(x: Tensor, w: Tensor, y: Tensor, window: tuple) -> None:
    (step, _), ((high, _), (wide, _)), _, _ = window
    (batch, channels, *sizes), (_, rows, *results) = x.shape, y.shape
    across = min(results[1], 16)
    down = max(1, min(results[0], (32 if step == 1 else 16) // across))
    while across * down % 8:
        down += 1
    text = _defines(
        CI=channels, CO=rows, H=sizes[0], W=sizes[1], OH=results[0], OW=results[1], ST=step, PH=high, PW=wide, KH=w.shape[2],
        KW=w.shape[3], RH=down, SEG=across, STAGES=3 if step == 1 else 2,
    )  # fmt: skip
    blocks = -(-channels // 16) * (rows // 64)
    splits = _splits(blocks, batch * -(-results[0] // down) * -(-results[1] // across))
    run = function(text + _COMMON + _WEIGHT, "weigh", "qqqqq", x.device)
    _in_parts(text + _COMMON + _WEIGHT, w, splits, lambda to: run(blocks * splits, 128, to, address(x), address(y), batch, splits))


def _splits(blocks: int, most: int) -> int:
    """In how many parts a sum is computed, so that every multiprocessor has two blocks."""
    return max(1, min(_BLOCKS // blocks, most))


def _in_parts(text: str, out: Tensor, splits: int, run: Any) -> None:
    if splits == 1:
        run(address(out))
        return
    count = out.numel()
    parts = nvidia.workspace(4 * count * splits, out.device)
    run(parts.ptr)
    add = function(text, "add_parts", "qqqq", out.device)
    add(-(-count // 1024), 256, address(out), parts.ptr, splits, count // 4)


def _defines(**values: Any) -> str:
    return "".join(f"#define {name} {value}\n" for name, value in values.items())


__all__ = ["convolve", "takes"]
