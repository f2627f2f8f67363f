"""Fusion: calls that are formulas over the same elements become one, so that values stay in registers between them.

Which calls are formulas their records say (see `loops`). A value that somebody else reads is stored as well; what nobody reads is not. Where
memory would have rounded a value, the fused formula rounds it too, so that results are those of the calls one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.tensor import Tensor
from ..expr.node import Expr, arg, replace_arguments, walk
from ..expr.simplify import simplify
from ..ops.machinery.plan import Layout, kernel
from ..ops.machinery.record import Op
from .loops import Loop, Place, Read, aligned, as_value, loop_of, rounded
from .program import NO_MEMORY, Call, Program

_BACK = 48  # how many calls a loop looks back for one that it can join
_POINTERS = 16  # of a fused loop
_NODES = 400  # of its formulas


def fuse(program: Program) -> None:
    """Join formulas over the same elements."""
    slots = _joined_slots(program)
    users: dict[int, set[int]] = {}
    for i, slot in enumerate(slots):
        for b in slot.touches():
            users.setdefault(b, set()).add(i)
    lasting = program.lasting()
    calls: list[Call] = []
    for i, slot in enumerate(slots):
        if isinstance(slot, Call):
            calls.append(slot)
        elif len(slot.parts) == 1:
            calls += slot.parts
        else:
            keep = [p for p in slot.results if p.buffer in lasting or users[p.buffer] != {i} or _read_before(slot, p)]
            if keep:
                calls.append(fused_call(slot, keep))
    program.calls = calls


def _joined_slots(program: Program) -> list[Any]:
    """The calls in order, loops that could be joined in the place of theirs."""
    slots: list[Any] = []
    for call in program.calls:
        loop = loop_of(call)
        if loop is None:
            slots.append(call)
            continue
        slots.append(loop)
        _join_last(slots)
    return slots


def _join_last(slots: list[Any]) -> None:
    """Join the last loop with earlier ones, for as long as there is one: it moves up to that one, or that one down to it."""
    place = len(slots) - 1
    loop = slots.pop()
    up, down = True, True  # whether the way is free
    between: list[Any] = []
    for position in range(place - 1, max(-1, place - 1 - _BACK), -1):
        before = slots[position]
        both = joined(before, loop) if isinstance(before, Loop) else None
        down = not any(_conflict(s, before) for s in between) if both is not None else True
        if both is not None and (up or down):
            del slots[position]
            at = position if up else len(slots)
            slots.insert(at, both)
            if at == len(slots) - 1:
                _join_last(slots)
            return
        up = up and not _conflict(before, loop)
        between.append(before)
    slots.insert(place, loop)


def _conflict(a: Any, b: Any) -> bool:
    """Whether two slots must stay in their order."""
    written, touched = (set(a.writes()), a.touches()) if isinstance(a, Call) else (a.written(), a.touches())
    mine, both = (b.written(), b.touches()) if isinstance(b, Loop) else (b.writes(), b.touches())
    return bool(mine & touched) or bool(written & both)


def _read_before(loop: Loop, p: Place) -> bool:
    """Whether a loop reads what was in the memory of a result before: it is somebody else's, then."""
    return any(isinstance(q, Place) and q.buffer == p.buffer for q, _ in loop.reads)


def joined(first: Loop, second: Loop) -> Loop | None:
    """One loop that does what both do, one after the other; None where that is not the same, or not worth it."""
    if first.device is not second.device:
        return None
    same = aligned(first, second)
    if same is None:
        return None
    first, second = same
    if not _compatible(first, second):
        return None
    reads = list(first.reads)
    index: dict[Any, int] = {}
    for k, read in enumerate(reads):
        index.setdefault(_key(read), k)
    values: dict[int, Expr] = {}
    for k, read in enumerate(second.reads):
        p, d = read
        made = first.results.get(p) if isinstance(p, Place) else None
        if made is not None:
            if made[1] is not d:
                return None
            values[k] = rounded(*made)
            continue
        key = _key(read)
        if key not in index:
            index[key] = len(reads)
            reads.append(read)
        values[k] = arg(index[key])
    replaced = replace_arguments(tuple(root for root, _ in second.results.values()), values)
    results = dict(first.results)
    for (p, (_, d)), root in zip(second.results.items(), replaced):
        results.pop(p, None)
        results[p] = (root, d)
    pointers = sum(isinstance(p, Place) for p, _ in reads) + len(results)
    if pointers > _POINTERS or sum(1 for _ in walk(tuple(root for root, _ in results.values()))) > _NODES:
        return None
    return Loop(first.sizes, reads, results, (*first.parts, *second.parts), first.device)


