"""Pointwise kernels: one formula per output, applied to every element of up to eight strided dimensions.

The signature of a kernel follows from `kinds`, one character per operand, outputs first:

    c  inner stride 1        b  inner stride 0 (one element per row)        s  any other inner stride
    d  a Python float by value        l  a Python int or bool by value        z  a Python complex by value, as two floats

Rank 1 without "s":  kernel(n, outputs..., inputs...)
Otherwise:           kernel(geometry, outputs..., inputs...), where geometry is an int64 array: sizes[rank], then for
                     each pointer operand strides[rank] in elements, outermost first.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from ..core import dtype as dt
from ..core.dtype import dtype, opmath
from ..expr.functions import cast, maximum, minimum, where
from ..expr.node import COMPARISONS, Expr, const, substitute, walk
from .ir import Assign, Buffer, For, Kernel, Scalar, Statement, Store, load, var

# A chunk is what a thread takes at a time: enough elements to hide the cost of finding its place in the tensor.
CHUNK = 8192
# Width of a block when an operand is transposed.
TILE = 16

# Numbers passed by value, by kind.
PASSED = {"d": dt.float64, "l": dt.int64, "z": dt.complex128}

# Operators that take about as long as moving an element; everything else counts as a function of a dozen of them.
_CHEAP = frozenset(
    (
        "const",
        "arg",
        "add",
        "sub",
        "mul",
        "mul_alone",
        "neg",
        "abs",
        "and",
        "or",
        "xor",
        "not",
        "where",
        "cast",
        "bitcast",
        "fma",
    )
    + ("minimum", "maximum", "logical_not", *COMPARISONS)
)


@functools.cache
def formula_text(roots: tuple[Expr, ...]) -> str:
    """Return a text that determines the formulas, linear in their size even when subexpressions are shared."""
    number: dict[int, int] = {}
    parts = []
    for x in walk(roots):
        number[id(x)] = len(number)
        inner = [
            f"#{number[id(a)]}"
            if isinstance(a, Expr)
            else getattr(a, "key", None) or getattr(a, "name", None) or repr(a)
            for a in x.args
        ]
        parts.append(f"{x.op} {' '.join(inner)}")
    return ";".join(parts) + ":" + ",".join(str(number[id(r)]) for r in roots)


class Operands:
    """Parameters of a kernel and how each input is read."""

    def __init__(self, in_dtypes: tuple[dtype, ...], out_dtypes: tuple[dtype, ...], kinds: str):
        self.in_dtypes, self.kinds = in_dtypes, kinds
        self.outputs = [Buffer(f"out{k}", d) for k, d in enumerate(out_dtypes)]
        self.inputs: list[Buffer | Scalar] = []
        for i, d in enumerate(in_dtypes):
            kind = kinds[len(out_dtypes) + i]
            if kind in PASSED:
                self.inputs.append(Scalar(f"value{i}", PASSED[kind]))
            else:
                self.inputs.append(Buffer(f"in{i}", d))
        self.params: list[Buffer | Scalar] = [*self.outputs, *self.inputs]
        self.pointers = [p for p in self.params if isinstance(p, Buffer)]

    def kind(self, p: Buffer | Scalar) -> str:
        return self.kinds[self.params.index(p)]

    def bind(self, root: Expr, element: dict[Buffer, Expr]) -> Expr:
        """Replace arg(i) by the element, or by the value cast to the dtype it stands for."""

        def replace(x: Expr) -> Expr | None:
            if x.op != "arg":
                return None
            p = self.inputs[x.args[0]]
            if isinstance(p, Scalar):
                return cast(var(p.name, p.dtype), opmath(self.in_dtypes[x.args[0]]))
            return element[p]

        return substitute((root,), replace)[0]


@dataclass(frozen=True)
class Map:
    """Description of a pointwise kernel: the arguments of `build`."""

    roots: tuple[Expr, ...]
    in_dtypes: tuple[dtype, ...]
    out_dtypes: tuple[dtype, ...]
    kinds: str
    rank: int


def weight(roots: tuple[Expr, ...]) -> int:
    """Return the cost of an element, relative to adding two numbers; it decides when threads pay off."""
    nodes = [x.op for x in walk(roots)]
    return 1 + sum(op in _CHEAP for op in nodes) // 8 + 4 * sum(op not in _CHEAP for op in nodes)


def passing(d: dtype) -> str:
    """Return the kind in which a number of dtype `d` is passed."""
    return "z" if d.is_complex else "d" if d is dt.float64 else "l"


def index_var(name: str) -> Expr:
    return var(name, dt.int64)


def assign(name: str, value: Expr | int) -> Assign:
    return Assign(name, dt.int64, const(value) if isinstance(value, int) else value)


def span(name: str, start: Expr | int, stop: Expr | int, body: list[Statement], **options: Any) -> For:
    ends = [const(e) if isinstance(e, int) else e for e in (start, stop)]
    return For(name, ends[0], ends[1], const(1), body, **options)


def quotient(a: Expr, b: Expr | int) -> Expr:
    """Return a // b of sizes and positions: they are not negative, and unsigned division is much less code."""
    return cast(cast(a, dt.uint64) // (const(b) if isinstance(b, int) else cast(b, dt.uint64)), dt.int64)


def remainder(a: Expr, b: Expr | int) -> Expr:
    return cast(cast(a, dt.uint64) % (const(b) if isinstance(b, int) else cast(b, dt.uint64)), dt.int64)


def advance(rank: int, at: str, size: str, offsets: dict[str, str]) -> list[Statement]:
    """Return statements that step to the next position over dimensions 0..rank-1, carrying into outer ones without branches. `offsets` maps
    the name of each offset to the prefix of its strides."""
    inner = rank - 1
    statements: list[Statement] = [assign(f"{at}{inner}", index_var(f"{at}{inner}") + 1)]
    for name, stride in offsets.items():
        statements.append(assign(name, index_var(name) + index_var(f"{stride}{inner}")))
    for d in reversed(range(1, rank)):
        full, here = index_var(f"{size}{d}"), index_var(f"{at}{d}")
        statements += [
            Assign("carry", dt.bool_, here == full),
            assign(f"{at}{d}", where(var("carry", dt.bool_), 0, here)),
            assign(f"{at}{d - 1}", index_var(f"{at}{d - 1}") + cast(var("carry", dt.bool_), dt.int64)),
        ]
        for name, stride in offsets.items():
            jump = index_var(f"{stride}{d - 1}") - full * index_var(f"{stride}{d}")
            statements.append(assign(name, index_var(name) + where(var("carry", dt.bool_), jump, 0)))
    return statements


def locate(position: Expr, rank: int, at: str, size: str) -> list[Statement]:
    """Return statements that compute the coordinates of a position over dimensions 0..rank-1."""
    statements: list[Statement] = []
    left = position
    for d in reversed(range(1, rank)):
        statements.append(assign(f"{at}{d}", remainder(left, index_var(f"{size}{d}"))))
        statements.append(assign("left", quotient(left, index_var(f"{size}{d}"))))
        left = index_var("left")
    return [*statements, *([assign(f"{at}0", left)] if rank else [])]


def build(
    roots: tuple[Expr, ...], in_dtypes: tuple[dtype, ...], out_dtypes: tuple[dtype, ...], kinds: str, rank: int
) -> Kernel:
    operands = Operands(in_dtypes, out_dtypes, kinds)
    recipe = Map(roots, in_dtypes, out_dtypes, kinds, rank)
    used = {operands.inputs[x.args[0]] for x in walk(roots) if x.op == "arg"}
    if rank == 1 and "s" not in kinds:
        body = _row(roots, operands, used, {}, {}, const(0), index_var("n"), parallel=True)
        return Kernel("map", [Scalar("n", dt.int64), *operands.params], body, may_alias=True, recipe=recipe)
    geometry = Buffer("geometry", dt.int64)
    body = _read_geometry(geometry, operands, rank)
    body += _strided(roots, operands, used, rank)
    return Kernel("map", [geometry, *operands.params], body, may_alias=True, recipe=recipe)


def _stride(p: Buffer, d: int) -> Expr:
    return index_var(f"{p.name}.stride{d}")


def _read_geometry(geometry: Buffer, operands: Operands, rank: int) -> list[Statement]:
    statements: list[Statement] = [assign(f"size{d}", load(geometry, const(d))) for d in range(rank)]
    for k, p in enumerate(operands.pointers):
        for d in range(rank):
            statements.append(assign(f"{p.name}.stride{d}", load(geometry, const(rank + k * rank + d))))
    return statements


def _row(
    roots: tuple[Expr, ...],
    operands: Operands,
    used: set[Buffer | Scalar],
    offsets: dict[Buffer, Expr],
    strides: dict[Buffer, Expr],
    start: Expr,
    stop: Expr,
    parallel: bool,
) -> list[Statement]:
    """Build a pass over the innermost dimension."""
    i = index_var("i")
    before: list[Statement] = []
    element: dict[Buffer, Expr] = {}
    place: dict[Buffer, Expr] = {}
    for p in operands.pointers:
        base, kind = offsets.get(p, const(0)), operands.kind(p)
        place[p] = base + (i if kind == "c" else i * strides[p]) if kind != "b" else base
        if kind == "b" and p in used:
            # Loaded before the loop: inside it, a store could be to the same address for all the compiler knows.
            before.append(Assign(f"{p.name}.value", opmath(p.dtype), load(p, place[p])))
            element[p] = var(f"{p.name}.value", opmath(p.dtype))
        elif kind != "b":
            element[p] = load(p, place[p])
    # All results are computed before any is stored, because an output may be one of the inputs.
    body: list[Statement] = []
    for k, (root, out) in enumerate(zip(roots, operands.outputs, strict=True)):
        body.append(Assign(f"result{k}", opmath(out.dtype), operands.bind(root, element)))
    for k, out in enumerate(operands.outputs):
        body.append(Store(out, place[out], var(f"result{k}", opmath(out.dtype))))
    cost = const(weight(roots)) if parallel else None
    return [*before, span("i", start, stop, body, parallel=parallel, cost=cost, independent=True)]


def _strided(roots: tuple[Expr, ...], operands: Operands, used: set[Buffer | Scalar], rank: int) -> list[Statement]:
    last = rank - 1
    inner = index_var(f"size{last}")
    strides = {p: _stride(p, last) for p in operands.pointers}
    if rank == 1:
        return _row(roots, operands, used, {}, strides, const(0), inner, parallel=True)
    rows: Expr = index_var("size0")
    for d in range(1, last):
        rows = rows * index_var(f"size{d}")
    block, group, blocks = index_var("block"), index_var("group"), index_var("blocks")
    statements: list[Statement] = [
        assign("rows", rows),
        assign("block", where(_is_transposed(operands, last), TILE, CHUNK)),
        assign("blocks", maximum(quotient(inner + block - 1, block), 1)),
        assign("group", maximum(quotient(const(CHUNK), maximum(minimum(inner, block), 1)), 1)),
        assign("chunks", quotient(rows + group - 1, group) * blocks),
    ]
    chunk = index_var("chunk")
    body: list[Statement] = [
        assign("first", quotient(chunk, blocks) * group),
        assign("last", minimum(index_var("first") + group, index_var("rows"))),
        assign("low", remainder(chunk, blocks) * block),
        assign("high", minimum(index_var("low") + block, inner)),
        *_locate(operands, last),
    ]
    offsets = {p: index_var(f"{p.name}.offset") for p in operands.pointers}
    row = _row(roots, operands, used, offsets, strides, index_var("low"), index_var("high"), parallel=False)
    body.append(span("row", index_var("first"), index_var("last"), [*row, *_advance(operands, last)]))
    cost = group * minimum(inner, block) * weight(roots)
    statements.append(span("chunk", 0, index_var("chunks"), body, parallel=True, cost=cost))
    return statements


def _is_transposed(operands: Operands, last: int) -> Expr:
    """Return the test for an operand with long steps along rows and short ones across them: then narrow blocks of many rows use each of its
    cache lines several times."""
    found: Expr = const(False)
    for p in operands.pointers:
        if operands.kind(p) == "s":
            along, across = abs(_stride(p, last)), abs(_stride(p, last - 1))
            found = found | ((along >= TILE) & (across < along) & (across > 0))
    return found


def _locate(operands: Operands, outer: int) -> list[Statement]:
    """Return statements that compute coordinates and offsets of row number `first`."""
    statements = locate(index_var("first"), outer, "at", "size")
    for p in operands.pointers:
        offset: Expr = const(0)
        for d in range(outer):
            offset = offset + index_var(f"at{d}") * _stride(p, d)
        statements.append(assign(f"{p.name}.offset", offset))
    return statements


def _advance(operands: Operands, outer: int) -> list[Statement]:
    return advance(outer, "at", "size", {f"{p.name}.offset": f"{p.name}.stride" for p in operands.pointers})
