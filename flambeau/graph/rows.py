"""Rows: formulas over elements, sums over each row and formulas over those, and sums over columns, in one kernel.

A norm is such: it reads a row, sums it up, and reads it again. Together with what makes the row (a residual addition, gradients that are
added up) and what follows (a conversion, another addition) each element is read once, stays in registers, and is written once. Which
calls are such their records say: formulas (`loops`), reductions, and operators that declare what they compute from rows (`Op.rows`).

Values are rounded where memory would have rounded them; sums are formed in another order than by the calls one by one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..core.device import device
from ..core.dtype import bfloat16, dtype, float16, float32
from ..core.tensor import contiguous_strides, numel_of
from ..expr.node import Expr, arg, const, replace_arguments, walk
from .conversions import Kernel, new_results
from .fusion import Joining, loop_in
from .loops import Loop, Number, Place, rounded
from .program import Call, Program, Value
from .reductions import reduced
from .row_kernels import column_call, row_call

_KINDS = (float32, bfloat16, float16)
_WIDEST = 8192  # elements of a row that a block sums up without losing digits
_POINTERS, _NODES = 20, 600


class Spot(NamedTuple):
    """Where an operand lies: a byte of a buffer, and how it goes along: with elements ("e"), rows ("r"), columns ("c"), or not ("o")."""

    buffer: int
    start: int
    level: str


Operand = tuple["Spot | Number", dtype]


@dataclass(eq=False)
class RowGroup:
    """Formulas over `rows` rows of `width` elements. arg(k) of the formulas stands for `reads[k]`, arg(-1 - k) for `sums[k]` of the row.
    `results` are stored where their spots say, `columns` are sums over all rows."""

    rows: int
    width: int
    device: device
    parts: tuple[Call, ...]
    reads: list[Operand] = field(default_factory=list)
    sums: list[Expr] = field(default_factory=list)
    results: dict[Spot, tuple[Expr, dtype]] = field(default_factory=dict)
    columns: dict[int, tuple[Expr, Value]] = field(default_factory=dict)  # by buffer

    def read(self) -> set[int]:
        return {p.buffer for p, _ in self.reads if isinstance(p, Spot)}

    def written(self) -> set[int]:
        return {p.buffer for p in self.results} | set(self.columns)

    def touches(self) -> set[int]:
        return self.read() | self.written()

    def roots(self) -> tuple[Expr, ...]:
        return (*self.sums, *(e for e, _ in self.results.values()), *(e for e, _ in self.columns.values()))


def fuse_rows(program: Program) -> None:
    """Join what is computed from rows."""
    slots = Joining(program, _item, _joined).slots
    users: dict[int, set[int]] = {}
    for i, slot in enumerate(slots):
        for b in slot.touched:
            users.setdefault(b, set()).add(i)
    lasting = program.lasting()
    calls: list[Call] = []
    for i, slot in enumerate(slots):
        group = slot.loop
        if not isinstance(group, RowGroup) or len(group.parts) == 1:
            calls += [slot.call] if group is None else list(group.parts)
            continue
        keep = [p for p in group.results if p.buffer in lasting or users[p.buffer] != {i} or p.buffer in group.read()]
        calls += _calls(program, group, keep)
    program.calls = calls


def _calls(program: Program, group: RowGroup, keep: list[Spot]) -> list[Call]:
    """The group as a call, and one that adds up what its blocks of rows have found for columns."""
    found = row_call(program, group, keep)
    return [found] if not group.columns else [found, column_call(found, group)]


def _item(call: Call) -> Loop | RowGroup | None:
    """A call as a member of a group; loops take the shape of the rows that they join."""
    if call.op.rows is not None and (not call.fixed or isinstance(call.function, Kernel)):
        return _declared(call)
    group = _reduction(call)
    return group if group is not None else loop_in(call)


def _declared(call: Call) -> RowGroup | None:
    """A call by the formulas of its record."""
    form, found = call.op.rows(**call.op.bind(call.args, call.kwargs)), new_results(call)
    if form is None or found is None or not 2 <= form.width <= _WIDEST or call.changes:
        return None
    group = RowGroup(form.rows, form.width, found[0][0].device, (call,), sums=list(form.sums))
    for v, level in form.operands:
        if not _is_dense(v, group.rows * group.width if level == "e" else group.rows if level == "r" else group.width):
            return None
        group.reads.append((Spot(v.buffer, v.start, level), v.dtype))
    for position, v in enumerate(found[0]):
        root, level = form.results[position]
        if v.dtype not in _KINDS or not _is_dense(v, numel_of(v.shape)):
            return None
        if level == "c":
            group.columns[v.buffer] = (root, v)
        else:
            group.results[Spot(v.buffer, v.start, level)] = (root, v.dtype)
    return group if all(d in _KINDS for _, d in group.reads) else None


def _is_dense(v: Any, count: int) -> bool:
    return isinstance(v, Value) and numel_of(v.shape) == count and tuple(v.strides) == contiguous_strides(v.shape)


def _reduction(call: Call) -> RowGroup | None:
    """A sum over each row, or over columns."""
    found = reduced(call)
    if found is None or found.impl.combine != "sum":
        return None
    v, out, dims = found.value, call.results, sorted(found.dims)
    shape = tuple(v.shape)
    first = dims[0] if dims else 0
    along, down = dims == list(range(first, len(shape))), dims == list(range(len(dims)))
    width = numel_of(shape[first:]) if along else numel_of(shape[len(dims) :])
    if along == down or not 2 <= width <= _WIDEST or 0 in shape or v.dtype not in _KINDS or out.dtype not in _KINDS:
        return None
    rows = numel_of(shape) // width
    if not _is_dense(v, rows * width) or not _is_dense(out, rows if along else width) or rows < 2:
        return None
    compute, acc, _ = found.impl.rule(found.impl, v.dtype, found.requested)
    final = found.impl._final()
    if compute not in _KINDS or acc not in _KINDS or (down and final is not None):
        return None
    group = RowGroup(rows, width, v.device, (call,), [(Spot(v.buffer, v.start, "e"), v.dtype)])
    mapped = found.impl.trace((v.dtype,), compute)
    if down:
        group.columns[out.buffer] = (mapped, out)
        return group
    group.sums.append(mapped)
    value = arg(-1) if final is None else replace_arguments((final,), {0: arg(-1), 1: const(float(width))})[0]
    group.results[Spot(out.buffer, out.start, "r")] = (value, out.dtype)
    return group


def _of_rows(loop: Loop, like: RowGroup) -> RowGroup | None:
    """A loop over the elements, or over the rows, of a group."""
    count, rows, width = math.prod(loop.sizes), like.rows, like.width
    if count not in (rows, rows * width) or loop.device is not like.device:
        return None
    cut = width if count > rows else 1
    loop = loop.split([cut]) if cut > 1 else loop
    at, inner = len(loop.sizes), 1
    while inner < cut:
        at -= 1
        inner *= loop.sizes[at]
    if inner != cut:
        return None
    group = RowGroup(rows, width, loop.device, loop.parts)

    def spot(p: Any) -> Any:
        return p if not isinstance(p, Place) else _spot(p, loop.sizes, at, width, count > rows)

    group.reads = [(spot(p), d) for p, d in loop.reads]
    group.results = {spot(p): value for p, value in loop.results.items()}
    known = all(p is not None and (isinstance(p, Number) or d in _KINDS) for p, d in group.reads)
    stored = all(p is not None and p.level in "er" and d in _KINDS for p, (_, d) in group.results.items())
    return group if known and stored and len(group.results) == len(loop.results) else None


def _spot(p: Place, sizes: tuple[int, ...], at: int, width: int, elements: bool) -> Spot | None:
    """How an operand of a loop goes along with rows and elements, the dimensions from `at` on being inside of rows."""
    outer, inner = (_step(p.strides[k], sizes[k]) for k in (slice(0, at), slice(at, None)))
    if not elements:
        return Spot(p.buffer, p.start, "r" if outer == 1 else "o") if outer in (0, 1) else None
    level = {(width, 1): "e", (1, 0): "r", (0, 1): "c", (0, 0): "o"}.get((outer, inner))  # type: ignore[call-overload]
    return None if level is None else Spot(p.buffer, p.start, level)


def _step(strides: tuple[int, ...], sizes: tuple[int, ...]) -> int | None:
    """The stride of several dimensions seen as one; None where they are not."""
    walked = [(s, n) for s, n in zip(strides, sizes) if n > 1]
    if not walked or all(s == 0 for s, _ in walked):
        return 0
    step = expected = walked[-1][0]
    for s, n in reversed(walked):
        if s != expected:
            return None
        expected *= n
    return step


def _joined(first: Any, second: Any, is_used: Callable[[int], bool]) -> RowGroup | None:
    """One group that does what both do, one after the other; None where that is not the same, or nothing is gained."""
    if isinstance(first, Loop) and isinstance(second, Loop):
        return None
    if isinstance(first, Loop):
        first = _of_rows(first, second)
    elif isinstance(second, Loop):
        second = _of_rows(second, first)
    if first is None or second is None or not _compatible(first, second):
        return None
    both = RowGroup(first.rows, first.width, first.device, (*first.parts, *second.parts), list(first.reads))
    index: dict[Any, int] = {}
    for k, read in enumerate(both.reads):
        index.setdefault(_key(read), k)
    values: dict[int, Expr] = {-1 - k: arg(-1 - k - len(first.sums)) for k in range(len(second.sums))}
    for k, (p, d) in enumerate(second.reads):
        made = first.results.get(p) if isinstance(p, Spot) else None
        if made is not None:
            if made[1] is not d:
                return None
            values[k] = rounded(*made)
            continue
        if _key((p, d)) not in index:
            index[_key((p, d))] = len(both.reads)
            both.reads.append((p, d))
        values[k] = arg(index[_key((p, d))])
    replaced = iter(replace_arguments(second.roots(), values))
    both.sums = [*first.sums, *(next(replaced) for _ in second.sums)]
    both.results = dict(first.results)
    for p, (_, d) in second.results.items():
        both.results.pop(p, None)
        both.results[p] = (next(replaced), d)
    both.columns = {**first.columns, **{b: (next(replaced), v) for b, (_, v) in second.columns.items()}}
    pointers = sum(isinstance(p, Spot) for p, _ in both.reads) + sum(is_used(p.buffer) for p in both.results)
    fits = pointers + len(both.columns) <= _POINTERS and sum(1 for _ in walk(both.roots())) <= _NODES
    return both if fits else None


def _key(read: Operand) -> Any:
    p, d = read
    return (p, d) if isinstance(p, Spot) else (p.kind, repr(p.value), d)


def _compatible(first: RowGroup, second: RowGroup) -> bool:
    """Whether each row of the second needs only what the first has done in the same row, and they have elements in common."""
    if (first.rows, first.width, first.device) != (second.rows, second.width, second.device):
        return False
    written = first.written()
    for p, _ in second.reads:
        if isinstance(p, Spot) and p.buffer in written and p not in first.results:
            return False
    for p in second.results:
        if p.buffer in written and (p not in first.results or first.results[p][1] is not second.results[p][1]):
            return False
        if any(isinstance(q, Spot) and q.buffer == p.buffer and q != p for q, _ in (*first.reads, *second.reads)):
            return False
    if not set(second.columns).isdisjoint(first.touches()):
        return False
    mine = {p for p, _ in first.reads if isinstance(p, Spot)} | set(first.results)
    theirs = {p for p, _ in second.reads if isinstance(p, Spot)} | set(second.results)
    return any(p in mine and p.level in "er" for p in theirs)


__all__ = ["RowGroup", "Spot", "fuse_rows"]
