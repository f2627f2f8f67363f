"""Losses with class indices on NVIDIA GPUs: targets that are no class are reported when the host next waits for the device.

Rows of scores are read once: a thread keeps the largest of its scores and the sum of exponentials relative to it, and a block combines those."""

from __future__ import annotations

import functools
import math
from typing import Any

from ....core import dtype as dt
from ....core.tensor import Tensor
from ....kernels.cuda_values import constant
from ....kernels.library import loss as kernels
from ....ops.machinery.memory import dense
from ....ops.nn.cross_entropy import (
    cross_entropy_backward,
    cross_entropy_gradient,
    cross_entropy_indices,
    cross_entropy_unrecorded,
    launch_indices,
    run_backward,
)
from ....ops.nn.nll_loss import nll_loss_planes, nll_loss_rows, plane_layout, run_nll
from ... import nvidia
from .launching import address, element_text, function

# The last statistic is not zero if the kernel before met such a target; the first of them goes into the report.
_TEXT = """
typedef unsigned long long U;
extern "C" __global__ void refuse(const void* met, long long wide, const void* targets, long long bytes, long long count,
    long long classes, long long ignored, long long* report, long long code) {
  if (wide ? *(const double*)met == 0 : *(const float*)met == 0) return;
  for (long long i = 0; i < count; ++i) {
    long long t = bytes == 8 ? ((const long long*)targets)[i] : ((const unsigned char*)targets)[i];
    if ((t >= 0 && t < classes) || t == ignored) continue;
    if (atomicCAS((U*)report, (U)0, (U)code) == 0) report[1] = t;
    return;
  }
}
"""


