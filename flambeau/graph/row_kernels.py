"""Kernels of groups of rows (see `rows`): a loop over rows with inner loops over the elements of a row, as a loop nest for the device.

Sums of columns are formed over blocks of rows, and a second call adds these up in a fixed order."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ..core.backend import backend_of
from ..core.dtype import bfloat16, float16, float32, float64, int64, opmath
from ..core.size import make_size
from ..core.tensor import Tensor, contiguous_strides, empty
from ..expr.functions import minimum
from ..expr.node import PREDICATES, Expr, cast, const, rebuild, walk
from ..kernels import ir
from ..kernels.cuda_rows import shapes
from ..kernels.elementwise import formula_text, quotient, remainder
from ..ops.machinery.record import Op
from .fusion import passed
from .loops import Number
from .program import Call, Program, Value

# Of a large GPU: blocks that run at the same time share out the rows whose columns are summed up, eight elements for each thread.
_PROCESSORS, _THREADS, _REGISTERS, _OWN = 132, 2048, 1 << 16, 40  # registers of a thread besides elements and sums
_FLOATS = (float32, bfloat16, float16)
_i, _j, _rows, _size = (ir.var(name, int64) for name in ("i", "j", "rows", "size"))


def row_call(program: Program, group: Any, keep: list[Any]) -> Call:
    """Return a group as a call that stores the results `keep`, and partial sums of blocks for its columns."""
    impl = FusedRows(group, keep)
    parts = tuple(p for part in group.parts for p in (part.parts or (part,)))
    results = [_value(p, group.results[p][1], group) for p in keep]
    new = {b for part in group.parts for b in part.makes}
    stored = {v.buffer for v in results}
    if group.columns:
        results.append(program.new_value((impl.blocks, len(group.columns), group.width), float32, group.device))
        new.add(results[-1].buffer)
        stored.add(results[-1].buffer)
    args = tuple(p.value if isinstance(p, Number) else _value(p, d, group) for p, d in impl.inputs)
    name = "+".join(dict.fromkeys(part.name for part in parts))
    op = Op(name, "reduction", impl.run, (), differentiable=False, impl=impl, writes=("outs",))
    return Call(op, impl.run, args, {}, results, sorted(stored & new), frozenset(stored - new), parts[0].line, parts)


def _value(p: Any, d: Any, group: Any) -> Value:
    outer, inner = ((group.dims, p.outer) if p.level in "er" else ((), ())), p.level in "ec"
    shape, strides = (*outer[0], group.width) if inner else outer[0], (*outer[1], 1) if inner else outer[1]
    return Value(p.buffer, p.start, make_size(shape), strides, d, group.device)


class FusedRows:
    """The kernel of a group: `run(outs, *inputs)`. It is compiled when it first runs."""

    def __init__(self, group: Any, keep: list[Any]):
        self.rows, self.dims, self.width, self.where = group.rows, group.dims, group.width, group.device
        self.stored = [(p, *group.results[p]) for p in keep]
        self.columns = [root for root, _ in group.columns.values()]
        self.sums = group.sums
        self.used = _used_sums([*(root for _, root, _ in self.stored), *self.columns], group.sums)
        roots = (*(root for _, root, _ in self.stored), *self.columns, *(group.sums[k] for k in self.used))
        read = sorted({x.args[0] for x in walk(roots) if x.op == "arg" and x.args[0] >= 0})
        places = {(p, d): k for k, (p, _, d) in enumerate(self.stored)}
        # Operand of the formulas -> index of the result whose memory it shares, or of the input.
        self.buffers: dict[int, Any] = {}
        self.inputs: list[Any] = []
        for k in read:
            place = places.get(group.reads[k])
            self.buffers[k] = ("out", place) if place is not None else ("in", len(self.inputs))
            if place is None:
                self.inputs.append(group.reads[k])
        spots = {k: group.reads[k][0] for k in read}
        self.levels = {k: "n" if isinstance(p, Number) else p.level for k, p in spots.items()}
        self.outer = {k: () if isinstance(p, Number) else p.outer for k, p in spots.items()}
        self.roots = roots
        self.blocks = min(self.rows, _PROCESSORS * self._resident())
        self.fn: Any = None

    def _resident(self) -> int:
        """Estimate how many rows a processor works on at a time: registers hold elements of each operand and of each sum."""
        team = shapes(self.width, bfloat16.itemsize)[0][0]
        words = sum(d.itemsize / 4 for p, d in self.inputs if not isinstance(p, Number) and p.level in "ec")
        each = _OWN + int(-(-self.width // (8 * team)) * 8 * (words + len(self.columns)))
        return max(1, min(_THREADS, _REGISTERS // (-(-each // 8) * 8)) // team)

    def run(self, outs: list[Tensor], *inputs: Any) -> None:
        if self.fn is None:
            self.fn = backend_of(self.where).compile_for(self.nest, self._key(), self.where)
        blocks = (-(-self.rows // self.blocks), self.blocks) if self.columns else ()
        self.fn(*map(passed, (*outs, *inputs)), self.rows, *blocks)

    def _key(self) -> str:
        operands = [(self.levels[k], self.outer[k], *self.buffers[k]) for k in self.levels]
        dtypes = [d.name for _, d in self.inputs]
        stored = [(p.level, p.outer, d.name) for p, _, d in self.stored]
        counts = (self.dims, self.width, len(self.columns), self.used)
        return f"rows {formula_text(self.roots)} {operands} {dtypes} {stored} {counts}"

    # -- the loop nest ----------------------------------------------------------------------------------------------

    def nest(self) -> ir.Kernel:
        """Return the loop nest of the kernel."""
        outs = [ir.Buffer(f"out{k}", d) for k, (_, _, d) in enumerate(self.stored)]
        sums = [ir.Buffer("partial", float32)] if self.columns else []
        given: list[Any] = []
        for k, (p, d) in enumerate(self.inputs):
            number = float64 if d is float64 else int64
            given.append(ir.Scalar(f"in{k}", number) if isinstance(p, Number) else ir.Buffer(f"in{k}", d))
        body = _Body(self, outs, sums[0] if sums else None, given)
        numbers = [ir.Scalar(name, int64) for name in ("rows", *(("size", "blocks") if self.columns else ()))]
        inside = [*body.begin(), *body.statements()]
        work = const(4 * self.width)
        loops: list[ir.Statement]
        if not self.columns:
            loops = [ir.For("i", const(0), _rows, const(1), inside, parallel=True, cost=work)]
        else:
            first = ir.var("block", int64) * _size
            end = minimum(first + _size, _rows)
            mine = ir.Assign("mine", int64, ir.var("block", int64) * (len(self.columns) * self.width))
            clear = [
                along(self.width, [ir.Store(sums[0], self.column(c), const(0.0))]) for c in range(len(self.columns))
            ]
            walk_rows = ir.For("i", first, end, const(1), inside)
            blocks = [mine, *clear, walk_rows]
            loops = [
                ir.For("block", const(0), ir.var("blocks", int64), const(1), blocks, parallel=True, cost=work * _size)
            ]
        return ir.Kernel("rows", [*outs, *sums, *given, *numbers], loops)

    def column(self, c: int) -> Expr:
        """Return the index at which the sum of column `c` is accumulated."""
        return ir.var("mine", int64) + c * self.width + _j


def along(width: int, body: list[ir.Statement]) -> ir.For:
    """Return a loop over the elements of a row."""
    return ir.For("j", const(0), const(width), const(1), body)


class _Body:
    """Builder of the statements that a fused kernel executes for one row."""

    def __init__(self, kernel: FusedRows, outs: list[ir.Buffer], partial: Any, given: list[Any]):
        self.kernel, self.outs, self.partial, self.given = kernel, outs, partial, given
        self.block: list[ir.Statement] = []
        self.held: dict[int, Expr] = {}  # values that are the same for all elements of a row, by formula
        self.asked = False
        self.bases: dict[tuple[int, ...], Expr] = {}

    def statements(self) -> list[ir.Statement]:
        k = self.kernel
        for together in _stages(k.used, k.sums):
            roots = [self._loop_formula(k.sums[n]) for n in together]
            for n in together:
                self.block.append(ir.Assign(f"sum{n}", float32, const(0.0)))
            body: list[ir.Statement] = [
                ir.Assign(f"sum{n}", float32, ir.var(f"sum{n}", float32) + cast(root, float32), reassociate=True)
                for n, root in zip(together, roots)
            ]
            self.block.append(along(k.width, [*self._read_ahead(), *body]))
        # Everything is computed before anything is stored: results may share the memory of operands.
        elements: list[ir.Statement] = []
        stores: list[ir.Statement] = []
        rows: list[ir.Statement] = []
        late: list[ir.Statement] = []
        for at, (p, root, _) in enumerate(k.stored):
            value = ir.var(f"value{at}", float32)
            computed = self._loop_formula(root) if p.level == "e" else self._row(root)
            (elements if p.level == "e" else rows).append(ir.Assign(f"value{at}", float32, cast(computed, float32)))
            index = self._index(p.level, p.outer)
            (stores if p.level == "e" else late).append(ir.Store(self.outs[at], index, value))
        for c, root in enumerate(k.columns):
            place = k.column(c)
            total = ir.load(self.partial, place) + cast(self._loop_formula(root), float32)
            self.block.append(along(k.width, [ir.Store(self.partial, place, total, reassociate=True)]))
        if elements:
            self.block.append(along(k.width, [*elements, *stores]))
        self.block += [*rows, *late]
        return self.block

    def _read_ahead(self) -> list[ir.Statement]:
        """Read all operands of an element in the first loop, so that loads do not wait for a sum."""
        rows = [] if self.asked else [k for k, level in self.kernel.levels.items() if level == "e"]
        self.asked = True
        return [ir.Assign(f"ahead{k}", float32, self._operand(k)) for k in rows]

    def _loop_formula(self, root: Expr) -> Expr:
        """Return a formula inside a loop over elements; parts that are the same for all elements are computed before the loop."""
        done: dict[int, Expr] = {}
        return self._place_formula(root, done)

    def _place_formula(self, x: Expr, done: dict[int, Expr]) -> Expr:
        if id(x) not in done:
            if self._is_row(x) and x.op != "const" and _is_number(x):
                done[id(x)] = self._keep_in_register(x)
            elif x.op == "arg":
                done[id(x)] = self._operand(x.args[0])
            else:
                done[id(x)] = rebuild(x, [self._place_formula(o, done) for o in x.operands])
        return done[id(x)]

    def _keep_in_register(self, x: Expr) -> Expr:
        if id(x) not in self.held:
            name = f"held{len(self.held)}"
            self.block.append(ir.Assign(name, float32, cast(self._row(x), float32)))
            self.held[id(x)] = ir.var(name, float32)
        return self.held[id(x)]

    def _row(self, x: Expr) -> Expr:
        """Return a formula of per-row numbers."""
        if id(x) in self.held:
            return self.held[id(x)]
        if x.op == "arg":
            return self._operand(x.args[0])
        return rebuild(x, [self._row(o) for o in x.operands])

    def _is_row(self, x: Expr) -> bool:
        return all(n.args[0] < 0 or self.kernel.levels[n.args[0]] in "ron" for n in walk((x,)) if n.op == "arg")

    def _operand(self, k: int) -> Expr:
        if k < 0:
            return ir.var(f"sum{-1 - k}", float32)
        where, at = self.kernel.buffers[k]
        buffer = (self.outs if where == "out" else self.given)[at]
        if isinstance(buffer, ir.Scalar):
            return cast(ir.var(buffer.name, buffer.dtype), opmath(self.kernel.inputs[at][1]))
        return ir.load(buffer, self._index(self.kernel.levels[k], self.kernel.outer[k]))

    def _index(self, level: str, outer: tuple[int, ...]) -> Expr:
        """Return the index of the element of an operand that belongs to the current row and column."""
        if level == "c" or level == "o":
            return _j if level == "c" else const(0)
        row = self.bases[outer]
        return row + _j if level == "e" else row

    def begin(self) -> list[ir.Statement]:
        """Return the statements that compute where the current row begins in each kind of operand."""
        k = self.kernel
        kinds = {k.outer[n] for n, level in k.levels.items() if level in "er"} | {p.outer for p, _, _ in k.stored}
        found: list[ir.Statement] = []
        counts = contiguous_strides(k.dims)
        for outer in sorted(kinds):
            step = _step(outer, k.dims)
            at: Expr = _i * step if step is not None else const(0)
            for d, (n, s) in enumerate(zip(k.dims, outer)):
                if step is None and s and n > 1:
                    whole = _i if counts[d] == 1 else quotient(_i, counts[d])
                    own = whole if d == 0 else remainder(whole, n)
                    at = at + own * s
            name = f"base{len(found)}"
            found.append(ir.Assign(name, int64, at))
            self.bases[outer] = ir.var(name, int64)
        return found


def _step(outer: tuple[int, ...], dims: tuple[int, ...]) -> int | None:
    """Return the number of elements from one row to the next, or None if it varies."""
    counts = contiguous_strides(dims)
    walked = [(s, c) for s, c, n in zip(outer, counts, dims) if n > 1]
    step = walked[-1][0] // walked[-1][1] if walked else 0
    return step if all(s == step * c for s, c in walked) else None


def _is_number(x: Expr) -> bool:
    """Return whether a formula gives a float32, or can be kept as one without loss."""
    nodes = list(walk((x,)))
    return x.op not in PREDICATES and not any(n.op in ("cast", "bitcast") and n.args[-1] not in _FLOATS for n in nodes)


def _used_sums(roots: list[Expr], sums: list[Expr]) -> list[int]:
    """Return the indices of the sums that formulas need, including those that these sums need."""
    found: set[int] = set()
    left = list(roots)
    while left:
        new = {-1 - x.args[0] for x in walk((left.pop(),)) if x.op == "arg" and x.args[0] < 0} - found
        found |= new
        left += [sums[k] for k in new]
    return sorted(found)


def _stages(used: list[int], sums: list[Expr]) -> Iterator[list[int]]:
    """Yield lists of sums that can be formed in one loop, in the order of the loops."""
    depth: dict[int, int] = {}
    for k in used:
        needs = [depth[-1 - x.args[0]] for x in walk((sums[k],)) if x.op == "arg" and x.args[0] < 0]
        depth[k] = 1 + max(needs, default=0)
    for stage in sorted(set(depth.values())):
        yield [k for k in used if depth[k] == stage]


def column_call(rows: Call, group: Any) -> Call:
    """Return the call that adds up the partial sums of columns over all blocks of rows."""
    outs = [v for _, v in group.columns.values()]
    impl = ColumnSums(rows.op.impl.blocks, [v.dtype for v in outs], group.width, group.device)
    op = Op(f"columns of {rows.op.name}", "reduction", impl.run, (), differentiable=False, impl=impl, writes=("outs",))
    op.beside = True
    makes = sorted(v.buffer for v in outs)
    return Call(op, impl.run, (rows.results[-1],), {}, outs, makes, frozenset(), rows.line, rows.parts)


class ColumnSums:
    """Sums over blocks: `run(outs, partial)`. Some blocks at a time, then what these have given, in a fixed order."""

    def __init__(self, blocks: int, dtypes: list[Any], width: int, where: Any):
        self.blocks, self.dtypes, self.width, self.where = blocks, dtypes, width, where
        self.step = len(dtypes) * width
        self.size = next(n for n in range(math.isqrt(blocks), 0, -1) if blocks % n == 0)  # loops of a fixed length
        self.chunks = blocks // self.size
        self.fns: list[Any] = []

    def run(self, outs: list[Tensor], partial: Tensor) -> None:
        if not self.fns:
            shape = f"columns {self.blocks} {self.width} {[d.name for d in self.dtypes]}"
            compiled = backend_of(self.where).compile_for
            self.fns = [compiled(nest, f"{k} {shape}", self.where) for k, nest in enumerate((self._some, self._all))]
        middle = empty((self.chunks, self.step), float32, self.where)
        self.fns[0](passed(middle), passed(partial))
        self.fns[1](*map(passed, (*outs, middle)))

    def _some(self) -> ir.Kernel:
        """The sums of some blocks, for every column."""
        middle, partial = ir.Buffer("middle", float32), ir.Buffer("partial", float32)
        row = quotient(_i, self.step) * self.size + ir.var("row", int64)
        total = ir.var("total", float32)
        add = ir.Assign("total", float32, total + ir.load(partial, row * self.step + remainder(_i, self.step)))
        inside: list[ir.Statement] = [
            ir.Assign("total", float32, const(0.0)),
            ir.For("row", const(0), const(self.size), const(1), [add]),
            ir.Store(middle, _i, total),
        ]
        count, work = const(self.chunks * self.step), const(self.size)
        return ir.Kernel(
            "some", [middle, partial], [ir.For("i", const(0), count, const(1), inside, parallel=True, cost=work)]
        )

    def _all(self) -> ir.Kernel:
        """The sums of these."""
        outs, middle = [ir.Buffer(f"out{k}", d) for k, d in enumerate(self.dtypes)], ir.Buffer("middle", float32)
        totals = [ir.var(f"total{k}", float32) for k in range(len(outs))]
        begin: list[ir.Statement] = [ir.Assign(f"total{k}", float32, const(0.0)) for k in range(len(outs))]
        place = ir.var("row", int64) * self.step + _j
        add: list[ir.Statement] = [
            ir.Assign(f"total{k}", float32, total + ir.load(middle, place + k * self.width))
            for k, total in enumerate(totals)
        ]
        stores: list[ir.Statement] = [ir.Store(out, _j, cast(t, opmath(out.dtype))) for out, t in zip(outs, totals)]
        inside = [*begin, ir.For("row", const(0), const(self.chunks), const(1), add), *stores]
        work = const(self.chunks * len(outs))
        loop = ir.For("j", const(0), const(self.width), const(1), inside, parallel=True, cost=work)
        return ir.Kernel("all", [*outs, middle], [loop])
