"""Common part of row and column reductions: operands, identities, the combination of two results, and the division into tasks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..core import dtype as dt
from ..core.dtype import dtype, opmath
from ..expr.functions import cast, isnan, maximum, minimum, where
from ..expr.node import Expr, arg, const, node, substitute
from .elementwise import PASSED, advance, assign, index_var, locate, quotient
from .ir import Assign, Buffer, Scalar, Statement, load, var

COMBINES = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "maximum", "all": "minimum"}
ARG_COMBINES = {"argmax": "gt", "argmin": "lt"}

_WIDE = {dt.float32: dt.float64, dt.complex64: dt.complex128}

# Elements worth a task of their own.
TASK = 16384


@dataclass
class Reduction:
    """Description of a reduction: `final(combine(map_root(inputs)))` over the reduced dimensions."""

    map_root: Expr
    combine: str
    final: Expr | None
    in_dtypes: tuple[dtype, ...]
    out_dtype: dtype
    acc_dtype: dtype
    kept_rank: int
    reduced_rank: int
    kinds: str

    def __post_init__(self) -> None:
        if self.combine in ("any", "all"):  # the maximum or minimum of 0/1 bytes, which vectorises best
            self.map_root = cast(cast(self.map_root, dt.bool_), dt.uint8)
            self.acc_dtype = dt.uint8
        self.acc_dtype = opmath(self.acc_dtype)
        # Sums of single precision are collected in double precision after each block.
        self.wide = _WIDE.get(self.acc_dtype, self.acc_dtype) if self.combine == "sum" else self.acc_dtype
        self.is_arg = self.combine in ARG_COMBINES
        self.geometry = Buffer("geometry", dt.int64)
        self.out = Buffer("out", self.out_dtype)
        self.inputs: list[Buffer | Scalar] = []
        for i, (kind, d) in enumerate(zip(self.kinds, self.in_dtypes, strict=True)):
            if kind in PASSED:
                self.inputs.append(Scalar(f"value{i}", PASSED[kind]))
            else:
                self.inputs.append(Buffer(f"in{i}", d))
        self.pointers = [p for p in self.inputs if isinstance(p, Buffer)]
        self.params: list[Buffer | Scalar] = [self.geometry, self.out, *self.inputs]

    # ---- geometry

    def read_geometry(self) -> list[Statement]:
        kept, reduced = self.kept_rank, self.reduced_rank
        names = [f"kept{d}" for d in range(kept)] + [f"reduced{d}" for d in range(reduced)]
        names += [f"out.kept{d}" for d in range(kept)]
        for p in self.pointers:
            names += [f"{p.name}.kept{d}" for d in range(kept)] + [f"{p.name}.reduced{d}" for d in range(reduced)]
        statements: list[Statement] = [assign(n, load(self.geometry, const(i))) for i, n in enumerate(names)]
        statements.append(assign("count", product([f"reduced{d}" for d in range(reduced)])))
        return statements

    def locate_kept(self, position: Expr, rank: int) -> list[Statement]:
        """Return statements that compute the offsets of a kept position (over the first `rank` kept dimensions) in out and all inputs."""
        statements = locate(position, rank, "at", "kept")
        for p in (self.out, *self.pointers):
            offset: Expr = const(0)
            for d in range(rank):
                offset = offset + index_var(f"at{d}") * index_var(f"{p.name}.kept{d}")
            statements.append(assign(f"{p.name}.base", offset))
        return statements

    def locate_reduced(self, position: Expr, rank: int) -> list[Statement]:
        """Return statements that compute coordinates and offsets of a position over the first `rank` reduced dimensions."""
        statements = locate(position, rank, "place", "reduced")
        for p in self.pointers:
            offset: Expr = index_var(f"{p.name}.base")
            for d in range(rank):
                offset = offset + index_var(f"place{d}") * index_var(f"{p.name}.reduced{d}")
            statements.append(assign(f"{p.name}.offset", offset))
        return statements

    def advance_reduced(self, rank: int) -> list[Statement]:
        """Return statements that step over the first `rank` reduced dimensions."""
        return advance(rank, "place", "reduced", {f"{p.name}.offset": f"{p.name}.reduced" for p in self.pointers})

    # ---- values

    def element(self, along: Expr, stride_name: str, shift: Expr | None = None) -> Expr:
        """Return the mapped value `along` the inner dimension, whose strides are called `stride_name`."""

        def replace(x: Expr) -> Expr | None:
            if x.op != "arg":
                return None
            p, kind = self.inputs[x.args[0]], self.kinds[x.args[0]]
            if isinstance(p, Scalar):
                return cast(var(p.name, p.dtype), opmath(self.in_dtypes[x.args[0]]))
            place: Expr = index_var(f"{p.name}.offset")
            if shift is not None:
                place = place + shift * index_var(f"{p.name}.reduced{self.reduced_rank - 1}")
            if kind != "b":
                place = place + (along if kind == "c" else along * index_var(f"{p.name}.{stride_name}"))
            return load(p, place)

        return cast(substitute((self.map_root,), replace)[0], self.acc_dtype)

    def join(self, a: Expr, b: Expr) -> Expr:
        return node(COMBINES[self.combine], a, b)

    def identity(self) -> Expr:
        d, combine = self.acc_dtype, self.combine
        if combine == "sum":
            return const(0)
        if combine == "prod":
            return const(1)
        highest = combine in ("max", "any", "argmax")  # start from the lowest value
        if d.is_floating_point:
            return const(-math.inf if highest else math.inf)
        if d is dt.bool_:
            return const(not highest)
        width = d.itemsize * 8
        low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if d.is_signed else (0, (1 << width) - 1)
        return const(low if highest else high)

    def better(self, new: Expr, old: Expr) -> Expr:
        """Return the test whether `new` replaces `old` in argmax/argmin; the earlier one stays if they are equal."""
        wins = node(ARG_COMBINES[self.combine], new, old)
        if self.acc_dtype.is_floating_point:
            wins = wins | (isnan(new) & ~isnan(old))
        return wins

    def finish(self, total: Expr) -> Expr:
        total = cast(total, self.acc_dtype)
        if self.final is None:
            return total
        floating = dt.float64 if self.acc_dtype.category < 2 else self.acc_dtype.to_real()
        count = cast(index_var("count"), floating)
        return substitute((self.final,), lambda x: (total if x is arg(0) else count) if x.op == "arg" else None)[0]

    def value(self, name: str) -> Expr:
        return var(name, self.acc_dtype)

    def wide_value(self, name: str) -> Expr:
        return var(name, self.wide)

    def set(self, name: str, value: Expr, wide: bool = False, reassociate: bool = False) -> Assign:
        return Assign(name, self.wide if wide else self.acc_dtype, value, reassociate)


def product(names: list[str]) -> Expr:
    total: Expr | None = None
    for n in names:
        total = index_var(n) if total is None else total * index_var(n)
    return const(1) if total is None else total


def cut(units: Expr, extent: Expr, cost: Expr, multiple: int, most: int) -> list[Statement]:
    """Return statements that set `chunks` and `chunk_length`: into how many pieces each of `units` results is divided, along `extent` steps
    of `cost` elements, with at most `most` pieces in all. There is one piece per result if there are at least half as many results: they keep
    every thread busy."""
    pieces = minimum(quotient(extent * cost, TASK), quotient(const(most), maximum(units, 1)))
    length = quotient(extent + index_var("chunks") - 1, index_var("chunks"))
    rounded = length if multiple == 1 else quotient(length + (multiple - 1), multiple) * multiple
    return [
        assign("chunks", where(units > most // 2, 1, maximum(pieces, 1))),
        assign("chunk_length", maximum(rounded, 1)),
        assign("chunks", maximum(quotient(extent + index_var("chunk_length") - 1, index_var("chunk_length")), 1)),
    ]
