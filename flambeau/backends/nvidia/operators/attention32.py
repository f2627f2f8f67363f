"""Attention of float32 over short sequences on NVIDIA GPUs, for which cuDNN has no kernels: one launch forward, two backward.

A block has a tile of rows, four or eight threads for each. Keys and values (or, for their gradients, queries and gradients) are read in tiles
into shared memory; the softmax is updated online, and the backward kernels recompute the weights from its logarithms."""

from __future__ import annotations

import struct
from typing import Any

from ....core.tensor import Tensor
from ... import nvidia
from . import attention_tiles
from .launching import address, function

_COMMON = r"""
#define TILE 32  // rows that pass by together
#define ROWS (128 / G)  // of a block; G threads have one
#define OWN (D / G)  // features of a row that a thread adds up
#define S (D + 4)  // rows of a tile begin at different banks, at multiples of 16 bytes
#define MINUS (-__int_as_float(0x7f800000))
struct alignas(16) quad { float v[4]; };
struct view { const float* at; i64 batch, head, row; };
__device__ __forceinline__ const float* rows_of(const view& t, i64 b, i64 h) { return t.at + b * t.batch + h * t.head; }
__device__ __forceinline__ float over_row(float v) {
  _Pragma("unroll") for (int d = 1; d < G; d *= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
  return v;
}
__device__ __forceinline__ void own(float* to, const float* from, i64 row, i64 step, i64 rows) {
  _Pragma("unroll") for (int d = 0; d < D; ++d) to[d] = row < rows ? from[row * step + d] : 0.f;
}
__device__ __forceinline__ void tile(float* to, const float* from, i64 first, i64 step, i64 rows) {
  for (int i = threadIdx.x; i < TILE * D; i += 128) {
    const int r = i / D, c = i % D;
    to[r * S + c] = first + r < rows ? from[(first + r) * step + c] : 0.f;
  }
}
__device__ __forceinline__ float dot(const float* a, const float* b) {
  float sum = 0.f;
  _Pragma("unroll") for (int d = 0; d < D; d += 4) {
    const quad p = *(const quad*)(b + d);
    _Pragma("unroll") for (int j = 0; j < 4; ++j) sum += a[d + j] * p.v[j];
  }
  return sum;
}
// A thread has every G-th group of four features: number c of its own is this one.
__device__ __forceinline__ int feature(int part, int c) { return 4 * (part + c / 4 * G) + c % 4; }
__device__ __forceinline__ void add(float* sums, float p, const float* row, int part) {
  _Pragma("unroll") for (int c = 0; c < OWN; c += 4) {
    const quad q = *(const quad*)(row + feature(part, c));
    _Pragma("unroll") for (int j = 0; j < 4; ++j) sums[c + j] += p * q.v[j];
  }
}
"""

