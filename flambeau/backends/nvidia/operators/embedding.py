"""The gradient of embedding tables on NVIDIA GPUs: always added up in one order.

For a large table the indices are sorted, and a warp adds up the rows of each. For a small one, a block scans all indices for those of its
row, in one launch."""

from __future__ import annotations

from typing import Any

from ....core import dtype as dt
from ....core.tensor import Tensor, empty, numel_of
from ....kernels.cuda_values import memory_type
from ....ops.creation.filled import fill_raw
from ....ops.machinery.memory import bare, dense
from ....ops.nn.embedding import embedding_dense_backward
from ... import nvidia
from .launching import address, element_text, function
from .sorting import sort_rows

_WARPS = 8
_COLUMNS = 8  # sums that a thread holds
_PIECE = 128  # sorted indices that one warp adds up at most

# The sorted indices are cut into pieces. The rows of an index that lie in one piece are added up and written; of one that goes on behind
# the end of a piece, each piece keeps a sum (the one that begins there in the second of its two places, the one that came from before in
# the first), and `join_rows` adds these up: thousands of equal indices, as padding is, do not wait for one warp.
_SOURCE = r"""
__device__ i64 end_of(const int* rows, i64 at, i64 count) {  // of the run of equal indices around `at`
  i64 low = at, high = count;
  while (high - low > 1) { const i64 middle = (low + high) / 2; if (rows[middle] == rows[at]) low = middle; else high = middle; }
  return high;
}
__device__ i64 begin_of(const int* rows, i64 at) {
  i64 low = -1, high = at;
  while (high - low > 1) { const i64 middle = (low + high) / 2; if (rows[middle] == rows[at]) high = middle; else low = middle; }
  return high;
}
extern "C" __global__ void __launch_bounds__(256) add_rows(T* out, A* pieces, const T* grad, const int* rows, const i64* order, i64 count,
    i64 n, i64 dim, i64 padding, int average, i64* note) {
  const i64 first = (i64)blockIdx.x * 8 + (threadIdx.x >> 5);
  const int lane = threadIdx.x & 31;
  if (first >= count) return;
  const int row = rows[first];
  const int came = first && rows[first - 1] == row;
  if ((came && first % PIECE) || row == padding) return;
  if (row < 0 || row >= n) { if (!lane) { note[0] = 1; note[1] = row; } return; }
  const i64 border = (first / PIECE + 1) * PIECE, until = border < count ? border : count;
  i64 last = first + 1;
  while (last < until && rows[last] == row) ++last;
  const int whole = !came && (last == count || rows[last] != row);
  const A scale = !average ? (A)1 : (A)1 / (A)(whole ? last - first : end_of(rows, first, count) - begin_of(rows, first));
  A* kept = pieces + (first / PIECE * 2 + !came) * dim;
  for (i64 base = 0; base < dim; base += 32 * COLUMNS) {
    A sums[COLUMNS];
    _Pragma("unroll") for (int k = 0; k < COLUMNS; ++k) sums[k] = 0;
    for (i64 at = first; at < last; ++at) {
      const T* from = grad + order[at] * dim + base + lane;
      _Pragma("unroll") for (int k = 0; k < COLUMNS; ++k) if (base + lane + k * 32 < dim) sums[k] += get(from[k * 32]) * scale;
    }
    _Pragma("unroll") for (int k = 0; k < COLUMNS; ++k) if (base + lane + k * 32 < dim) {
      if (whole) out[row * dim + base + lane + k * 32] = put(sums[k]); else kept[base + lane + k * 32] = sums[k];
    }
  }
}
extern "C" __global__ void __launch_bounds__(256) join_rows(T* out, const A* pieces, const int* rows, i64 count, i64 n, i64 dim,
    i64 padding) {
  const i64 piece = blockIdx.x, behind = (piece + 1) * PIECE;
  if (behind >= count) return;
  const int row = rows[behind];  // a run that goes on here and began in this piece
  if (rows[behind - 1] != row || row == padding || row < 0 || row >= n) return;
  if (piece && rows[piece * PIECE - 1] == row) return;
  const i64 last = (end_of(rows, behind, count) - 1) / PIECE;
  for (i64 c = (i64)blockIdx.y * 256 + threadIdx.x; c < dim; c += (i64)gridDim.y * 256) {
    A sum = pieces[(piece * 2 + 1) * dim + c];
    for (i64 next = piece + 1; next <= last; ++next) sum += pieces[next * 2 * dim + c];
    out[row * dim + c] = put(sum);
  }
}
"""


