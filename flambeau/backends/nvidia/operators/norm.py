"""Batch normalisation on NVIDIA GPUs.

Sums over a channel are divided among several blocks, whose results a second kernel adds up in a fixed order; a third one writes the result.
So x is read twice and written once, forward and backward alike, whatever the number of channels."""

from __future__ import annotations

import functools
from typing import Any

from ....core.caching import remember
from ....core.dtype import opmath
from ....core.raw_memory import first_address
from ....core.tensor import Tensor, empty
from ....kernels.cuda_values import PRELUDE, element_type
from ....ops.machinery.inplace import raw_copy
from ....ops.machinery.memory import dense, without_gaps
from ....ops.machinery.together import Wanted, in_place_of
from ....ops.nn.batch_norm import (
    _columns,
    _evaluate,
    _has_columns,
    _in_format,
    _packed,
    _planes,
    batch_norm_grads,
    normalised,
)
from ... import nvidia

_THREADS = 256
_BLOCKS = 1056  # eight for each of a large GPU's multiprocessors

_HEAD = """
struct f16 { unsigned short bits; };
struct bf16 { unsigned short bits; };
typedef %(wide)s A;
__device__ inline A get(float v) { return v; }
__device__ inline A get(double v) { return (A)v; }
__device__ inline A get(f16 v) { return fb_half(v.bits); }
__device__ inline A get(bf16 v) { return fb_bfloat(v.bits); }
__device__ inline void put(float& r, A v) { r = (float)v; }
__device__ inline void put(double& r, A v) { r = v; }
__device__ inline void put(f16& r, A v) { r.bits = fb_to_half((float)v); }
__device__ inline void put(bf16& r, A v) { r.bits = fb_to_bfloat((float)v); }
typedef %(data)s T;
typedef %(parameter)s W;
typedef %(running)s R;
typedef long long I;
#define V %(vector)d
struct alignas(sizeof(T) * V) Pack { T v[V]; };
__device__ inline Pack pack(const T* p) { return *(const Pack*)p; }

__device__ inline A over_block(A v) {
  __shared__ A parts[32];
  for (int step = 16; step; step >>= 1) v += __shfl_down_sync(0xffffffff, v, step);
  if (threadIdx.x %% 32 == 0) parts[threadIdx.x / 32] = v;
  __syncthreads();
  A total = 0;
  if (threadIdx.x == 0)
    for (int i = 0; i < blockDim.x / 32; ++i) total += parts[i];
  __syncthreads();
  return total;
}

// One number of each channel near its mean: sums of differences from it lose no digits.
__device__ inline A near(const T* x, I c, I step) { return get(x[c * step]); }
"""

# Two sums of each channel, by as many blocks as the grid is high: of (x - s) and (x - s)^2, or of g and g * (x - mean).
_SUMS = """
extern "C" __global__ void sums_planes(A* partial, const T* x, const T* g, const A* mean, I batch, I channels, I space) {
  I c = blockIdx.x, rows = space / V, count = batch * rows;
  A centre = g ? mean[c] : near(x, c, space), first = 0, second = 0;
  for (I i = blockIdx.y * (I)blockDim.x + threadIdx.x; i < count; i += (I)gridDim.y * blockDim.x) {
    unsigned n = (unsigned)i / (unsigned)rows, s = (unsigned)i - n * (unsigned)rows;
    I at = ((I)n * channels + c) * space + (I)s * V;
    Pack p = pack(x + at);
    if (g) {
      Pack q = pack(g + at);
      for (int k = 0; k < V; ++k) { A d = get(q.v[k]); first += d; second += d * (get(p.v[k]) - centre); }
    } else {
      for (int k = 0; k < V; ++k) { A d = get(p.v[k]) - centre; first += d; second += d * d; }
    }
  }
  first = over_block(first);
  second = over_block(second);
  if (threadIdx.x == 0) {
    partial[(2 * (I)blockIdx.y) * channels + c] = first;
    partial[(2 * (I)blockIdx.y + 1) * channels + c] = second;
  }
}

extern "C" __global__ void sums_columns(A* partial, const T* x, const T* g, const A* mean, I rows, I channels) {
  __shared__ A sums[2][256 * V];
  I c = (blockIdx.x * (I)blockDim.x + threadIdx.x) * V;
  int wide = blockDim.x * V;
  A first[V], second[V], centre[V];
  for (int k = 0; k < V; ++k) first[k] = second[k] = 0;
  if (c < channels) {
    for (int k = 0; k < V; ++k) centre[k] = g ? mean[c + k] : near(x, c + k, 1);
    for (I r = blockIdx.y * (I)blockDim.y + threadIdx.y; r < rows; r += (I)gridDim.y * blockDim.y) {
      Pack p = pack(x + r * channels + c);
      if (g) {
        Pack q = pack(g + r * channels + c);
        for (int k = 0; k < V; ++k) { A d = get(q.v[k]); first[k] += d; second[k] += d * (get(p.v[k]) - centre[k]); }
      } else {
        for (int k = 0; k < V; ++k) { A d = get(p.v[k]) - centre[k]; first[k] += d; second[k] += d * d; }
      }
    }
  }
  for (int k = 0; k < V; ++k) {
    sums[0][threadIdx.y * wide + threadIdx.x * V + k] = first[k];
    sums[1][threadIdx.y * wide + threadIdx.x * V + k] = second[k];
  }
  __syncthreads();
  for (int i = threadIdx.y * blockDim.x + threadIdx.x; i < 2 * wide; i += 256) {
    int which = i / wide, at = i - which * wide;
    I own = blockIdx.x * (I)wide + at;
    if (own >= channels) continue;
    A total = 0;
    for (int y = 0; y < blockDim.y; ++y) total += sums[which][y * wide + at];
    partial[(2 * (I)blockIdx.y + which) * channels + own] = total;
  }
}
"""