_FORWARD = r"""
extern "C" __global__ void __launch_bounds__(128) attend(float* out, i64 ob, i64 oh, i64 orow, float* logs, view q, view k, view v,
    i64 heads, i64 group, i64 rows, i64 source, float scale, int causal) {
  __shared__ quad tiles_of_four[TILE * S / 2];
  __shared__ float ps[ROWS * (TILE + 1)];
  float *ks = tiles_of_four[0].v, *vs = ks + TILE * S;
  const i64 tiles = (rows + ROWS - 1) / ROWS, which = blockIdx.x / tiles, b = which / heads, h = which % heads;
  const int r = threadIdx.x / G, part = threadIdx.x % G;
  const i64 start = blockIdx.x % tiles * ROWS, row = start + r;
  const float *keys = rows_of(k, b, h / group), *values = rows_of(v, b, h / group);
  float mine[D], sums[OWN];
  own(mine, rows_of(q, b, h), row, q.row, rows);
  _Pragma("unroll") for (int c = 0; c < OWN; ++c) sums[c] = 0.f;
  float best = MINUS, total = 0.f;
  const i64 end = causal && start + ROWS < source ? start + ROWS : source;
  for (i64 first = 0; first < end; first += TILE) {
    __syncthreads();
    tile(ks, keys, first, k.row, source);
    tile(vs, values, first, v.row, source);
    __syncthreads();
    float s[TILE / G], top = best;
    _Pragma("unroll") for (int j = 0; j < TILE / G; ++j) {
      const int at = part + G * j;
      const bool seen = first + at < source && (!causal || first + at <= row);
      s[j] = seen ? dot(mine, ks + at * S) * scale : MINUS;
      top = s[j] > top ? s[j] : top;
    }
    _Pragma("unroll") for (int d = 1; d < G; d *= 2) {
      const float other = __shfl_xor_sync(0xffffffffu, top, d);
      top = other > top ? other : top;
    }
    const float fix = expf(best - top);
    float sum = 0.f;
    _Pragma("unroll") for (int j = 0; j < TILE / G; ++j) {
      const float p = expf(s[j] - top);
      ps[r * (TILE + 1) + part + G * j] = p;
      sum += p;
    }
    total = total * fix + over_row(sum);
    best = top;
    __syncwarp();
    _Pragma("unroll") for (int c = 0; c < OWN; ++c) sums[c] *= fix;
    for (int at = 0; at < TILE; ++at) {
      const float p = ps[r * (TILE + 1) + at];
      add(sums, p, vs + at * S, part);
    }
  }
  if (row >= rows) return;
  _Pragma("unroll") for (int c = 0; c < OWN; ++c) out[b * ob + h * oh + row * orow + feature(part, c)] = sums[c] / total;
  if (part == 0) logs[which * rows + row] = best + logf(total);
}
"""