_SMALL = 1 << 22  # rows of a table times indices
_TABLE_SOURCE = r"""
extern "C" __global__ void __launch_bounds__(256) fill_table(T* out, const T* grad, const I* indices, i64 count, i64 n, i64 dim,
    i64 padding, int average, i64* note) {
  __shared__ A sums[8][32 * COLUMNS];
  __shared__ int members[8];
  const i64 chunks = (dim + 32 * COLUMNS - 1) / (32 * COLUMNS), row = blockIdx.x / chunks, base = blockIdx.x % chunks * 32 * COLUMNS;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const i64 share = ((count + 7) / 8 + 31) / 32 * 32, end = (warp + 1) * share < count ? (warp + 1) * share : count;
  A own[COLUMNS];
  int found = 0;
  _Pragma("unroll") for (int k = 0; k < COLUMNS; ++k) own[k] = 0;
  for (i64 first = warp * share; first < end; first += 32) {
    const i64 index = first + lane < end ? (i64)indices[first + lane] : -1;
    if (row == 0 && first + lane < end && (index < 0 || index >= n)) { note[0] = 1; note[1] = index; }
    unsigned hits = __ballot_sync(0xffffffffu, index == row && row != padding);
    found += __popc(hits);
    while (hits) {
      const T* from = grad + (first + __ffs(hits) - 1) * dim + base + lane;
      _Pragma("unroll") for (int k = 0; k < COLUMNS; ++k) if (base + lane + 32 * k < dim) own[k] += get(from[32 * k]);
      hits &= hits - 1;
    }
  }
  _Pragma("unroll") for (int k = 0; k < COLUMNS; ++k) sums[warp][lane + 32 * k] = own[k];
  if (lane == 0) members[warp] = found;
  __syncthreads();
  for (int c = threadIdx.x; c < 32 * COLUMNS; c += 256) {
    if (base + c >= dim) continue;
    A total = 0;
    int all = 0;
    _Pragma("unroll") for (int w = 0; w < 8; ++w) { total += sums[w][c]; all += members[w]; }
    out[row * dim + base + c] = put(average && all ? total / (A)all : total);
  }
}
"""


def _fill_table(
    out: Tensor, grad: Tensor, indices: Any, count: int, n: int, dim: int, padding: int, average: bool
) -> None:
    columns = 4 if dim > 64 else 2 if dim > 32 else 1
    text = (
        f"#define COLUMNS {columns}\ntypedef {memory_type(indices.dtype)} I;\n"
        + element_text(out.dtype)
        + _TABLE_SOURCE
    )
    run = function(text, "fill_table", "qqqqqqqiq", out.device)
    run(
        n * -(-dim // (32 * columns)), 256, address(out), address(dense(grad)), address(dense(indices)), count, n, dim, padding,
        int(average), nvidia.error_flag(out.device, "embedding_dense_backward"),
    )  # fmt: skip


@embedding_dense_backward.on("cuda")
def _(
    out: Tensor, grad_output: Tensor, indices: Any, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> None:
    count, dim, where = numel_of(indices.shape), grad_output.shape[-1], out.device
    if out.dtype not in (dt.float32, dt.float64, dt.float16, dt.bfloat16):
        raise NotImplementedError(f"the gradient of an embedding of {out.dtype} has no kernel on CUDA")
    if num_weights and dim and count * num_weights <= _SMALL:
        given = bare(indices).reshape(-1).contiguous()
        _fill_table(out, grad_output, given, count, num_weights, dim, padding_idx, bool(scale_grad_by_freq))
        return
    fill_raw(out, 0)
    if not count or not dim:
        return
    flat = bare(indices).reshape(-1).to(dt.int32).contiguous()
    rows, order = empty((count,), dt.int32, where), empty((count,), dt.int64, where)
    sort_rows(rows, order, flat, False)
    text = f"#define COLUMNS {_COLUMNS}\n#define PIECE {_PIECE}\n" + element_text(out.dtype) + _SOURCE
    cuts = -(-count // _PIECE)
    pieces = empty((cuts, 2, dim), dt.float64 if out.dtype is dt.float64 else dt.float32, where)
    run = function(text, "add_rows", "qqqqqqqqqiq", where)
    run(
        -(-count // _WARPS), 32 * _WARPS, address(out), address(pieces), address(dense(grad_output)), address(rows), address(order), count,
        num_weights, dim, padding_idx, int(bool(scale_grad_by_freq)), nvidia.error_flag(where, "embedding_dense_backward"),
    )  # fmt: skip
    if cuts > 1:
        join = function(text, "join_rows", "qqqqqqq", where)
        join(
            (cuts, -(-dim // 256), 1),
            256,
            address(out),
            address(pieces),
            address(rows),
            count,
            num_weights,
            dim,
            padding_idx,
        )