def _key(read: Read) -> Any:
    p, d = read
    return (p, d) if isinstance(p, Place) else (p.kind, repr(p.value), d)


def _compatible(first: Loop, second: Loop) -> bool:
    """Whether every element of the second loop needs only what the first has done at the same element, and something is gained."""
    written = first.written()
    for p, _ in second.reads:
        if isinstance(p, Place) and p.buffer in written and p not in first.results:
            return False
    for p, (_, d) in second.results.items():
        if p.buffer in written and (p not in first.results or first.results[p][1] is not d):
            return False
        if any(isinstance(q, Place) and q.buffer == p.buffer and q != p for q, _ in first.reads):
            return False
    sizes = second.sizes
    for p in (*first.results, *second.results):
        if any(s == 0 and n > 1 for s, n in zip(p.strides, sizes)):
            return False  # one element that many write
    touched = {p for p, _ in second.reads if isinstance(p, Place)} | set(second.results)
    mine = {p for p, _ in first.reads if isinstance(p, Place)} | set(first.results)
    return any(p in mine and any(p.strides) for p in touched)


class FusedMap:
    """A fused formula: `run(outs, *inputs)` computes it into given memory. Its kernel is made when it first runs."""

    def __init__(self, roots: tuple[Expr, ...], reads: list[Any], loop: Loop, keep: list[Place]):
        self.roots, self.reads, self.loop, self.keep = roots, reads, loop, keep
        self.planned: tuple[Any, Any] | None = None

    def run(self, outs: list[Tensor], *inputs: Any) -> None:
        if self.planned is None:
            self.planned = self._plan(outs)
        fn, first = self.planned
        fn(first, *(t._storage.ptr + t._offset * t.dtype.itemsize for t in outs), *map(_passed, inputs))

    def _plan(self, outs: list[Tensor]) -> tuple[Any, Any]:
        layouts = []
        for t in outs:
            layout = Layout()
            layout.set_layout(t.shape, t._strides, t.dtype, t.device)
            layouts.append(layout)
        return kernel(self.roots, layouts, self.reads)


def _passed(x: Any) -> Any:
    return x._storage.ptr + x._offset * x.dtype.itemsize if isinstance(x, Tensor) else x


def fused_call(loop: Loop, keep: list[Place]) -> Call:
    """A loop as a call that stores these of its results."""
    roots = tuple(loop.results[p][0] for p in keep)
    used = sorted({x.args[0] for x in walk(roots) if x.op == "arg"})
    roots = tuple(simplify(r, True) for r in replace_arguments(roots, {k: arg(i) for i, k in enumerate(used)}))
    reads = [loop.reads[k] for k in used]
    results = [as_value(p, loop.sizes, loop.results[p][1], loop.device) for p in keep]
    args = tuple(as_value(p, loop.sizes, d, loop.device) if isinstance(p, Place) else p.value for p, d in reads)
    kinds = [(d, p.strides if isinstance(p, Place) else None) for p, d in reads]
    impl = FusedMap(
        roots,
        kinds,
        Loop(
            loop.sizes, reads, {p: (root, loop.results[p][1]) for p, root in zip(keep, roots)}, loop.parts, loop.device
        ),
        keep,
    )
    op = _record(loop.parts, impl.run, impl)
    new = {b for part in loop.parts for b in part.makes}
    stored = {p.buffer for p in keep}
    line = loop.parts[0].line
    return Call(op, impl.run, args, {}, results, sorted(stored & new), frozenset(stored - new), line, loop.parts)


def _record(parts: tuple[Call, ...], function: Callable, impl: Any) -> Op:
    """The record of a fused call: a pointwise operator without a name of its own."""
    names = list(dict.fromkeys(part.op.name for part in parts))
    return Op("+".join(names), "pointwise", function, (), differentiable=False, impl=impl, writes=("outs",))


def drop_dead(program: Program) -> None:
    """Leave out calls whose results nobody reads, and views, which do nothing."""
    needed = program.lasting()
    kept: list[Call] = []
    for call in reversed(program.calls):
        does = call.makes or call.changes
        alive = call.op.draws or bool((set(call.makes) | call.changes) & needed)
        if not does and not call.op.draws:
            continue
        if not alive:
            continue
        needed |= call.touches() - {NO_MEMORY}
        kept.append(call)
    program.calls = kept[::-1]


__all__ = ["FusedMap", "drop_dead", "fuse", "fused_call", "joined"]
