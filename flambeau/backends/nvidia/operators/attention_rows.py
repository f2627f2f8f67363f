"""Attention of a few queries over many keys on NVIDIA GPUs, in half-width floats, as decoding of text token by token needs.

All sizes are arguments of the kernel, so that a cache which grows by a token in each call needs no new plan. A group of threads has one key
at a time, eight features to a thread; each group updates a softmax online, and they are combined at the end. With few rows, several blocks
share the keys of one, and a second kernel combines their results."""

from __future__ import annotations

import functools
import struct
from typing import Any

from ....core import dtype as dt
from ....core.tensor import Tensor
from ....ops.nn.attention import _mask_steps
from ... import nvidia
from .launching import address, element_text, function

MOST_ROWS = 4  # queries of a head for which this is faster than the library's kernels, which work on tiles of many
_FEATURES = frozenset((16, 32, 64, 128, 256))
_THREADS = 128
_SHARE = 256  # keys that are worth a block of their own
_MOST_SHARES = 32
_VIEW, _MASK = struct.Struct("<4q"), struct.Struct("<6q")

_TEXT = r"""
#define G (D / 8)  // threads that have a key together
#define GROUPS (128 / G)
#define MINUS (-__int_as_float(0x7f800000))
struct alignas(16) eight { T v[8]; };
struct view { const T* at; i64 batch, head, row; };
__device__ __forceinline__ const T* row_of(const view& t, i64 b, i64 h, i64 r) { return t.at + b * t.batch + h * t.head + r * t.row; }
struct hidden { const void* at; i64 batch, head, row, column, kind; };  // kind: 0 no mask, 1 false hides, 2 numbers to add
struct softmax { float best, total, sums[8]; };
__device__ __forceinline__ float factor(float from, float to) { return from == MINUS ? 0.f : expf(from - to); }
__device__ __forceinline__ void join(softmax& mine, float best, float total, const float* sums) {
  const float top = best > mine.best || best != best ? best : mine.best, fix = factor(mine.best, top), other = factor(best, top);
  mine.best = top;
  mine.total = mine.total * fix + total * other;
  _Pragma("unroll") for (int j = 0; j < 8; ++j) mine.sums[j] = mine.sums[j] * fix + sums[j] * other;
}

// Block (x, y): row x of all rows of all heads, the y-th share of its keys. With several shares, results go to `parts`.
extern "C" __global__ void __launch_bounds__(128) attend_rows(T* out, i64 ob, i64 oh, i64 orow, float* logs, float* parts, view q, view k,
    view v, i64 heads, i64 group, i64 rows, i64 source, i64 share, hidden mask, float scale, int causal) {
  __shared__ float bests[GROUPS], totals[GROUPS], all[GROUPS][D];
  const i64 row = blockIdx.x % rows, which = blockIdx.x / rows, b = which / heads, h = which % heads;
  const int part = threadIdx.x % G, own = threadIdx.x / G;
  const i64 seen = causal && row + 1 < source ? row + 1 : source, first = blockIdx.y * share;
  const i64 end = first + share < seen ? first + share : seen;
  const eight query = *(const eight*)(row_of(q, b, h, row) + part * 8);
  float mine[8];
  _Pragma("unroll") for (int j = 0; j < 8; ++j) mine[j] = get(query.v[j]) * scale;
  softmax state = {MINUS, 0.f, {0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f}};
  for (i64 base = first; base < end; base += GROUPS) {
    const i64 at = base + own;
    const i64 safe = at < end ? at : first;
    const eight key = *(const eight*)(row_of(k, b, h / group, safe) + part * 8);
    const eight value = *(const eight*)(row_of(v, b, h / group, safe) + part * 8);
    float score = 0.f;
    _Pragma("unroll") for (int j = 0; j < 8; ++j) score += mine[j] * get(key.v[j]);
    _Pragma("unroll") for (int d = 1; d < G; d *= 2) score += __shfl_xor_sync(0xffffffffu, score, d);
    if (at < end) {
      const i64 place = b * mask.batch + h * mask.head + row * mask.row + at * mask.column;
      if (mask.kind == 1 && !((const unsigned char*)mask.at)[place]) score = MINUS;
      if (mask.kind == 2) score += get(((const T*)mask.at)[place]);
      float given[8];
      _Pragma("unroll") for (int j = 0; j < 8; ++j) given[j] = get(value.v[j]);
      join(state, score, 1.f, given);
    }
  }
  if (part == 0) { bests[own] = state.best; totals[own] = state.total; }
  _Pragma("unroll") for (int j = 0; j < 8; ++j) all[own][part * 8 + j] = state.sums[j];
  __syncthreads();
  if (own) return;
  for (int i = 1; i < GROUPS; ++i) join(state, bests[i], totals[i], &all[i][part * 8]);
  if (gridDim.y > 1) {
    float* to = parts + (blockIdx.x * (i64)gridDim.y + blockIdx.y) * (D + 2);
    if (part == 0) { to[0] = state.best; to[1] = state.total; }
    _Pragma("unroll") for (int j = 0; j < 8; ++j) to[2 + part * 8 + j] = state.sums[j];
    return;
  }
  eight result;
  _Pragma("unroll") for (int j = 0; j < 8; ++j) result.v[j] = put(state.total == 0.f ? 0.f : state.sums[j] / state.total);
  *(eight*)(out + b * ob + h * oh + row * orow + part * 8) = result;
  if (part == 0) logs[which * rows + row] = state.best + logf(state.total);
}

extern "C" __global__ void join_shares(T* out, i64 ob, i64 oh, i64 orow, float* logs, const float* parts, i64 heads, i64 rows, int shares) {
  const i64 row = blockIdx.x % rows, which = blockIdx.x / rows, b = which / heads, h = which % heads;
  const int part = threadIdx.x;
  softmax state = {MINUS, 0.f, {0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f}};
  for (int i = 0; i < shares; ++i) {
    const float* from = parts + (blockIdx.x * (i64)shares + i) * (D + 2);
    join(state, from[0], from[1], from + 2 + part * 8);
  }
  eight result;
  _Pragma("unroll") for (int j = 0; j < 8; ++j) result.v[j] = put(state.total == 0.f ? 0.f : state.sums[j] / state.total);
  *(eight*)(out + b * ob + h * oh + row * orow + part * 8) = result;
  if (part == 0) logs[which * rows + row] = state.best + logf(state.total);
}
"""