_FINISH = """
// What the blocks found about one channel, both sums added up by this block in a fixed order; the first thread has them.
struct Both { double first, second; };
__device__ inline Both summed(const A* parts, I channels, I chunks) {
  __shared__ double warps[2][32];
  Both v = {0, 0};
  for (I i = threadIdx.x; i < chunks; i += blockDim.x) {
    v.first += parts[2 * i * channels];
    v.second += parts[(2 * i + 1) * channels];
  }
  for (int step = 16; step; step >>= 1) {
    v.first += __shfl_down_sync(0xffffffff, v.first, step);
    v.second += __shfl_down_sync(0xffffffff, v.second, step);
  }
  if (blockDim.x == 32) return v;
  if (threadIdx.x % 32 == 0) {
    warps[0][threadIdx.x / 32] = v.first;
    warps[1][threadIdx.x / 32] = v.second;
  }
  __syncthreads();
  if (threadIdx.x == 0)
    for (int i = 1; i < blockDim.x / 32; ++i) {
      v.first += warps[0][i];
      v.second += warps[1][i];
    }
  return v;
}

// Everything is read before anything is computed: one wait instead of several.
extern "C" __global__ void finish(A* factors, A* mean, A* rstd, const A* partial, const T* x, const W* weight, const W* bias,
    R* running_mean, R* running_var, I channels, I step, I chunks, double count, double momentum, double eps) {
  I c = blockIdx.x;
  double shift = near(x, c, step), gain = weight ? (double)get(weight[c]) : 1., offset = bias ? (double)get(bias[c]) : 0.;
  A old_mean = running_mean ? get(running_mean[c]) : 0, old_var = running_var ? get(running_var[c]) : 0;
  Both sums = summed(partial + c, channels, chunks);
  if (threadIdx.x) return;
  double away = sums.first / count, m = shift + away, variance = sums.second / count - away * away;
  variance = variance < 0 ? 0 : variance;
  double r = rsqrt(variance + eps), scale = weight ? r * gain : r;
  mean[c] = (A)m;
  rstd[c] = (A)r;
  factors[c] = (A)scale;
  factors[channels + c] = (A)(offset - m * scale);
  if (running_mean) put(running_mean[c], (A)(old_mean * (1 - momentum) + m * momentum));
  if (running_var)
    put(running_var[c], (A)(old_var * (1 - momentum) + (count > 1 ? variance * count / (count - 1) : variance) * momentum));
}

extern "C" __global__ void finish_backward(A* factors, A* dw, A* db, const A* partial, const A* mean, const A* rstd,
    const W* weight, I channels, I chunks, double count, I training) {
  I c = blockIdx.x;
  double r = rstd[c], m = mean[c], scale = weight ? r * get(weight[c]) : r;
  Both sums = summed(partial + c, channels, chunks);
  if (threadIdx.x) return;
  double plain = sums.first, moment = sums.second;
  dw[c] = (A)(moment * r);
  db[c] = (A)plain;
  double slope = training ? -moment / count * r * r * scale : 0, average = training ? plain / count * scale : 0;
  factors[c] = (A)scale;
  factors[channels + c] = (A)slope;
  factors[2 * channels + c] = (A)(-average - m * slope);
}
"""