# One block a row of n scores, V at a time. The statistics are the loss's (kernels/library/loss.py): those of an ignored target are kept.
_ROWS = """
using given::get;
typedef given::T X;
typedef made::A A;
template <class T> constexpr int alignment() { return sizeof(T) * V < 16 ? sizeof(T) * V : 16; }
struct alignas(alignment<X>()) Scores { X v[V]; };
struct alignas(alignment<made::T>()) Results { made::T v[V]; };
__device__ __forceinline__ float exponential(float v) { return expf(v); }
__device__ __forceinline__ double exponential(double v) { return exp(v); }
__device__ __forceinline__ float term(float v) { return exp2f(v * 1.4426950408889634f); }  // for sums: fewer instructions than expf
__device__ __forceinline__ double term(double v) { return exp(v); }
__device__ __forceinline__ float logarithm(float v) { return logf(v); }
__device__ __forceinline__ double logarithm(double v) { return log(v); }
__device__ __forceinline__ i64 target_of(const void* targets, i64 bytes, i64 row) {
  return bytes == 8 ? ((const i64*)targets)[row] : ((const unsigned char*)targets)[row];
}
struct Sums { A top, sum; };
// The largest score of both, and the sum relative to it. Where nothing but -inf was met, there is no sum yet.
__device__ __forceinline__ Sums join(Sums a, Sums b) {
  const A top = a.top > b.top ? a.top : b.top;
  if (top == LOWEST) return {top, a.sum + b.sum};
  return {top, a.sum * exponential(a.top - top) + b.sum * exponential(b.top - top)};
}

extern "C" __global__ void __launch_bounds__(256) statistics(A* stats, made::T* soft, const X* x, const void* targets, i64 bytes, i64 n, i64 ignored) {
  __shared__ Sums parts[8];
  const i64 row = blockIdx.x;
  const Scores* scores = (const Scores*)(x + row * n);
  Sums own = {LOWEST, 0};
  for (i64 i = threadIdx.x; i < n / V; i += 256 * TOGETHER) {
    Scores s[TOGETHER];  // all are asked for before the first is looked at
    _Pragma("unroll") for (int j = 0; j < TOGETHER; ++j) if (i + 256 * j < n / V) s[j] = scores[i + 256 * j];
    _Pragma("unroll") for (int j = 0; j < TOGETHER; ++j) {
      if (i + 256 * j >= n / V) break;
      if (COPIES && soft) ((Scores*)(soft + row * n))[i + 256 * j] = s[j];
      A v[V], top = own.top, sum = 0;
      _Pragma("unroll") for (int k = 0; k < V; ++k) { v[k] = get(s[j].v[k]); top = v[k] > top ? v[k] : top; }
      if (top > own.top) { own.sum = own.sum * exponential(own.top - top); own.top = top; }
      if (top != LOWEST) {
        _Pragma("unroll") for (int k = 0; k < V; ++k) sum += term(v[k] - top);
      } else {  // -inf adds nothing before another score is met, nan stays
        _Pragma("unroll") for (int k = 0; k < V; ++k) sum += v[k] == LOWEST ? (A)0 : v[k];
      }
      own.sum += sum;
    }
  }
  for (int d = 16; d; d /= 2) {
    const Sums other = {__shfl_xor_sync(0xffffffffu, own.top, d), __shfl_xor_sync(0xffffffffu, own.sum, d)};
    own = join(own, other);
  }
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = own;
  __syncthreads();
  own = parts[0];
  for (int w = 1; w < 8; ++w) own = join(own, parts[w]);
  if (own.top == LOWEST) own.sum = NOTHING;  // a row of -inf alone has no probabilities
  const A shift = logarithm(own.sum);
  if (threadIdx.x == 0) {
    const i64 t = target_of(targets, bytes, row);
    stats[3 * row] = own.top;
    stats[3 * row + 1] = shift;
    stats[3 * row + 2] = t != ignored && t >= 0 && t < n ? shift - (get(x[row * n + t]) - own.top) : (A)0;
  }
  if (COPIES || !soft) return;
  Results* probabilities = (Results*)(soft + row * n);
  for (i64 i = threadIdx.x; i < n / V; i += 256) {
    const Scores s = scores[i];
    Results r;
    _Pragma("unroll") for (int k = 0; k < V; ++k) r.v[k] = made::put(exponential(get(s.v[k]) - own.top - shift));
    probabilities[i] = r;
  }
}

extern "C" __global__ void __launch_bounds__(512) gradient(made::T* out, const S* grad, const S* stats, const X* x, const void* targets,
    i64 bytes, i64 rows, i64 n, i64 ignored, i64 each, i64 averaged) {
  const i64 row = blockIdx.x, t = target_of(targets, bytes, row);
  const bool counts = t != ignored && t >= 0 && t < n;
  const S top = stats[3 * row], shift = stats[3 * row + 1];
  S hit = counts ? grad[each ? row : 0] : (S)0;
  if (averaged && counts) hit = hit / stats[3 * rows];
  const Scores* scores = (const Scores*)(x + row * n);
  Results* results = (Results*)(out + row * n);
  for (i64 i = threadIdx.x; i < n / V; i += 512) {
    Results r;
    if (hit == 0) {
      _Pragma("unroll") for (int k = 0; k < V; ++k) r.v[k] = made::put((A)0);
    } else {
      const Scores s = scores[i];
      _Pragma("unroll") for (int k = 0; k < V; ++k) {
        S v = get(s.v[k]);
        if (from_scores) v = exponential(v - top - shift);
        r.v[k] = made::put(i * V + k == t ? v * hit - hit : v * hit);
      }
    }
    results[i] = r;
  }
}
"""


def _rows_text(x: Tensor, made: Any, kept: Any, from_scores: bool, *others: Tensor | None, copies: bool = False) -> str:
    """Return the text for scores, results and statistics of these dtypes, with as many neighbours at a time as memory allows: equally many
    for every dtype, so that sums are formed in one order."""
    n, vector = x.shape[-1], 8
    places = [(address(t), t.dtype.itemsize) for t in (x, *others) if t is not None]
    while vector > 1 and (n % vector or any(at % min(16, vector * size) for at, size in places)):
        vector //= 2
    wide = "double" if kept is dt.float64 else "float"
    lowest, nothing = (constant(v, kept) for v in (-math.inf, math.nan))
    return (
        f"namespace given {{{element_text(x.dtype)}}} namespace made {{{element_text(made)}}}\ntypedef {wide} S;\n"
        f"#define LOWEST {lowest}\n#define NOTHING {nothing}\n"
        f"constexpr int V = {vector}, TOGETHER = 4;\nconstexpr bool from_scores = {str(from_scores).lower()}, COPIES = {str(copies).lower()};\n{_ROWS}"
    )


