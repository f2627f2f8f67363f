"""Adding values at indices on NVIDIA GPUs: places are sorted, and a thread adds the values of one place in the order of the indices, so that
sums are the same in every run, as in PyTorch."""

from __future__ import annotations

from typing import Any

from ....core import dtype as dt
from ....core.tensor import Tensor, empty
from ....ops.index.indexing import _checked_places, index_put_prepared, put_at_, put_raw
from ....ops.machinery.inplace import raw_copy
from ....ops.machinery.memory import bare
from .launching import address, blocks_for, element_text, function
from .sorting import sort_rows

_SOURCE = r"""
extern "C" __global__ void __launch_bounds__(256) add_sorted(T* x, const T* values, const i64* before, const P* picked, const i64* order,
    const i64* after, i64 blocks, i64 count, i64 inner, int dense, int single) {
  const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
  if (i >= blocks * count * inner) return;
  const i64 a = i % inner, p = i / inner % count, b = i / inner / count;
  const P place = picked[p];
  if (place < 0 || (p && picked[p - 1] == place)) return;  // out of bounds, which has been reported; or not the first one
  T* at = x + before[b] + place + (dense ? a : after[a]);
  A total = get(*at);
  for (i64 q = p; q < count && picked[q] == place; ++q) total += get(single ? values[0] : values[(b * count + order[q]) * inner + a]);
  *at = put(total);
}
"""


@put_at_.on("cuda")
def _add(t: Tensor, indices: Any, values: Any, accumulate: bool) -> None:
    if not accumulate or t.dtype is dt.bool_ or t.dtype.is_complex:
        put_raw(t, indices, values, accumulate)
        return
    where = _checked_places(t, indices, values, accumulate)
    picked: Any = where.picked(indices, t.device)
    if where.empty:
        return
    single = not values.shape
    given = bare(values if single else values.expand(where.shape).contiguous())
    narrow = t._storage.size_bytes // t.dtype.itemsize < 1 << 31
    places = picked.clamp(min=-1).to(dt.int32) if narrow else picked
    ordered, order = empty((where.count,), places.dtype, t.device), empty((where.count,), dt.int64, t.device)
    sort_rows(ordered, order, places, False)
    before, after = where.offsets(t.device)
    run = function(
        f"typedef {'int' if narrow else 'i64'} P;\n" + element_text(t.dtype) + _SOURCE,
        "add_sorted",
        "qqqqqqqqqii",
        t.device,
    )
    run(
        blocks_for(where.blocks * where.count * where.inner, 256), 256, address(t), address(given), address(before), address(ordered),
        address(order), address(after), where.blocks, where.count, where.inner, int(where.dense), int(single),
    )  # fmt: skip


@index_put_prepared.on("cuda")
def _(out: Tensor, input: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> None:
    raw_copy(out, input)
    _add(out, indices, values, accumulate)