# out = x * factors[0] + factors[1], or g * factors[0] + x * factors[1] + factors[2], by channels.
_APPLY = """
extern "C" __global__ void apply_planes(T* out, const T* x, const T* g, const A* factors, I batch, I channels, I space) {
  I row = blockIdx.x, c = row % channels, at = row * space;
  A a = factors[c], b = factors[channels + c], d = g ? factors[2 * channels + c] : 0;
  for (I s = (blockIdx.y * (I)blockDim.x + threadIdx.x) * V; s < space; s += (I)gridDim.y * blockDim.x * V) {
    Pack p = pack(x + at + s), r;
    if (g) {
      Pack q = pack(g + at + s);
      for (int k = 0; k < V; ++k) put(r.v[k], get(q.v[k]) * a + get(p.v[k]) * b + d);
    } else {
      for (int k = 0; k < V; ++k) put(r.v[k], get(p.v[k]) * a + b);
    }
    *(Pack*)(out + at + s) = r;
  }
}

// The same for small planes, several of which one block takes.
extern "C" __global__ void apply_flat(T* out, const T* x, const T* g, const A* factors, I batch, I channels, I space) {
  unsigned count = (unsigned)(batch * channels * (space / V)), rows = (unsigned)(space / V), wide = (unsigned)channels;
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    unsigned c = i / rows % wide;
    A a = factors[c], b = factors[wide + c], d = g ? factors[2 * wide + c] : 0;
    I at = (I)i * V;
    Pack p = pack(x + at), r;
    if (g) {
      Pack q = pack(g + at);
      for (int k = 0; k < V; ++k) put(r.v[k], get(q.v[k]) * a + get(p.v[k]) * b + d);
    } else {
      for (int k = 0; k < V; ++k) put(r.v[k], get(p.v[k]) * a + b);
    }
    *(Pack*)(out + at) = r;
  }
}

extern "C" __global__ void apply_columns(T* out, const T* x, const T* g, const A* factors, I rows, I channels) {
  I c = (blockIdx.x * (I)blockDim.x + threadIdx.x) * V;
  if (c >= channels) return;
  A a[V], b[V], d[V];
  for (int k = 0; k < V; ++k) {
    a[k] = factors[c + k];
    b[k] = factors[channels + c + k];
    d[k] = g ? factors[2 * channels + c + k] : 0;
  }
  for (I i = blockIdx.y * (I)blockDim.y + threadIdx.y; i < rows; i += (I)gridDim.y * blockDim.y) {
    I at = i * channels + c;
    Pack p = pack(x + at), r;
    if (g) {
      Pack q = pack(g + at);
      for (int k = 0; k < V; ++k) put(r.v[k], get(q.v[k]) * a[k] + get(p.v[k]) * b[k] + d[k]);
    } else {
      for (int k = 0; k < V; ++k) put(r.v[k], get(p.v[k]) * a[k] + b[k]);
    }
    *(Pack*)(out + at) = r;
  }
}
"""

# Evaluation in one launch: each thread finds the factors of its channels from the running statistics.
_EVALUATE = """
struct Line { A a, b; };
__device__ inline Line line(A* rstd, const R* mean, const R* var, const W* weight, const W* bias, I c, A eps, bool keeps) {
  A r = rsqrt(get(var[c]) + eps), scale = weight ? r * get(weight[c]) : r, shift = -get(mean[c]) * scale;
  if (keeps) rstd[c] = r;
  return {scale, bias ? shift + get(bias[c]) : shift};
}

extern "C" __global__ void evaluate_columns(T* out, A* rstd, const T* x, const R* mean, const R* var, const W* weight, const W* bias,
    double eps, I rows, I channels) {
  I c = (blockIdx.x * (I)blockDim.x + threadIdx.x) * V;
  if (c >= channels) return;
  Line lines[V];
  for (int k = 0; k < V; ++k)
    lines[k] = line(rstd, mean, var, weight, bias, c + k, (A)eps, blockIdx.y == 0 && threadIdx.y == 0);
  for (I i = blockIdx.y * (I)blockDim.y + threadIdx.y; i < rows; i += (I)gridDim.y * blockDim.y) {
    Pack p = pack(x + i * channels + c), r;
    for (int k = 0; k < V; ++k) put(r.v[k], get(p.v[k]) * lines[k].a + lines[k].b);
    *(Pack*)(out + i * channels + c) = r;
  }
}

extern "C" __global__ void evaluate_planes(T* out, A* rstd, const T* x, const R* mean, const R* var, const W* weight, const W* bias,
    double eps, I batch, I channels, I space) {
  I rows = space / V, count = batch * channels * rows;
  for (I i = blockIdx.x * (I)blockDim.x + threadIdx.x; i < count; i += (I)gridDim.x * blockDim.x) {
    I plane = i / rows;
    Line own = line(rstd, mean, var, weight, bias, plane % channels, (A)eps, plane < channels && i == plane * rows);
    Pack p = pack(x + i * V), r;
    for (int k = 0; k < V; ++k) put(r.v[k], get(p.v[k]) * own.a + own.b);
    *(Pack*)(out + i * V) = r;
  }
}
"""

