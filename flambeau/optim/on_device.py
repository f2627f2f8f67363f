"""Updates whose step counts are on the device (`fused=True`, `capturable=True`): the host neither reads nor writes them.

The scalars of an update (see `fused`) are computed by a separate launch over all parameters, which stores them next to each other; the
launch over the elements reads them there, and a last one stores the new step counts. So a step can be captured into a graph, and one whose
gradients overflowed (`found_inf`) does nothing without the host knowing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core import dtype as dt
from ..core.backend import backend_of
from ..core.dtype import opmath
from ..core.tensor import Tensor, empty, numel_of
from ..expr import Expr, arg
from ..expr.node import cast
from ..expr.simplify import simplify
from ..ops.reduce.of_lists import address


class DeviceForm:
    """The three launches of an update, for tensors and step counts of certain dtypes on one device. `replaced` maps nodes of a formula to
    others; `symbols` are those of the step counts and then of the numeric options."""

    def __init__(self, variant: Any, replaced: Callable, where: Any, dtypes: tuple, cells: tuple):
        compile_lists = backend_of(where).compile_lists
        hoisted, count = variant.hoisted, len(cells)
        options = (dt.float64,) * (len(variant.symbols) - count)
        wide = (dt.float64,) * len(hoisted)

        def typed(formulas: list[Expr], tensors: int) -> tuple[Expr, ...]:
            """Return the formulas in double precision, with the options as operands after the tensors."""
            places = [*range(count), *(tensors + k for k in range(len(options)))]
            new = {id(s): cast(arg(k), dt.float64) for s, k in zip(variant.symbols, places)}
            return tuple(simplify(cast(replaced(x, new), dt.float64), True) for x in formulas)

        self.prologue: Any = None
        if hoisted:
            places = tuple(range(count, count + len(hoisted)))
            self.prologue = compile_lists(typed(hoisted, count + len(hoisted)), (*cells, *wide), places, options, where)
        roots = tuple(simplify(r, True) for r in variant._cast_operands(opmath(dtypes[0]), list(dtypes)))
        single = len(hoisted) + variant._scaled(dtypes)
        self.elements: Any = compile_lists(roots, (*dtypes, *wide), variant.positions, (), where, single)
        self.cells: Any = None
        if cells:
            self.cells = compile_lists(typed(variant.scalar_results, count), cells, tuple(range(count)), options, where)
        self.width, self.where = len(hoisted), where

    def run(self, rows: list[tuple[Tensor, ...]], cells: list[tuple[Tensor, ...]], numbers: tuple, found: int) -> None:
        """Update parameters with their gradients and states (`rows`) and their step counts."""
        numbers = tuple(map(float, numbers))
        space = empty((len(rows), max(self.width, 1)), dt.float64, self.where)
        begins = [space.data_ptr() + 8 * self.width * i for i in range(len(rows))]
        places = [[at + 8 * k for k in range(self.width)] for at in begins]
        counts = [[address(t) for t in row] for row in cells]
        if self.prologue is not None:
            self.prologue([(*own, *at, 1) for own, at in zip(counts, places)], numbers)
        operands = [[t._storage.ptr + t._offset * t.dtype.itemsize for t in row] for row in rows]
        self.elements([(*own, *at, numel_of(row[0].shape)) for own, row, at in zip(operands, rows, places)], (), found)
        if self.cells is not None:
            self.cells([(*own, 1) for own in counts], numbers, found)
