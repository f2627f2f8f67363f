"""Joining tensors on NVIDIA GPUs: a few dense ones, or many of one element, by one launch instead of one for each."""

from __future__ import annotations

import struct
from typing import Any

from ....core.tensor import Tensor
from ....ops.shape.joining import JoinPlan, _join, joined, stack
from .launching import address, blocks_for, function

_MOST = 8
_TEXT = """
struct alignas(16) quad { int v[4]; };
struct parts { const quad* at[8]; i64 end[8]; };  // where in a row of the result each ends
extern "C" __global__ void __launch_bounds__(256) join(quad* out, const __grid_constant__ parts p, unsigned wide, unsigned count) {
  const unsigned i = blockIdx.x * 256 + threadIdx.x;
  if (i >= count) return;
  const unsigned row = i / wide, column = i - row * wide;
  unsigned begin = 0;
  _Pragma("unroll") for (int k = 0; k < 8; ++k) {  // else the table would be copied to memory
    const unsigned end = (unsigned)p.end[k];
    if (column < end) {
      out[i] = p.at[k][(i64)row * (end - begin) + column - begin];
      return;
    }
    begin = end;
  }
}
"""
_PARTS = struct.Struct("<16q")
_MANY = 256
_ELEMENTS = """
struct many { const E* at[256]; };
extern "C" __global__ void __launch_bounds__(256) collect(E* out, const __grid_constant__ many m, unsigned count) {
  if (threadIdx.x < count) out[threadIdx.x] = *m.at[threadIdx.x];
}
"""
_WORDS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "unsigned long long"}
_ADDRESSES = struct.Struct(f"<{_MANY}q")


def _quads(t: Tensor, dim: int) -> int:
    """Return the number of 16-byte words from one index before `dim` of a dense tensor to the next; 0 if they are not whole."""
    step = t.dtype.itemsize
    for n in t.shape[dim:]:
        step *= n
    return 0 if step % 16 or address(t) % 16 else step // 16


def _collect(out: Tensor, tensors: Any) -> bool:
    """Concatenate tensors of one element each; return False, having done nothing, if they are not."""
    width = out.dtype.itemsize
    if len(tensors) < 2 or out.numel() != len(tensors) or width not in _WORDS or not out._contig:
        return False
    if any(t.dtype is not out.dtype for t in tensors):
        return False
    run = function(f"typedef {_WORDS[width]} E;{_ELEMENTS}", "collect", ("q", _ADDRESSES.size, "i"), out.device)
    for at in range(0, len(tensors), _MANY):
        some = tensors[at : at + _MANY]
        given = _ADDRESSES.pack(*map(address, some), *(0,) * (_MANY - len(some)))
        run(1, 256, address(out) + at * width, given, len(some))
    return True


@stack.on("cuda")
def _(out: Tensor, plan: JoinPlan, tensors: Any, dim: int) -> None:
    if not _collect(out, tensors):
        _join(out, plan, tensors, dim)


@joined.on("cuda")
def _(out: Tensor, plan: JoinPlan, tensors: Any, dim: int) -> None:
    if len(tensors) > _MOST and _collect(out, tensors):
        return
    d = dim % max(len(out.shape), 1)
    alike = 1 < len(tensors) <= _MOST and out._contig
    if not alike or not all(t._contig and t.dtype is out.dtype and len(t.shape) == len(out.shape) for t in tensors):
        _join(out, plan, tensors, dim)
        return
    sizes = [_quads(t, d) for t in (out, *tensors)]
    count = out.numel() * out.dtype.itemsize // 16
    if not all(sizes) or count >= 1 << 31:
        _join(out, plan, tensors, dim)
        return
    ends = [sum(sizes[1 : k + 2]) for k in range(len(tensors))]
    more = _MOST - len(tensors)
    given = _PARTS.pack(*(address(t) for t in tensors), *(0,) * more, *ends, *(ends[-1],) * more)
    run = function(_TEXT, "join", ("q", _PARTS.size, "i", "i"), out.device)
    run(blocks_for(count, 256), 256, address(out), given, sizes[0], count)