def _are_plain_rows(input: Tensor, weight: Any, smoothing: float) -> bool:
    return len(input.shape) == 2 and weight is None and not smoothing and input.numel() > 0


def _by_rows(out: list[Tensor], input: Tensor, target: Tensor, reduction: str, ignore_index: int, wide: bool) -> None:
    loss, stats = out[:2]
    soft = out[2] if len(out) == 3 else None
    x, t = dense(input), dense(target)
    rows, n = x.shape
    text = _rows_text(x, stats.dtype if soft is None else soft.dtype, stats.dtype, True, soft, copies=wide)
    run = function(text, "statistics", "q" * 7, x.device)
    places = (0 if soft is None else address(soft), address(x), address(t))
    run(rows, 256, address(stats), *places, t.dtype.itemsize, n, ignore_index)
    kernels.totals(loss, stats, t, rows, n, ignore_index, reduction=reduction)


def _gradient(
    out: Tensor, grad: Tensor, x: Tensor, target: Tensor, weight: Any, stats: Tensor, reduction: str, ignore_index: int,
    smoothing: float, from_scores: bool,
) -> None:  # fmt: skip
    if not _are_plain_rows(x, weight, smoothing) or grad.dtype is not stats.dtype:
        run_backward(out, grad, x, target, weight, stats, reduction, ignore_index, smoothing, from_scores)
        return
    x, t, g = dense(x), dense(target), dense(grad)
    rows, n = x.shape
    run = function(_rows_text(x, out.dtype, stats.dtype, from_scores, out), "gradient", "q" * 11, x.device)
    places = [address(a) for a in (out, g, stats, x, t)]
    run(rows, 512, *places, t.dtype.itemsize, rows, n, ignore_index, int(reduction == "none"), int(reduction == "mean"))


cross_entropy_backward.on("cuda")(functools.partial(_gradient, from_scores=False))
cross_entropy_gradient.on("cuda")(functools.partial(_gradient, from_scores=True))


@functools.cache
def _kernel(where: Any) -> tuple[Any, int]:
    function = nvidia.load_source(_TEXT, where).function("refuse", tuple("qqqqqqqqq"))
    return function, nvidia.error_code("nll_loss", "Target {1} is out of bounds.")


def _report(stats: Tensor, target: Tensor, input: Tensor, ignore_index: int) -> None:
    refuse, code = _kernel(stats.device)
    size = stats.dtype.itemsize
    targets = dense(target)
    refuse(
        1, 1, stats.data_ptr() + (stats.shape[0] - 1) * size, int(stats.dtype is dt.float64), targets.data_ptr(),
        targets.dtype.itemsize, targets.numel(), plane_layout(input.shape)[1], ignore_index, nvidia.error_flag(stats.device), code,
    )  # fmt: skip


@cross_entropy_indices.on("cuda")
@cross_entropy_unrecorded.on("cuda")
def _(
    out: list[Tensor], input: Tensor, target: Tensor, weight: Any, reduction: str, ignore_index: int, smoothing: float, wide: bool
) -> None:  # fmt: skip
    if _are_plain_rows(input, weight, smoothing):
        _by_rows(out, input, target, reduction, ignore_index, wide)
    else:
        launch_indices(out, input, target, weight, reduction, ignore_index, smoothing, wide)
    _report(out[1], target, input, ignore_index)


@nll_loss_rows.on("cuda")
@nll_loss_planes.on("cuda")
def _(out: list[Tensor], input: Tensor, target: Tensor, weight: Any, reduction: str, ignore_index: int) -> None:
    run_nll(out, input, target, weight, reduction, ignore_index)
    _report(out[1], target, input, ignore_index)
