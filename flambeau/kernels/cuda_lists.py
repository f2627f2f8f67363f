"""One formula over many tensors in one launch: what an optimizer's step is, on NVIDIA GPUs.

Addresses and sizes of the tensors travel by value, as a table of tasks; a block finds its task by halving. So nothing has to be
copied to the device first, and a step can be captured into a graph."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ..core.dtype import dtype
from ..expr.node import Expr
from .cuda_maps import MapProgram
from .cuda_operands import BLOCK, Device
from .cuda_values import PRELUDE, memory_type
from .elementwise import Map

_LONGEST = 1 << 15  # elements of one block, where there are many
_BLOCKS = 8  # on each multiprocessor, if there is enough to do
_TABLES = (16, 64, 256)  # how many tasks a launch may have: the smallest table that will do is passed


class ListProgram:
    """`roots` are formulas of the tensors of a task (arg(0), arg(1), ...) and of numbers that are the same for all tasks;
    roots[k] is stored to tensor positions[k]. The last `singles` of a task's tensors are one element each, for all elements of the others.
    Nothing is done if the float32 number at `found`, if that is an address, is not zero."""

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
struct tasks {{ i64 word[{tasks * (count + 2)}]; }};
extern "C" __global__ void __launch_bounds__({BLOCK}) map_list(const __grid_constant__ tasks table, i64 used, i64 chunk, const float* found{numbers}) {{
  if (found && *found != 0.f) return;
  int low = 0, high = (int)used - 1;  // the last task that begins at this block or before it
  while (low < high) {{
    const int middle = (low + high + 1) / 2;
    if (table.word[middle * {count + 2} + {count + 1}] <= blockIdx.x) low = middle; else high = middle - 1;
  }}
  const i64* w = table.word + low * {count + 2};
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

        def launch(rows: list[tuple[int, ...]], numbers: tuple, found: int) -> None:
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

        def run(rows: list[tuple[int, ...]], numbers: tuple, found: int = 0) -> None:
            """`rows`: for each task the addresses of its tensors and how many elements they have, which is not zero."""
            for at in range(0, len(rows), _TABLES[-1]):
                launch(rows[at : at + _TABLES[-1]], numbers, found)

        return run


__all__ = ["ListProgram"]
