"""Rows: formulas over elements, sums over each row and formulas over those, and sums over columns, in one kernel.

A norm is an example: it reads a row, sums it up, and reads it again. Fused with the calls that make the row (a residual addition, a sum of
gradients) and those that follow (a conversion, another addition), each element is read once, stays in registers, and is written once. The
operators' records declare which calls are fused: formulas (`loops`), reductions, and operators with formulas over rows (`Op.rows`).

Values are rounded where storing would have rounded them; sums are formed in another order than by the separate calls."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from ..core.backend import backend_of
from ..core.device import device
from ..core.dtype import bfloat16, dtype, float16, float32
from ..core.records import record
from ..core.tensor import contiguous_strides, numel_of
from ..expr.node import Expr, arg, const, replace_arguments, walk
from .conversions import Kernel, new_results
from .fusion import Joining, loop_in
from .loops import Loop, Number, Place, Read, rounded
from .program import Call, Program, Value
from .reductions import FusedReduction, Reduced, reduced
from .row_kernels import column_call, row_call

_KINDS = (float32, bfloat16, float16)
_WIDEST = 8192  # elements of a row that a block sums up without losing digits
_POINTERS, _NODES = 20, 600


class _NoRows(Exception):
    """Raised when the layout of an operand does not fit the rows."""


class Spot(NamedTuple):
    """Position of an operand: buffer, first byte, whether it varies with elements ("e"), rows
    ("r"), columns ("c") or not at all ("o"), and its strides over the dimensions of rows."""

    buffer: int
    start: int
    level: str
    outer: tuple[int, ...]


Operand = tuple["Spot | Number", dtype]


@record
class RowGroup:
    """Formulas over rows of `width` elements; `dims` are the dimensions of rows. arg(k) of the formulas stands for `reads[k]`, arg(-1 - k)
    for `sums[k]` of the row. `results` maps spots to stored values, `columns` are sums over all rows."""

    dims: tuple[int, ...]
    width: int
    device: device
    parts: tuple[Call, ...]
    reads: list[Operand] = []
    sums: list[Expr] = []
    results: dict[Spot, tuple[Expr, dtype]] = {}
    columns: dict[int, tuple[Expr, Value]] = {}  # by buffer

    @property
    def rows(self) -> int:
        return math.prod(self.dims)

    def spots(self) -> list[Spot]:
        return [*(p for p, _ in self.reads if isinstance(p, Spot)), *self.results]

    def split(self, cuts: list[int]) -> RowGroup:
        """Return the group with its dimensions split at the given counts of inner rows."""
        reading: list[Read] = [(Place(p.buffer, p.start, p.outer), float32) for p in self.spots()]
        loop = Loop(self.dims, reading, {}, (), self.device).split(cuts)
        places = [p for p, _ in loop.reads if isinstance(p, Place)]
        moved = iter([Spot(p.buffer, p.start, old.level, p.strides) for old, p in zip(self.spots(), places)])
        reads: list[Operand] = [(p if isinstance(p, Number) else next(moved), d) for p, d in self.reads]
        results = {next(moved): value for value in self.results.values()}
        return RowGroup(loop.sizes, self.width, self.device, self.parts, reads, self.sums, results, self.columns)

    def read(self) -> set[int]:
        return {p.buffer for p, _ in self.reads if isinstance(p, Spot)}

    def written(self) -> set[int]:
        return {p.buffer for p in self.results} | set(self.columns)

    def touches(self) -> set[int]:
        return self.read() | self.written()

    def roots(self) -> tuple[Expr, ...]:
        return (*self.sums, *(e for e, _ in self.results.values()), *(e for e, _ in self.columns.values()))


def fuse_rows(program: Program) -> None:
    """Fuse calls that compute from the same rows."""
    joining = Joining(program, _item, _join_groups)
    calls: list[Call] = []
    for i, slot in enumerate(joining.slots):
        group = slot.loop
        if not isinstance(group, RowGroup) or not _is_worth_it(group):
            alone = (slot.call,) if group is None else group.parts
            calls += [call for call in alone if call is not None]
            continue
        keep = [p for p in group.results if joining.is_shared(p.buffer, i) or p.buffer in group.read()]
        calls += _calls(program, group, keep)
    program.calls = calls


def _is_worth_it(group: RowGroup) -> bool:
    """Return whether one kernel is better than the calls: there are several and rows are summed up, or the only call's own kernel, which
    reads dense operands only, would have to copy one first."""
    if len(group.parts) > 1:
        return bool(group.sums)
    dense = tuple(s * group.width for s in contiguous_strides(group.dims))
    return group.parts[0].op.rows is not None and any(
        p.level == "e" and any(s != t and n > 1 for s, t, n in zip(p.outer, dense, group.dims)) for p in group.spots()
    )


def _calls(program: Program, group: RowGroup, keep: list[Spot]) -> list[Call]:
    """Return the group as a call, followed by the call that adds up its partial sums of columns, if there are any."""
    found = row_call(program, group, keep)
    return [found] if not group.columns else [found, column_call(found, group)]


def _item(call: Call) -> Loop | RowGroup | None:
    """Return a call as a member of a group, on devices that gain by it, else None; loops take the shape of the rows that they join."""
    declared = call.op.rows is not None and (not call.fixed or isinstance(call.function, Kernel))
    try:
        group = _declared(call) if declared else _reduction(call)
    except _NoRows:
        group = None
    found = group if group is not None else loop_in(call)
    return found if found is not None and backend_of(found.device).hides_latency else None


def _declared(call: Call) -> RowGroup | None:
    """Return a call as a group of the formulas in its record, or None."""
    form, found = call.op.rows(**call.op.bind(call.args, call.kwargs)), new_results(call)
    if form is None or found is None or not 2 <= form.width <= _WIDEST or call.changes:
        return None
    like = next(v for v, level in form.operands if level == "e")
    dims = _leading(like.shape, form.width)
    if dims is None or 0 in like.shape:
        return None
    group = RowGroup(dims, form.width, like.device, (call,), sums=list(form.sums))
    for v, level in form.operands:
        group.reads.append((_spot_of(v, level, group), v.dtype))
    for position, v in enumerate(found[0]):
        root, level = form.results[position]
        if level == "c":
            group.columns[v.buffer] = (root, v)
        else:
            group.results[_spot_of(v, level, group)] = (root, v.dtype)
    return group if _is_usable(group) and all(v.is_contiguous for _, v in group.columns.values()) else None


def _leading(shape: Any, width: int) -> tuple[int, ...] | None:
    """Return the dimensions before those that make up a row, or None if no trailing dimensions have its width."""
    inner, at = 1, len(shape)
    while inner < width and at:
        at -= 1
        inner *= shape[at]
    return tuple(shape[:at]) if inner == width else None


def _spot_of(v: Value, level: str, group: RowGroup) -> Spot:
    """Return the position of an operand that varies with elements, rows or columns; raise _NoRows if its layout is another."""
    at = len(group.dims)
    if level == "e":
        whole = tuple(v.shape[:at]) == group.dims and _step(tuple(v.strides[at:]), tuple(v.shape[at:])) == 1
        outer = tuple(v.strides[:at])
    else:
        whole, outer = v.is_contiguous, contiguous_strides(group.dims) if level == "r" else (0,) * at
    if not whole:
        raise _NoRows
    return Spot(v.buffer, v.start, level, outer)


def _is_usable(group: RowGroup) -> bool:
    """Return whether a kernel can be made of a group: all operands are floats, and no element is stored twice."""
    floats = all(isinstance(p, Number) or d in _KINDS for p, d in group.reads) and all(
        d in _KINDS for _, d in group.results.values()
    )
    return floats and not any(
        p.level not in "er" or any(s == 0 and n > 1 for s, n in zip(p.outer, group.dims)) for p in group.results
    )  # fmt: skip


def _reduction(call: Call) -> RowGroup | None:
    """Return a call that sums over each row, or over columns, as a group; None for other calls."""
    found, out = _over_values(call)
    if found is None or found.impl.combine != "sum":
        return None
    v, dims = found.value, sorted(found.dims)
    first = dims[0] if dims else 0
    along, down = dims == list(range(first, len(v.shape))), dims == list(range(len(dims)))
    at = first if along else len(dims)
    width = numel_of(v.shape[at:])
    if along == down or not 2 <= width <= _WIDEST or 0 in v.shape or not out.is_contiguous:
        return None
    compute, acc, _ = found.impl.rule(found.impl, v.dtype, found.requested)
    final = found.impl._final()
    if compute not in _KINDS or acc not in _KINDS or out.dtype not in _KINDS or (down and final is not None):
        return None
    group = RowGroup(tuple(v.shape[:at]), width, v.device, (call,))
    group.reads.append((_spot_of(v, "e", group), v.dtype))
    mapped = found.impl.trace((v.dtype,), compute)
    if down:
        group.columns[out.buffer] = (mapped, out)
    else:
        group.sums.append(mapped)
        value = arg(-1) if final is None else replace_arguments((final,), {0: arg(-1), 1: const(float(width))})[0]
        group.results[Spot(out.buffer, out.start, "r", contiguous_strides(group.dims))] = (value, out.dtype)
    return group if _is_usable(group) and group.rows > 1 else None


def _over_values(call: Call) -> tuple[Reduced | None, Any]:
    """Return a call as a reduction of a stored value, or None, and its result."""
    impl = call.op.impl
    if isinstance(impl, FusedReduction) and len(call.args) == 1 and isinstance(call.args[0], Value):
        whole = tuple(call.args[0].shape) == tuple(impl.shape)
        plain = whole and impl.root is impl.impl.trace(impl.dtypes, impl.impl.rule(impl.impl, impl.dtypes[0], None)[0])
        return (Reduced(call.args[0], impl.impl, impl.dims, None) if plain else None), call.results[0]
    return reduced(call), call.results


def _of_rows(loop: Loop, like: RowGroup) -> RowGroup | None:
    """Return a loop over the elements, or over the rows, of the group `like` as a group; a common operand shows which dimensions are which."""
    count = math.prod(loop.sizes)
    if count not in (like.rows, like.rows * like.width) or loop.device is not like.device:
        return None
    level, width = ("e", like.width) if count > like.rows else ("r", 1)
    places = [*(p for p, _ in loop.reads if isinstance(p, Place)), *loop.results]
    for spot in like.spots():
        if spot.level == level and any((p.buffer, p.start) == spot[:2] for p in places):
            cut = loop.split([width, *spot.outer])
            mine = [*(p for p, _ in cut.reads if isinstance(p, Place)), *cut.results]
            which = next(p for p in mine if (p.buffer, p.start) == spot[:2])
            order = _dimensions(which.strides, cut.sizes, spot.outer, like.dims, width)
            group = None if order is None else _reorder_dims(cut, like, *order)
            if group is not None:
                return group
    return None


def _dimensions(
    strides: tuple[int, ...], sizes: tuple[int, ...], outer: tuple[int, ...], dims: tuple[int, ...], width: int
) -> tuple[list[int], list[int]] | None:
    """Return the dimensions of a loop that are those of a group's rows (-1 for one of size 1), and the others, which are inside rows; None if
    they do not match."""
    left = list(range(len(sizes)))
    found = []
    for n, s in zip(dims, outer):
        k = -1 if n == 1 else next((k for k in left if sizes[k] == n and strides[k] == s), None)
        if k is None:
            return None
        found.append(k)
        left = [d for d in left if d != k]
    inside = _step(tuple(strides[k] for k in left), tuple(sizes[k] for k in left)) == 1 or width == 1
    return (found, left) if inside and math.prod(sizes[k] for k in left) == width else None


def _reorder_dims(loop: Loop, like: RowGroup, order: list[int], inner: list[int]) -> RowGroup | None:
    """Return the loop as a group with the dimensions of `like`, or None."""

    def spot(p: Any) -> Any:
        if not isinstance(p, Place):
            return p
        outer = tuple(0 if k < 0 else p.strides[k] for k in order)
        step = _step(tuple(p.strides[k] for k in inner), tuple(loop.sizes[k] for k in inner))
        if step not in (0, 1):
            raise _NoRows
        level = ("c" if not any(outer) else "e") if step else ("r" if any(outer) else "o")
        return Spot(p.buffer, p.start, level, outer)

    try:
        group = RowGroup(like.dims, like.width, loop.device, loop.parts, [(spot(p), d) for p, d in loop.reads])
        group.results = {spot(p): value for p, value in loop.results.items()}
    except _NoRows:
        return None
    return group if len(group.results) == len(loop.results) and _is_usable(group) else None


def _step(strides: tuple[int, ...], sizes: tuple[int, ...]) -> int | None:
    """Return the stride of several dimensions taken as one; None if they cannot be."""
    walked = [(s, n) for s, n in zip(strides, sizes) if n > 1]
    if not walked or all(s == 0 for s, _ in walked):
        return 0
    step = expected = walked[-1][0]
    for s, n in reversed(walked):
        if s != expected:
            return None
        expected *= n
    return step


def _align_groups(first: RowGroup, second: RowGroup) -> tuple[RowGroup, RowGroup] | None:
    """Return both groups over the same dimensions of rows."""
    if first.dims == second.dims:
        return first, second
    counts = [Loop(g.dims, [], {}, (), g.device).inner_counts() for g in (first, second)]
    cuts = sorted({*counts[0], *counts[1]})
    if first.rows != second.rows or any(big % small for small, big in zip(cuts, cuts[1:])):
        return None
    return first.split(cuts), second.split(cuts)


def _join_groups(first: Any, second: Any, is_used: Callable[[int], bool]) -> RowGroup | None:
    """Return one group that does the work of both in order; None if the result would differ or nothing is gained."""
    if isinstance(first, Loop) and isinstance(second, Loop):
        return None
    if isinstance(first, Loop):
        first = _of_rows(first, second)
    elif isinstance(second, Loop):
        second = _of_rows(second, first)
    pair = None if first is None or second is None or first.width != second.width else _align_groups(first, second)
    if pair is None or not _compatible(*pair):
        return None
    first, second = pair
    both = RowGroup(first.dims, first.width, first.device, (*first.parts, *second.parts), list(first.reads))
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
    """Return whether each row of the second group needs only the first group's results in that row, and both share elements."""
    if first.dims != second.dims or first.device is not second.device:
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