_BACKWARD = r"""
extern "C" __global__ void __launch_bounds__(128) to_queries(float* dq, i64 ob, i64 oh, i64 orow, float* delta, const float* logs,
    view g, view out, view q, view k, view v, i64 heads, i64 group, i64 rows, i64 source, float scale, int causal) {
  __shared__ quad tiles_of_four[TILE * S / 2];
  __shared__ float ds[ROWS * (TILE + 1)];
  float *ks = tiles_of_four[0].v, *vs = ks + TILE * S;
  const i64 tiles = (rows + ROWS - 1) / ROWS, which = blockIdx.x / tiles, b = which / heads, h = which % heads;
  const int r = threadIdx.x / G, part = threadIdx.x % G;
  const i64 start = blockIdx.x % tiles * ROWS, row = start + r;
  const float *keys = rows_of(k, b, h / group), *values = rows_of(v, b, h / group), *outs = rows_of(out, b, h);
  float mine[D], grad[D], sums[OWN];
  own(mine, rows_of(q, b, h), row, q.row, rows);
  own(grad, rows_of(g, b, h), row, g.row, rows);
  float share = 0.f;
  _Pragma("unroll") for (int c = 0; c < OWN; ++c) {
    sums[c] = 0.f;
    if (row < rows) share += rows_of(g, b, h)[row * g.row + feature(part, c)] * outs[row * out.row + feature(part, c)];
  }
  share = over_row(share);
  const float log_sum = row < rows ? logs[which * rows + row] : 0.f;
  if (row < rows && part == 0) delta[which * rows + row] = share;
  const i64 end = causal && start + ROWS < source ? start + ROWS : source;
  for (i64 first = 0; first < end; first += TILE) {
    __syncthreads();
    tile(ks, keys, first, k.row, source);
    tile(vs, values, first, v.row, source);
    __syncthreads();
    _Pragma("unroll") for (int j = 0; j < TILE / G; ++j) {
      const int at = part + G * j;
      const bool seen = row < rows && first + at < source && (!causal || first + at <= row);
      const float p = seen ? expf(dot(mine, ks + at * S) * scale - log_sum) : 0.f;
      ds[r * (TILE + 1) + at] = p * (dot(grad, vs + at * S) - share) * scale;
    }
    __syncwarp();
    for (int at = 0; at < TILE; ++at) {
      const float p = ds[r * (TILE + 1) + at];
      add(sums, p, ks + at * S, part);
    }
  }
  if (row >= rows) return;
  _Pragma("unroll") for (int c = 0; c < OWN; ++c) dq[b * ob + h * oh + row * orow + feature(part, c)] = sums[c];
}

extern "C" __global__ void __launch_bounds__(128) to_keys(float* dk, i64 kb, i64 kh, i64 krow, float* dv, i64 vb, i64 vh, i64 vrow,
    const float* delta, const float* logs, view g, view q, view k, view v, i64 heads, i64 group, i64 rows, i64 source, float scale,
    int causal) {
  __shared__ quad tiles_of_four[TILE * S / 2];
  __shared__ float ps[ROWS * (TILE + 1)], ds[ROWS * (TILE + 1)];
  float *qs = tiles_of_four[0].v, *gs = qs + TILE * S;
  const i64 tiles = (source + ROWS - 1) / ROWS, which = blockIdx.x / tiles, b = which / (heads / group), h = which % (heads / group);
  const int r = threadIdx.x / G, part = threadIdx.x % G;
  const i64 start = blockIdx.x % tiles * ROWS, row = start + r;
  float key[D], value[D], to_key[OWN], to_value[OWN];
  own(key, rows_of(k, b, h), row, k.row, source);
  own(value, rows_of(v, b, h), row, v.row, source);
  _Pragma("unroll") for (int c = 0; c < OWN; ++c) to_key[c] = to_value[c] = 0.f;
  for (i64 member = 0; member < group; ++member) {
    const i64 head = h * group + member;
    const float *queries = rows_of(q, b, head), *grads = rows_of(g, b, head);
    const float *log_sums = logs + (b * heads + head) * rows, *shares = delta + (b * heads + head) * rows;
    for (i64 first = causal ? start / TILE * TILE : 0; first < rows; first += TILE) {
      __syncthreads();
      tile(qs, queries, first, q.row, rows);
      tile(gs, grads, first, g.row, rows);
      __syncthreads();
      _Pragma("unroll") for (int j = 0; j < TILE / G; ++j) {
        const int at = part + G * j;
        const bool seen = row < source && first + at < rows && (!causal || row <= first + at);
        const float p = seen ? expf(dot(key, qs + at * S) * scale - log_sums[first + at]) : 0.f;
        ps[r * (TILE + 1) + at] = p;
        ds[r * (TILE + 1) + at] = seen ? p * (dot(value, gs + at * S) - shares[first + at]) * scale : 0.f;
      }
      __syncwarp();
      for (int at = 0; at < TILE; ++at) {
        const float p = ps[r * (TILE + 1) + at], s = ds[r * (TILE + 1) + at];
        add(to_value, p, gs + at * S, part);
        add(to_key, s, qs + at * S, part);
      }
    }
  }
  if (row >= source) return;
  _Pragma("unroll") for (int c = 0; c < OWN; ++c) {
    dk[b * kb + h * kh + row * krow + feature(part, c)] = to_key[c];
    dv[b * vb + h * vh + row * vrow + feature(part, c)] = to_value[c];
  }
}
"""


_VIEW = struct.Struct("<4q")
_SIZES = ("q", "q", "q", "q", "f", "i")
_ATTEND = (*"qqqqq", 32, 32, 32, *_SIZES)
_TO_QUERIES = (*"qqqqqq", 32, 32, 32, 32, 32, *_SIZES)
_TO_KEYS = (*"qqqqqqqqqq", 32, 32, 32, 32, *_SIZES)


def _function(name: str, kinds: tuple[Any, ...], text: str, query: Tensor) -> Any:
    features = query.shape[3]
    return function(f"#define D {features}\n#define G {_share(features)}\n" + _COMMON + text, name, kinds, query.device)