def takes(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Return whether there are few enough queries, and a number of features that threads can share evenly."""
    _, _, rows, features = query.shape
    return 0 < rows <= MOST_ROWS and features in _FEATURES and value.shape[3] == features and key.shape[2] > 0


def text(d: Any, features: int) -> str:
    """Return the CUDA text for a dtype and a number of features."""
    return element_text(d) + f"#define D {features}\n" + _TEXT


def _view(t: Tensor) -> bytes:
    return _VIEW.pack(address(t), *t._strides[:3])


_ATTEND = ("q",) * 6 + (_VIEW.size,) * 3 + ("q",) * 5 + (_MASK.size, "f", "i")
_UNMASKED = bytes(_MASK.size)
_JOIN = ("q",) * 8 + ("i",)


@functools.cache
def _kernels(d: Any, features: int, where: Any) -> tuple[Any, Any, int]:
    """Return both kernels, and how many blocks keep a device busy."""
    source = text(d, features)
    attend, join = (function(source, *named, where) for named in (("attend_rows", _ATTEND), ("join_shares", _JOIN)))
    return attend, join, 2 * nvidia.processors(where)


def _mask(mask: Tensor, q: Tensor, k: Tensor) -> bytes:
    return _MASK.pack(address(mask), *_mask_steps(mask, q, k), 1 if mask.dtype is dt.bool_ else 2)


def forward(
    out: Tensor, logs: Tensor, q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, mask: Tensor | None = None
) -> None:
    """Compute out = softmax(q @ k.T * scale + mask) @ v, and the logarithm of each row's sum. Features are adjacent and aligned to 16 bytes;
    a bool mask hides elements that are False."""
    batch, heads, rows, features = q.shape
    _, own_heads, source, _ = k.shape
    attend, join, enough = _kernels(q.dtype, features, q.device)
    blocks = batch * heads * rows
    share = -(-source // min(-(-source // _SHARE), _MOST_SHARES, max(1, enough // blocks)))
    shares = -(-source // share)
    held = nvidia.workspace(4 * blocks * shares * (features + 2), q.device) if shares > 1 else None
    place = (address(out), *out._strides[:3], address(logs), 0 if held is None else held.ptr)
    attend(
        (blocks, shares, 1), _THREADS, *place, _view(q), _view(k), _view(v), heads, heads // own_heads, rows, source, share,
        _UNMASKED if mask is None else _mask(mask, q, k), scale, int(causal),
    )  # fmt: skip
    if shares > 1:
        join(blocks, features // 8, *place, heads, rows, shares)
