"""The gradients of layer normalisation on NVIDIA GPUs: enough chunks of rows for every multiprocessor, added up by a second kernel."""

from __future__ import annotations

from typing import Any

from ....core.tensor import Tensor, empty
from ....kernels.library import layer_norm as row_kernels
from ....ops.machinery.inplace import raw_copy
from ....ops.machinery.memory import dense
from ....ops.machinery.together import Wanted, in_place_of
from ....ops.nn.normalization import _rows, layer_norm_grads
from ... import nvidia
from .launching import address, element_text, function

# A block has 32 columns of both sums, and a warp every 32nd chunk; at the end a warp adds up one column.
_ADD = """
extern "C" __global__ void __launch_bounds__(1024) add_chunks(T* weight, T* bias, const T* partial, i64 chunks, i64 n) {
  __shared__ A sums[32][33];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  i64 column = blockIdx.x * (i64)32 + lane;
  A sum = 0;
  if (column < 2 * n)
    _Pragma("unroll 8") for (i64 c = warp; c < chunks; c += 32) sum += get(partial[c * 2 * n + column]);
  sums[warp][lane] = sum;
  __syncthreads();
  sum = sums[lane][warp];
  for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  column = blockIdx.x * (i64)32 + warp;
  T* to = column < n ? weight : bias;
  if (lane == 0 && column < 2 * n && to) to[column < n ? column : column - n] = put(sum);
}
"""


@layer_norm_grads.on("cuda")
def _(
    out: list[Tensor], g: Tensor, input: Tensor, weight: Any, bias: Any, mean: Tensor, rstd: Tensor, inner: int,
    wanted: Wanted,
) -> None:  # fmt: skip
    rows, n = _rows(input.shape, inner)
    dx, *results = in_place_of(wanted, out)
    kept, where = mean.dtype, mean.device
    chunks = min(rows, 4 * nvidia.processors(where))
    partial: Any = empty((chunks, 2, n), kept, where) if wanted[1] or wanted[2] else None
    scale = None if weight is None else dense(weight)
    row_kernels.layer_norm_backward(dx, partial, dense(g), dense(input), mean, rstd, scale, rows, n, chunks)
    if partial is None:
        return
    sums = [t if t is None or (t.dtype is kept and t._contig) else empty(t.shape, kept, where) for t in results]
    run = function(element_text(kept) + _ADD, "add_chunks", "qqqqq", where)

    run(-(-2 * n // 32), 1024, *(0 if t is None else address(t) for t in sums), address(partial), chunks, n)
    for narrow, full in zip(results, sums):
        if narrow is not None and narrow is not full:
            raw_copy(narrow, full)
