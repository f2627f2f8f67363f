"""Fusion: calls that are formulas over the same elements become one call, so that values stay in registers between them.

The operators' records declare which calls are formulas (see `loops`). A value that another call reads is stored as well; others are not.
Where storing would have rounded a value, the fused formula rounds it too, so that results equal those of the separate calls."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..core.backend import backend_of
from ..core.raw_memory import first_address
from ..core.records import replace
from ..core.tensor import Tensor
from ..expr.node import Expr, arg, arguments, replace_arguments, walk
from ..expr.simplify import simplify
from ..ops.machinery.plan import Layout, kernel
from ..ops.machinery.record import Op
from .loops import LONG, Loop, Place, Read, aligned, as_value, loop_of, rounded, turned
from .program import NO_MEMORY, Call, Program

_MAX_DISTANCE = 48  # how many calls a loop looks back for one that it can join
_MAX_POINTERS = 16  # of a fused loop
_MAX_NODES = 400  # of its formulas


def fuse(program: Program) -> None:
    """Fuse formulas over the same elements."""
    joining = Joining(program, loop_in, joined)
    calls: list[Call] = []
    for i, slot in enumerate(joining.slots):
        loop = slot.loop
        if loop is None or len(loop.parts) == 1:
            calls.append(slot.call if loop is None else loop.parts[0])  # type: ignore[arg-type]
            continue
        keep = [p for p in loop.results if joining.is_shared(p.buffer, i) or _reads_before_writing(loop, p)]
        if keep:
            calls.append(fused_call(loop, keep))
    program.calls = calls


class _Slot:
    """A call, or its form that others may join (such as a `Loop`), with the buffers that it uses."""

    __slots__ = ("call", "loop", "written", "touched", "stays")

    def __init__(self, call: Call | None, loop: Any):
        self.call, self.loop = call, loop
        self.stays = call is not None and call.stays
        if loop is not None:
            self.written, self.touched = loop.written(), loop.touches()
        elif call is not None:
            self.written, self.touched = call.writes(), call.touches()

    def before(self, other: _Slot) -> bool:
        """Return whether this slot must stay before another: one of them is fixed, or writes what the other touches."""
        if self.stays or other.stays:
            return True
        return not other.written.isdisjoint(self.touched) or not self.written.isdisjoint(other.touched)


class Joining:
    """The calls of a program in order, with loops joined where possible: `seen_as(call)` returns a call's loop or None, `joined(first,
    second, is_used)` one loop for both or None."""

    def __init__(self, program: Program, seen_as: Callable[[Call], Any], joined: Callable[..., Any]):
        self.joined = joined
        self.last = program.last_uses()
        self.lasting = program.lasting()
        self.slots: list[_Slot] = []
        self.now = 0  # the number of the call that is looked at
        for call in program.calls:
            loop = seen_as(call)
            self.slots.append(_Slot(call, loop))
            if loop is not None:
                self._join_last()
            self.now += 1

    def _is_used(self, buffer: int) -> bool:
        """Return whether a buffer is used after the call under examination."""
        return buffer in self.lasting or self.last.get(buffer, -1) > self.now

    def is_shared(self, buffer: int, number: int) -> bool:
        """Return whether another slot than `number` uses a buffer, after all loops are joined."""
        return buffer in self.lasting or self._users[buffer] != {number}

    @functools.cached_property
    def _users(self) -> dict[int, set[int]]:
        """Return the numbers of the slots that touch each buffer."""
        found: dict[int, set[int]] = {}
        for i, slot in enumerate(self.slots):
            for b in slot.touched:
                found.setdefault(b, set()).add(i)
        return found

    def _join_last(self) -> None:
        """Join the last loop with earlier ones as long as possible: it moves up to the earlier one, or that one down to it."""
        slots = self.slots
        place = len(slots) - 1
        last = slots.pop()
        up = True  # whether the way is free
        between: list[_Slot] = []
        for position in range(place - 1, max(-1, place - 1 - _MAX_DISTANCE), -1):
            before = slots[position]
            both = None if before.loop is None else self.joined(before.loop, last.loop, self._is_used)
            if both is not None and (up or not any(s.before(before) for s in between)):
                del slots[position]
                at = position if up else len(slots)
                slots.insert(at, _Slot(None, both))
                if at == len(slots) - 1:
                    self._join_last()
                return
            up = up and not before.before(last)
            between.append(before)
        slots.insert(place, last)


def _reads_before_writing(loop: Loop, p: Place) -> bool:
    """Return whether a loop reads a result's memory before writing it, so that the memory belongs to an earlier value."""
    return any(isinstance(q, Place) and q.buffer == p.buffer for q, _ in loop.reads)


def loop_in(call: Call) -> Loop | None:
    """Return a call as a loop, also if it is a fused one; None if it is no loop."""
    if isinstance(call.op.impl, FusedMap):
        return replace(call.op.impl.loop, parts=(call,))
    return loop_of(call)


def joined(first: Loop, second: Loop, is_used: Callable[[int], bool] = lambda b: True) -> Loop | None:
    """Return one loop that does the work of both in order; None if the result would differ or nothing is gained. `is_used` tells whether
    another call uses a buffer, which is then stored."""
    if first.device is not second.device:
        return None
    same = aligned(first, second)
    if same is None or not _share_places(*same):
        same = turned(first, second)
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
    if not _fits(first, second, reads, results, is_used):
        return None
    return Loop(first.sizes, reads, results, (*first.parts, *second.parts), first.device)


def are_apart(p: Place, q: Place, sizes: tuple[int, ...], itemsize: int) -> bool:
    """Return whether two operands with the same strides have no element in common: one is in the gaps of the other."""
    between, extent, room = abs(p.start - q.start) // itemsize, 0, None
    for s, n in sorted((s, n) for s, n in zip(p.strides, sizes) if n > 1):
        if s > between:
            room = s
            break
        extent += (n - 1) * s
    return p.strides == q.strides and extent < between and (room is None or between + extent < room)


def _share_places(first: Loop, second: Loop) -> bool:
    """Return whether two loops walk over some operand with the same strides."""
    mine = set(first.places())
    return any(p in mine and any(p.strides) for p in second.places())


def _fits(first: Loop, second: Loop, reads: list[Read], results: Any, is_used: Callable[[int], bool]) -> bool:
    """Return whether the joined loop stays within the device's limits on pointers and operations."""
    pointers = sum(isinstance(p, Place) for p, _ in reads) + sum(is_used(p.buffer) for p in results)
    if pointers > _MAX_POINTERS:
        return False
    (nodes, long), *each = (
        _lengths(tuple(root for root, _ in r.values())) for r in (results, first.results, second.results)
    )
    return nodes <= _MAX_NODES and (backend_of(first.device).hides_latency or long <= max(1, *(n for _, n in each)))


@functools.cache
def _lengths(roots: tuple[Expr, ...]) -> tuple[int, int]:
    """Return how many operations formulas have, and how many of these are functions of many instructions."""
    nodes = [x.op for x in walk(roots)]
    return len(nodes), sum(op in LONG for op in nodes)


def _key(read: Read) -> Any:
    p, d = read
    return (p, d) if isinstance(p, Place) else (p.kind, repr(p.value), d)


def _compatible(first: Loop, second: Loop) -> bool:
    """Return whether each element of the second loop needs only the first loop's work at that element, and joining them gains something."""
    written = first.written()
    for p, _ in second.reads:
        if isinstance(p, Place) and p.buffer in written and p not in first.results:
            return False
    for p, (_, d) in second.results.items():
        if p in first.results:
            if first.results[p][1] is not d:
                return False
        elif not all(are_apart(p, q, second.sizes, d.itemsize) for q in first.results if q.buffer == p.buffer):
            return False
        if any(isinstance(q, Place) and q.buffer == p.buffer and q != p for q, _ in first.reads):
            return False
    sizes = second.sizes
    for p in (*first.results, *second.results):
        if any(s == 0 and n > 1 for s, n in zip(p.strides, sizes)):
            return False  # one element that many write
    return _share_places(first, second)


class FusedMap:
    """A fused formula: `run(outs, *inputs)` computes it into given memory. Its kernel is compiled when it first runs."""

    def __init__(self, roots: tuple[Expr, ...], reads: list[Any], loop: Loop, keep: list[Place]):
        self.roots, self.reads, self.loop, self.keep = roots, reads, loop, keep
        self.planned: tuple[Any, Any] | None = None

    def run(self, outs: list[Tensor], *inputs: Any) -> None:
        if self.planned is None:
            self.planned = self._plan(outs)
        fn, first = self.planned
        fn(first, *map(passed, outs), *map(passed, inputs))

    def _plan(self, outs: list[Tensor]) -> tuple[Any, Any]:
        layouts = []
        for t in outs:
            layout = Layout()
            layout.set_layout(t.shape, t._strides, t.dtype, t.device)
            layouts.append(layout)
        return kernel(self.roots, layouts, self.reads)


def passed(x: Any) -> Any:
    """Return the form in which a native function gets an argument: the address of a tensor, or the number itself."""
    return first_address(x) if isinstance(x, Tensor) else x


def fused_call(loop: Loop, keep: list[Place]) -> Call:
    """Return a loop as a call that stores the results `keep`."""
    roots = tuple(loop.results[p][0] for p in keep)
    used = sorted(arguments(roots))
    roots = tuple(simplify(r, True) for r in replace_arguments(roots, {k: arg(i) for i, k in enumerate(used)}))
    reads = [loop.reads[k] for k in used]
    results = [as_value(p, loop.sizes, loop.results[p][1], loop.device) for p in keep]
    args = tuple([as_value(p, loop.sizes, d, loop.device) if isinstance(p, Place) else p.value for p, d in reads])
    kinds = [(d, p.strides if isinstance(p, Place) else None) for p, d in reads]
    impl = FusedMap(
        roots,
        kinds,
        Loop(
            loop.sizes, reads, {p: (root, loop.results[p][1]) for p, root in zip(keep, roots)}, loop.parts, loop.device
        ),
        keep,
    )
    parts = tuple([p for part in loop.parts for p in (part.parts or (part,))])
    op = _record(parts, impl.run, impl)
    new = {b for part in loop.parts for b in part.makes}
    stored = {p.buffer for p in keep}
    return Call(op, impl.run, args, {}, results, sorted(stored & new), frozenset(stored - new), parts[0].line, parts)


def _record(parts: tuple[Call, ...], function: Callable, impl: Any) -> Op:
    """Return the record of a fused call: a pointwise operator that has no public name."""
    names = list(dict.fromkeys(part.name for part in parts))
    return Op("+".join(names), "pointwise", function, (), differentiable=False, impl=impl, writes=("outs",))


def drop_dead(program: Program) -> None:
    """Drop calls whose results are not read, and views, which do nothing."""
    needed = program.lasting()
    kept: list[Call] = []
    for call in reversed(program.calls):
        alive = call.stays or call.op.draws or not needed.isdisjoint(call.writes())
        if not alive:
            continue
        needed |= call.touches() - {NO_MEMORY}
        kept.append(call)
    program.calls = kept[::-1]