_KINDS = {
    "sums_planes": "qqqqqqq", "sums_columns": "qqqqqq", "finish": "qqqqqqqqqqqqddd", "finish_backward": "qqqqqqqqqdq",
    "apply_planes": "qqqqqqq",
    "apply_flat": "qqqqqqq", "apply_columns": "qqqqqq", "evaluate_columns": "qqqqqqqdqq", "evaluate_planes": "qqqqqqqdqqq",
}  # fmt: skip


def text(data: Any, parameter: Any, running: Any, vector: int) -> str:
    """Return the CUDA text for tensors of these dtypes, read `vector` elements at a time."""
    names = {
        "data": element_type(data),
        "parameter": element_type(parameter),
        "running": element_type(running),
        "wide": element_type(opmath(data)),
    }
    return PRELUDE + _HEAD % {**names, "vector": vector} + _SUMS + _FINISH + _APPLY + _EVALUATE


@functools.lru_cache(256)
def _kernels(data: Any, parameter: Any, running: Any, vector: int, where: Any) -> dict[str, Any]:
    module = nvidia.load_source(text(data, parameter, running, vector), where)
    return {name: module.function(name, tuple(kinds)) for name, kinds in _KINDS.items()}


class _Channels:
    """Distribution of the channels of tensors of one shape among threads."""

    def __init__(self, x: Tensor, vector: int, parameter: Any, running: Any) -> None:
        self.by_columns = _has_columns(x)
        self.channels = c = x.shape[1]
        self.rows = _columns(x)[0]  # elements of a channel
        kernels = _kernels(x.dtype, parameter, running, vector, x.device)
        if self.by_columns:
            wide = 1
            while wide < 32 and wide * vector < c:
                wide *= 2
            high = _THREADS // wide
            across = -(-c // (wide * vector))
            self.chunks = max(1, min(_BLOCKS // across, -(-self.rows // (4 * high))))
            self.sums_grid = (across, self.chunks, 1)
            self.apply_grid = (across, max(1, min(4 * _BLOCKS // across, -(-self.rows // (4 * high)))), 1)
            self.block = self.apply_block = (wide, high, 1)
            self.sizes: tuple[int, ...] = (self.rows, c)
        else:
            batch, _, space = _planes(x)
            self.chunks = max(1, min(_BLOCKS // c, self.rows // (4 * _THREADS * vector)))
            self.sums_grid = (c, self.chunks, 1)
            threads = min(_THREADS, max(32, -(-space // (vector * 32)) * 32))
            self.apply_grid = (batch * c, max(1, -(-space // (threads * vector * 4))), 1)
            self.block, self.apply_block = (_THREADS, 1, 1), (threads, 1, 1)
            self.sizes = (batch, c, space)
        kind = "columns" if self.by_columns else "planes"
        self.sum, self.write = kernels[f"sums_{kind}"], kernels[f"apply_{kind}"]
        small = not self.by_columns and x.shape.numel() < 1 << 31 and _planes(x)[2] // vector < _THREADS
        if small:
            self.write, self.apply_block = kernels["apply_flat"], (_THREADS, 1, 1)
            self.apply_grid = (max(1, min(8 * _BLOCKS, -(-x.shape.numel() // (vector * _THREADS)))), 1, 1)
        self.finish, self.finish_backward = kernels["finish"], kernels["finish_backward"]
        self.evaluate, self.evaluate_grid = kernels[f"evaluate_{kind}"], self.apply_grid
        if not self.by_columns:
            self.evaluate_grid = (max(1, min(8 * _BLOCKS, -(-x.shape.numel() // (vector * _THREADS)))), 1, 1)
        self.finishers = 32 if self.chunks <= 64 else 256  # threads that add up what blocks found about a channel

    def scratch(self, wide: Any, where: Any) -> tuple[Any, int, int]:
        """Allocate memory for the sums of blocks and for three factors of each channel: return its holder, and both addresses."""
        size = self.channels * wide.itemsize
        held = nvidia.workspace((2 * self.chunks + 3) * size, where)
        return held, held.ptr, held.ptr + 2 * self.chunks * size


_shared: dict[tuple[Any, ...], _Channels] = {}


def _channels(x: Tensor, weight: Any, running: Any, *others: Tensor) -> _Channels:
    together = _at(x)
    for t in others:
        together |= _at(t)
    d = x.dtype
    parameter, kept = (d if t is None else t.dtype for t in (weight, running))
    key = (x.shape, x._strides, d, parameter, kept, x.device, together & 15)
    found = _shared.get(key)
    if found is None:
        vector = 16 // d.itemsize
        inner = x.shape[1] if _has_columns(x) else _planes(x)[2]
        while inner % vector or together % (vector * d.itemsize):
            vector //= 2
        found = remember(_shared, key, _Channels(x, vector, parameter, kept))
    return found


def _at(t: Tensor | None) -> int:
    return 0 if t is None else first_address(t)


def _same_dtype(a: Any, b: Any) -> bool:
    return a is None or b is None or a.dtype is b.dtype


@normalised.on("cuda")
def _(
    out: Tensor, input: Tensor, weight: Any, bias: Any, mean: Tensor, rstd: Tensor, running_mean: Any, running_var: Any,
    training: bool, momentum: float, eps: float,
) -> None:  # fmt: skip
    x = without_gaps(input)
    alike = _same_dtype(weight, bias) and _same_dtype(running_mean, running_var)
    if not training and not alike:
        _evaluate(out, mean, rstd, x, weight, bias, running_var, eps)
        return
    if not alike:
        raise RuntimeError("batch_norm: weight and bias, and the running statistics, must have the same dtype")
    x = x if _has_columns(x) else dense(x)
    weight, bias = _packed(weight), _packed(bias)
    if not training:
        var = _packed(running_var)
        shared = _channels(x, bias if weight is None else weight, var, out)
        shared.evaluate(
            shared.evaluate_grid, shared.block, _at(out), _at(rstd), _at(x), _at(mean), _at(var), _at(weight), _at(bias), eps,
            *shared.sizes,
        )  # fmt: skip
        return
    running = [None if t is None else dense(t) for t in (running_mean, running_var)]
    known = running[0] if running[0] is not None else running[1]
    shared = _channels(x, bias if weight is None else weight, known, out)
    held, sums, factors = shared.scratch(mean.dtype, x.device)
    place = _at(x)
    shared.sum(shared.sums_grid, shared.block, sums, place, 0, 0, *shared.sizes)
    step = 1 if shared.by_columns else shared.sizes[2]
    shared.finish(
        shared.channels, shared.finishers, factors, _at(mean), _at(rstd), sums, place, _at(weight), _at(bias), *map(_at, running),
        shared.channels, step, shared.chunks, float(shared.rows), momentum, eps,
    )  # fmt: skip
    shared.write(shared.apply_grid, shared.apply_block, _at(out), place, 0, factors, *shared.sizes)
    for statistics, written in zip((running_mean, running_var), running):
        if statistics is not None:
            if written is not None and written._storage is not statistics._storage:
                raw_copy(statistics, written)
            statistics._bump("batch_norm")


@batch_norm_grads.on("cuda")
def _(
    out: list[Tensor], g: Tensor, input: Tensor, weight: Any, mean: Tensor, rstd: Tensor, training: bool, wanted: Wanted
) -> None:
    x = without_gaps(input)
    x = x if _has_columns(x) else dense(x)
    g = _in_format(g, x)
    dx, *results = in_place_of(wanted, out)
    kept, where, weight = mean.dtype, mean.device, _packed(weight)
    shared = _channels(x, weight, None, g, x if dx is None else dx)
    c = shared.channels
    dw, db = (t if t is not None and t.dtype is kept else empty((c,), kept, where) for t in results)
    held, sums, factors = shared.scratch(kept, where)
    shared.sum(shared.sums_grid, shared.block, sums, _at(x), _at(g), _at(mean), *shared.sizes)
    shared.finish_backward(
        c, shared.finishers, factors, _at(dw), _at(db), sums, _at(mean), _at(rstd), _at(weight), c, shared.chunks,
        float(shared.rows), int(training),
    )  # fmt: skip
    if dx is not None:
        shared.write(shared.apply_grid, shared.apply_block, _at(dx), _at(x), _at(g), factors, *shared.sizes)
    for narrow, full in zip(results, (dw, db)):
        if narrow is not None and narrow is not full:
            raw_copy(narrow, full)