def _share(features: int) -> int:
    """Return the number of threads that share a row: each adds up features by fours."""
    return 4 if features % 32 else 8


def _blocks(rows: int, features: int) -> int:
    return -(-rows * _share(features) // 128)


def _view(t: Tensor) -> bytes:
    a, b, c, _ = t._strides
    return _VIEW.pack(address(t), a, b, c)


def _sizes(query: Tensor, key: Tensor, scale: float, causal: bool) -> tuple[Any, ...]:
    heads = query.shape[1]
    return heads, heads // key.shape[1], query.shape[2], key.shape[2], scale, int(causal)


_ALL_SIZES = struct.Struct("<4qfi")
_OWN = 32  # rows of a block


def _tiles() -> str:
    return f"#define OWN {_OWN}\n" + attention_tiles.TEXT


def _in_tiles(*tensors: Tensor) -> bool:
    """Return whether the kernels for 32 features accept these tensors: rows begin at multiples of 16 bytes."""
    return tensors[0].shape[3] == 32 and not any(
        address(t) % 16 or t._strides[3] != 1 or any(s % 4 for s in t._strides[:3]) for t in tensors
    )


def forward(out: Tensor, logs: Tensor, query: Tensor, key: Tensor, value: Tensor, scale: float, causal: bool) -> None:
    """Compute out = attention of the queries, whose features are adjacent, and logs = the logarithms of the sums of its softmax."""
    batch, heads, rows, features = query.shape
    if _in_tiles(query, key, value, out):
        run = function(_tiles(), "attend", (32, "q", 32, 32, 32, _ALL_SIZES.size), query.device)
        blocks = -(-rows // _OWN) * batch * heads
        run(
            blocks,
            128,
            _view(out),
            address(logs),
            *map(_view, (query, key, value)),
            _ALL_SIZES.pack(*_sizes(query, key, scale, causal)),
        )
        return
    run = _function("attend", _ATTEND, _FORWARD, query)
    run(
        _blocks(rows, features) * batch * heads, 128, address(out), *out._strides[:3], address(logs), _view(query), _view(key), _view(value),
        *_sizes(query, key, scale, causal),
    )  # fmt: skip


def backward(
    grads: list[Tensor], g: Tensor, out: Tensor, logs: Tensor, query: Tensor, key: Tensor, value: Tensor, scale: float, causal: bool
) -> None:  # fmt: skip
    """Compute the gradients of query, key and value; the features of all are adjacent."""
    batch, heads, rows, features = query.shape
    dq, dk, dv = grads
    if _in_tiles(query, key, value, out, g, dq, dk, dv):
        run = function(_tiles(), "differentiate", (32, 32, 32, "q", *(32,) * 5, _ALL_SIZES.size, "q"), query.device)
        to_keys, to_queries = (-(-t.shape[2] // _OWN) * batch * t.shape[1] for t in (key, query))
        run(
            to_keys + to_queries, 128, _view(dq), _view(dk), _view(dv), address(logs), *map(_view, (g, out, query, key, value)),
            _ALL_SIZES.pack(*_sizes(query, key, scale, causal)), to_keys,
        )  # fmt: skip
        return
    delta = nvidia.workspace(4 * batch * heads * rows, query.device)
    sizes = _sizes(query, key, scale, causal)
    views = [_view(t) for t in (g, out, query, key, value)]
    _function("to_queries", _TO_QUERIES, _BACKWARD, query)(
        _blocks(rows, features) * batch * heads,
        128,
        address(dq),
        *dq._strides[:3],
        delta.ptr,
        address(logs),
        *views,
        *sizes,
    )
    _function("to_keys", _TO_KEYS, _BACKWARD, query)(
        _blocks(key.shape[2], features) * batch * key.shape[1], 128, address(dk), *dk._strides[:3], address(dv), *dv._strides[:3],
        delta.ptr, address(logs), views[0], *views[2:], *sizes,
    )  # fmt: skip
