"""Unscaling gradients on NVIDIA GPUs: one launch for up to 256 of them."""

from __future__ import annotations

import struct

from ....core import dtype as dt
from ....core.tensor import Tensor, numel_of
from ....ops.machinery.memory import dense
from ....ops.pointwise.unscaling import unscale_list
from ... import nvidia
from .launching import address, element_text, function

_MOST = 256  # gradients in a launch
_SOURCE = r"""
struct tasks { i64 word[3 * MOST]; };
extern "C" __global__ void __launch_bounds__(256) unscale(const __grid_constant__ tasks table, i64 used, i64 chunk, const float* factor,
    float* found) {
  int low = 0, high = (int)used - 1;  // the last task that begins at this block or before it
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (table.word[middle * 3 + 2] <= blockIdx.x) low = middle; else high = middle - 1;
  }
  T* values = (T*)table.word[low * 3];
  const i64 start = ((i64)blockIdx.x - table.word[low * 3 + 2]) * chunk, size = table.word[low * 3 + 1];
  const i64 end = start + chunk < size ? start + chunk : size;
  const A by = (A)*factor;
  bool bad = false;
  for (i64 i = start + threadIdx.x; i < end; i += 256) {
    const A v = get(values[i]);
    bad = bad || !(v - v == (A)0);
    values[i] = put(v * by);
  }
  if (bad) *found = 1.f;
}
"""


@unscale_list.on("cuda")
def _(found: Tensor, grads: list[Tensor], factor: Tensor) -> None:
    by_dtype: dict[dt.dtype, list[Tensor]] = {}
    for grad in grads:
        if dense(grad) is not grad:
            raise NotImplementedError("gradients with gaps in memory cannot be unscaled together on CUDA")
        if 0 not in grad.shape:
            by_dtype.setdefault(grad.dtype, []).append(grad)
    where = found.device
    for d, members in by_dtype.items():
        run = function(f"#define MOST {_MOST}\n" + element_text(d) + _SOURCE, "unscale", (24 * _MOST, *"qqqq"), where)
        for first in range(0, len(members), _MOST):
            part = members[first : first + _MOST]
            total = sum(numel_of(t.shape) for t in part)
            chunk = min(max(total // (8 * nvidia.processors(where)) // 256, 1) * 256, 1 << 15)
            words: list[int] = []
            blocks = 0
            for t in part:
                words += (address(t), numel_of(t.shape), blocks)
                blocks += -(-numel_of(t.shape) // chunk)
            table = struct.pack(f"<{len(words)}q", *words).ljust(24 * _MOST, b"\0")
            run(blocks, 256, table, len(part), chunk, address(factor), address(found))
    for grad in grads:
        grad._bump("unscale_")
