"""Kernels that run one formula over many tensors in one launch, or one reduction of each, as an optimizer's step and clipping need, on NVIDIA
GPUs.

Addresses and sizes of the tensors are passed by value, as a table of tasks; a block finds its task by binary search. So nothing has to be
copied to the device first, and a step can be captured into a graph."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ..core.dtype import dtype
from ..expr.functions import cast
from ..expr.node import Expr
from .cuda_maps import MapProgram
from .cuda_operands import BLOCK, Device, device_function
from .cuda_reductions import ReduceProgram
from .cuda_values import PRELUDE, loaded, memory_type, value_type
from .elementwise import Map
from .reduction_parts import Reduction

_LONGEST = 1 << 15  # elements of one block, where there are many
_BLOCKS = 8  # on each multiprocessor, if there is enough to do
_TABLES = (16, 64, 256)  # how many tasks a launch may have: the smallest table that will do is passed


def _table(tasks: int, width: int) -> str:
    """Return the text of a table of tasks of `width` words each, the last of which is the first block that works on the task."""
    return f"""
struct tasks {{ i64 word[{tasks * width}]; }};
__device__ __forceinline__ const i64* own_task(const tasks& table, int used) {{
  int low = 0, high = used - 1;  // the last task that begins at this block or before it
  while (low < high) {{
    const int middle = (low + high + 1) / 2;
    if (table.word[middle * {width} + {width - 1}] <= blockIdx.x) low = middle; else high = middle - 1;
  }}
  return table.word + low * {width};
}}
"""


class ListProgram:
    """Program that evaluates formulas over many tensors. `roots` are formulas of the tensors of a task (arg(0), arg(1), ...) and of numbers
    that are the same for all tasks; roots[k] is stored to tensor positions[k]. The last `singles` of a task's tensors have one element each,
    for all elements of the others. Nothing is done if `found` is the address of a float32 number that is not zero."""

    def __init__(
        self,
        roots: tuple[Expr, ...],
        dtypes: tuple[dtype, ...],
        positions: tuple[int, ...],
        numbers: tuple[dtype, ...],
        singles: int = 0,
    ):
        self.dtypes, self.positions, self.numbers = dtypes, positions, numbers
        outs = tuple(dtypes[p] for p in positions)
        kinds = "c" * (len(outs) + len(dtypes) - singles) + "b" * singles + "d" * len(numbers)
        self.map = MapProgram(Map(roots, (*dtypes, *numbers), outs, kinds, 1))

    def source(self, tasks: int) -> str:
        count, each = len(self.dtypes), BLOCK * self.map.vector * self.map.unroll
        pointers = [f"{memory_type(d)}* in{i} = ({memory_type(d)}*)w[{i}];" for i, d in enumerate(self.dtypes)]
        pointers += [f"{memory_type(self.dtypes[p])}* out{k} = in{p};" for k, p in enumerate(self.positions)]
        numbers = "".join(f", double in{count + i}" for i in range(len(self.numbers)))
        place = f"first + (i64)(u * {BLOCK} + threadIdx.x) * {self.map.vector}"
        return (
            PRELUDE
            + self.map._element()
            + f"""
{_table(tasks, count + 2)}extern "C" __global__ void __launch_bounds__({BLOCK}) map_list(const __grid_constant__ tasks table, i64 used, i64 chunk, const float* found{numbers}) {{
  if (found && *found != 0.f) return;
  const i64* w = own_task(table, (int)used);
  {" ".join(pointers)}
  const i64 start = ((i64)blockIdx.x - w[{count + 1}]) * chunk;
  const i64 n = w[{count}] < start + chunk ? w[{count}] : start + chunk;
  for (i64 first = start; first < n; first += {each}) {{
    const bool whole = first + {each} <= n{self.map._aligned()};
    {self.map._body(place, "n", self.map.vector)}
  }}
}}
"""
        )

    def bind(self, device: Device) -> Callable[..., None]:
        functions: dict[int, Any] = {}
        width = len(self.dtypes) + 2
        each = BLOCK * self.map.vector * self.map.unroll

        def launch(rows: list[tuple[int, ...]], numbers: tuple[Any, ...], found: int) -> None:
            size = next(n for n in _TABLES if n >= len(rows))
            if size not in functions:
                kinds = (size * width * 8, "q", "q", "q", *("d",) * len(numbers))
                functions[size] = device.load(self.source(size)).function("map_list", kinds)
            words: list[int] = []
            share = sum(row[-1] for row in rows) // (_BLOCKS * device.processors)
            chunk = min(max(share // each, 1) * each, _LONGEST)
            blocks = 0
            for row in rows:
                words += (*row, blocks)
                blocks += -(-row[-1] // chunk)
            table = struct.pack(f"<{len(words)}q", *words).ljust(size * width * 8, b"\0")
            functions[size](blocks, BLOCK, table, len(rows), chunk, found, *numbers)

        def run(rows: list[tuple[int, ...]], numbers: tuple[Any, ...], found: int = 0) -> None:
            """Launch for `rows`: for each task the addresses of its tensors and their number of elements, which is not zero."""
            for at in range(0, len(rows), _TABLES[-1]):
                launch(rows[at : at + _TABLES[-1]], numbers, found)

        return run


_UNROLL = 4  # loads that a thread has in flight
_WORDS = 4  # of a task: where the tensor and the result lie, how many elements there are, and its first block


class ReduceListProgram:
    """A reduction of each of many dense tensors to one number: blocks share the elements, and a warp combines the results of a tensor's
    blocks, always in one order."""

    def __init__(self, reduction: Reduction):
        self.r, self.whole = reduction, ReduceProgram(reduction, "reduced")
        self.acc, (self.given,) = reduction.acc_dtype, reduction.in_dtypes
        self.vector = max(1, min(16 // self.given.itemsize, 8))

    def source(self, tasks: int) -> str:
        t, v, each = memory_type(self.given), self.vector, BLOCK * self.vector
        mapped = device_function("element", (cast(self.r.map_root, self.acc),), self.r.in_dtypes, (self.acc,))
        floating, value = value_type(self.acc.to_real()), value_type(self.acc)
        out = memory_type(self.r.out_dtype)
        take = f"{value} value; element({{}}, value); sums[{{}}] = join(sums[{{}}], value);"
        return f"""{PRELUDE}{mapped}{self.whole._final()}{self.whole._accumulator()}{_table(tasks, _WORDS)}
