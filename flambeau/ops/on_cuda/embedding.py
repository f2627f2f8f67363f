"""The gradient of embedding tables on NVIDIA GPUs: indices are sorted, and a warp adds up the rows of each, always in one order."""

from __future__ import annotations

from typing import Any

from ...backends import nvidia
from ...core import dtype as dt
from ...core.tensor import Tensor, empty, numel_of
from ..creation.filled import fill_raw
from ..machinery.memory import bare, dense
from ..nn.embedding import embedding_dense_backward
from .launching import address, element_text, function
from .sorting import sort_rows

_WARPS = 8
_COLUMNS = 8  # sums that a thread holds

_SOURCE = r"""
extern "C" __global__ void __launch_bounds__(256) add_rows(T* out, const T* grad, const int* rows, const i64* order, i64 count, i64 n,
    i64 dim, i64 padding, int average, i64* note) {
  const i64 first = (i64)blockIdx.x * 8 + (threadIdx.x >> 5);
  const int lane = threadIdx.x & 31;
  if (first >= count) return;
  const int row = rows[first];
  if ((first && rows[first - 1] == row) || row == padding) return;
  if (row < 0 || row >= n) { if (!lane) { note[0] = 1; note[1] = row; } return; }
  i64 last = first + 1;
  while (last < count && rows[last] == row) ++last;
  const A scale = average ? (A)1 / (A)(last - first) : (A)1;
  for (i64 base = 0; base < dim; base += 32 * COLUMNS) {
    A sums[COLUMNS];
    _Pragma("unroll") for (int k = 0; k < COLUMNS; ++k) sums[k] = 0;
    for (i64 at = first; at < last; ++at) {
      const T* from = grad + order[at] * dim + base + lane;
      _Pragma("unroll") for (int k = 0; k < COLUMNS; ++k) if (base + lane + k * 32 < dim) sums[k] += get(from[k * 32]) * scale;
    }
    _Pragma("unroll") for (int k = 0; k < COLUMNS; ++k)
      if (base + lane + k * 32 < dim) out[row * dim + base + lane + k * 32] = put(sums[k]);
  }
}
"""


@embedding_dense_backward.on("cuda")
def _(
    out: Tensor, grad_output: Tensor, indices: Any, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> None:
    count, dim, where = numel_of(indices.shape), grad_output.shape[-1], out.device
    fill_raw(out, 0)
    if not count or not dim:
        return
    if out.dtype not in (dt.float32, dt.float64, dt.float16, dt.bfloat16):
        raise NotImplementedError(f"the gradient of an embedding of {out.dtype} has no kernel on CUDA")
    flat = bare(indices).reshape(-1).to(dt.int32).contiguous()
    rows, order = empty((count,), dt.int32, where), empty((count,), dt.int64, where)
    sort_rows(rows, order, flat, False)
    text = f"#define COLUMNS {_COLUMNS}\n" + element_text(out.dtype) + _SOURCE
    run = function(text, "add_rows", "qqqqqqqqiq", where)
    run(
        -(-count // _WARPS), 32 * _WARPS, address(out), address(dense(grad_output)), address(rows), address(order), count,
        num_weights, dim, padding_idx, int(bool(scale_grad_by_freq)), nvidia.error_flag(where, "embedding_dense_backward"),
    )  # fmt: skip