extern "C" __global__ void __launch_bounds__({BLOCK}) reduce_list(const __grid_constant__ tasks table, i64 used, i64 chunk, acc_t* partial) {{
  const i64* w = own_task(table, (int)used);
  const {t}* in = (const {t}*)w[0];
  const i64 start_at = ((i64)blockIdx.x - w[3]) * chunk, end = w[2] < start_at + chunk ? w[2] : start_at + chunk;
  const int lane = threadIdx.x;
  acc_t sums[{_UNROLL}];
  for (int u = 0; u < {_UNROLL}; ++u) sums[u] = start();
  i64 at = start_at;
  if ((unsigned long long)in % {v * self.given.itemsize} == 0)
    for (; at + {each * _UNROLL} <= end; at += {each * _UNROLL}) {{
      fb_vec<{t}, {v}> x[{_UNROLL}];
      _Pragma("unroll") for (int u = 0; u < {_UNROLL}; ++u)
        x[u] = *(const fb_vec<{t}, {v}>*)(in + at + (u * {BLOCK} + lane) * {v});
      _Pragma("unroll") for (int u = 0; u < {_UNROLL}; ++u)
        _Pragma("unroll") for (int k = 0; k < {v}; ++k) {{ {take.format(loaded("x[u].at[k]", self.given), "u", "u")} }}
    }}
  for (at += lane; at < end; at += {BLOCK}) {{ {take.format(loaded("in[at]", self.given), "0", "0")} }}
  acc_t total = sums[0];
  for (int u = 1; u < {_UNROLL}; ++u) total = join(total, sums[u]);
  for (int d = 16; d > 0; d /= 2) total = join(total, fb_from_other(total, d, 32));
  {self.whole._across_warps(BLOCK)}
  if (lane == 0) partial[blockIdx.x] = total;
}}
extern "C" __global__ void __launch_bounds__(32) finish_list(const __grid_constant__ tasks table, i64 used, i64 blocks, const acc_t* partial) {{
  const i64* w = table.word + (i64)blockIdx.x * {_WORDS};
  const i64 last = blockIdx.x + 1 < used ? w[2 * {_WORDS} - 1] : blocks;
  acc_t total = start();
  for (i64 i = w[{_WORDS - 1}] + threadIdx.x; i < last; i += 32) total = join(total, partial[i]);
  for (int d = 16; d > 0; d /= 2) total = join(total, fb_from_other(total, d, 32));
  if (threadIdx.x) return;
  {value_type(self.r.out_dtype)} y0;
  final(total, ({floating})w[2], y0);
  *({out}*)w[1] = {self.whole.operands.store(0, "y0")};
}}
"""

    def bind(self, device: Device) -> Callable[[list[tuple[int, int, int]]], None]:
        functions: dict[int, Any] = {}
        each = BLOCK * self.vector * _UNROLL

        def launch(rows: list[tuple[int, int, int]]) -> None:
            size = next(n for n in _TABLES if n >= len(rows))
            if size not in functions:
                module, kinds = device.load(self.source(size)), (size * _WORDS * 8, "q", "q", "q")
                functions[size] = module.function("reduce_list", kinds), module.function("finish_list", kinds)
            main, finish = functions[size]
            share = sum(row[-1] for row in rows) // (_BLOCKS * device.processors)
            chunk, blocks = max(share // each, 1) * each, 0
            words: list[int] = []
            for row in rows:
                words += (*row, blocks)
                blocks += -(-row[-1] // chunk)
            table = struct.pack(f"<{len(words)}q", *words).ljust(size * _WORDS * 8, b"\0")
            partial = device.scratch(blocks * self.acc.itemsize)
            main(blocks, BLOCK, table, len(rows), chunk, partial)
            finish(len(rows), 32, table, len(rows), blocks, partial)

        def run(rows: list[tuple[int, int, int]]) -> None:
            """Launch for `rows`: for each tensor its address, that of its result, and its number of elements, which is not zero."""
            for at in range(0, len(rows), _TABLES[-1]):
                launch(rows[at : at + _TABLES[-1]])

        return run
