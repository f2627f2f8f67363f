"""Many small tensors in one launch: calls of the same formula on different dense tensors become one call on lists, and reductions of them to
one number each, such as norms of gradients, two launches (sums are formed in another order).

Gradient clipping, the norms before it, autocast's copies of weights, conversions of gradients: a launch costs more than this work. Calls move
up to the first of their kind, or down to the last, if nothing in between touches what they write or writes what they read."""

from __future__ import annotations

import math
from typing import Any

from ..core.backend import backend_of
from ..core.device import device
from ..core.dtype import dtype, float64
from ..core.raw_memory import first_address
from ..core.records import record
from ..core.tensor import Tensor, numel_of
from ..expr.node import Expr, arg, replace_arguments
from ..kernels.reduction import ARG_COMBINES
from ..kernels.reduction_parts import Reduction as Parts
from ..ops.machinery.plan import compiles
from ..ops.machinery.record import Op
from .fusion import FusedMap, fused_call
from .loops import Loop, Number, Place, loop_of
from .program import Call, Program, Value
from .reductions import FusedReduction, reduced

_MAX_ELEMENTS = 1 << 22  # elements of a tensor for which a launch of its own is as good
_MIN_MEMBERS = 2


@record
class Member:
    """A call that may become part of a list call: its tensors, stored ones first, single elements last, and the formulas over them."""

    call: Call
    alone: Call  # the same, computing into given memory
    key: tuple
    roots: tuple[Expr, ...]
    places: list[tuple[Place, dtype]]
    stored: int
    singles: int
    numbers: tuple[Any, ...]
    where: device


@record
class _Group:
    position: int
    members: list[Any] = []  # all of one kind


def gather(program: Program) -> None:
    """Collect calls of the same kind into one call on lists."""
    members: list[Any] = [member_of(call) or reduced_member(call) for call in program.calls]
    if sum(m is not None for m in members) < _MIN_MEMBERS:
        return
    for backwards in (False, True):
        calls = program.calls[::-1] if backwards else program.calls
        rows = members[::-1] if backwards else members
        groups = _find_groups(calls, rows)
        taken = {id(m.call) for g in groups for m in g.members}
        at = {g.position: g for g in groups}
        now: list[Call] = []
        left: list[Any] = []
        for i, call in enumerate(calls):
            if i in at:
                together = at[i].members[:: -1 if backwards else 1]
                now.append((list_call if isinstance(together[0], Member) else reduced_list)(together))
                left.append(None)
            elif id(call) not in taken:
                now.append(call)
                left.append(rows[i])
        program.calls, members = (now[::-1], left[::-1]) if backwards else (now, left)


def _find_groups(calls: list[Call], members: list[Any]) -> list[_Group]:
    """Return groups of calls that can all move to the position of the first of them, in the given order."""
    touched: dict[int, int] = {}
    written: dict[int, int] = {}
    open_groups: dict[tuple, _Group] = {}
    groups: list[_Group] = []
    for i, (call, member) in enumerate(zip(calls, members)):
        place = i
        reads, writes = call.reads() - call.writes(), call.writes()
        if member is not None:
            group = open_groups.get(member.key)
            if group is not None and _can_move_to(group.position, reads, writes, touched, written):
                group.members.append(member)
                place = group.position
            else:
                group = open_groups[member.key] = _Group(i, [member])
                groups.append(group)
        for b in call.touches():
            touched[b] = max(place, touched.get(b, -1))
        for b in writes:
            written[b] = max(place, written.get(b, -1))
    return [g for g in groups if len(g.members) >= _MIN_MEMBERS]


def _can_move_to(
    position: int, reads: set[int], writes: set[int], touched: dict[int, int], written: dict[int, int]
) -> bool:
    """Return whether a call with these reads and writes can move to a position: no later call touches what it needs."""
    free = all(written.get(b, -1) < position for b in reads)
    return free and all(touched.get(b, -1) < position for b in writes)


def member_of(call: Call) -> Member | None:
    """Return a call as a member of a list call; None for calls that are no formulas over dense tensors, or over large ones."""
    loop = None if isinstance(call.op.impl, FusedMap) else loop_of(call)
    alone = call if loop is None else fused_call(loop, list(loop.results))
    if not isinstance(alone.op.impl, FusedMap):
        return None
    loop, keep = alone.op.impl.loop, alone.op.impl.keep
    if len(loop.sizes) != 1 or loop.sizes[0] > _MAX_ELEMENTS:
        return None
    if any(p.strides != (1,) for p in keep) or not _is_even(loop):
        return None
    places: dict[tuple[Place, dtype], int] = {}
    for p in keep:
        places.setdefault((p, loop.results[p][1]), len(places))
    dense = [(p, d) for p, d in loop.reads if isinstance(p, Place) and p.strides == (1,)]
    single = [(p, d) for p, d in loop.reads if isinstance(p, Place) and p.strides == (0,)]
    for one in (*dense, *single):
        places.setdefault(one, len(places))
    numbers = [(x, d) for x, d in loop.reads if isinstance(x, Number)]
    values = {
        k: arg(places[x, d] if isinstance(x, Place) else len(places) + numbers.index((x, d)))
        for k, (x, d) in enumerate(loop.reads)
    }
    roots = replace_arguments(tuple(loop.results[p][0] for p in keep), values)
    singles = sum(p.strides == (0,) for p, _ in places)
    passed = tuple(float(x.value) for x, _ in numbers)
    key = (tuple(map(id, roots)), tuple(d for _, d in places), len(keep), singles, passed, loop.device)
    return Member(call, alone, key, roots, list(places), len(keep), singles, passed, loop.device)


def _is_even(loop: Loop) -> bool:
    """Return whether a list kernel takes a loop's operands: contiguous rows or single elements, and finite floats."""
    for x, d in loop.reads:
        if isinstance(x, Place):
            if x.strides not in ((0,), (1,)):
                return False
        elif d is not float64 or type(x.value) not in (int, float) or not math.isfinite(x.value):
            return False
    return True


def list_call(members: list[Member]) -> Call:
    """Return one call of a list kernel that does the work of all members."""
    single = [m.alone for m in members]
    impl = FusedList(members[0], [(c.op.impl, len(c.results), len(c.args)) for c in single])
    parts = tuple(part for m in members for part in (m.call.parts or (m.call,)))
    op = Op(f"{members[0].call.op.name} of a list", "pointwise", impl.run, (), differentiable=False, impl=impl, writes=("outs",))  # fmt: skip
    return Call(
        op, impl.run, tuple(a for c in single for a in c.args), {}, [v for c in single for v in c.results],
        sorted(b for c in single for b in c.makes), frozenset(b for c in single for b in c.changes),
        members[0].call.line, parts,
    )  # fmt: skip


class FusedList:
    """Formula over many tensors, in one launch where the device supports it: `run(outs, *inputs)`, each member's in order."""

    def __init__(self, like: Member, members: list[tuple[FusedMap, int, int]]):
        self.like, self.members = like, members
        self.compiled: Any = None
        self.asked = False

    def run(self, outs: list[Tensor], *inputs: Any) -> None:
        if not self.asked:
            m = self.like
            dtypes = tuple(d for _, d in m.places)
            numbers = (float64,) * len(m.numbers)
            self.compiled = backend_of(m.where).compile_lists(
                m.roots, dtypes, tuple(range(m.stored)), numbers, m.where, m.singles
            )
            self.asked = True
        given, made, rows = iter(inputs), iter(outs), []
        for impl, stored, read in self.members:
            results, operands = [next(made) for _ in range(stored)], [next(given) for _ in range(read)]
            if self.compiled is None:
                impl.run(results, *operands)
            else:
                rows.append(_row(results, operands))
        if self.compiled is not None:
            self.compiled(rows, self.like.numbers)


def _row(results: list[Tensor], operands: list[Any]) -> tuple[int, ...]:
    """Return the addresses of a member's tensors, in the order of its formula, and their number of elements."""
    tensors = [x for x in operands if isinstance(x, Tensor)]
    size = numel_of(results[0].shape)
    dense = [t for t in tensors if t._strides == (1,)]
    single = [t for t in tensors if t._strides == (0,)]
    found = dict.fromkeys((first_address(t), t.dtype, t._strides) for t in (*results, *dense, *single))
    return (*(place for place, _, _ in found), size)


@record
class ReducedMember:
    """A reduction of a dense value to one number that may become part of a list call."""

    call: Call
    value: Value
    result: Value
    fused: FusedReduction

    @property
    def key(self) -> tuple:
        f = self.fused
        return "reduced", id(f.impl), id(f.root), f.dtypes, f.results, f.where


def reduced_member(call: Call) -> ReducedMember | None:
    """Return a call as a member of a list of reductions; None for other calls, and for reductions to more than one number."""
    fused, found = call.op.impl, reduced(call)
    if isinstance(fused, FusedReduction) and len(call.args) == 1:
        (value,), (result,) = call.args, call.results
    elif found is not None and found.value.is_contiguous and numel_of(found.value.shape):
        value, impl, result = found.value, found.impl, call.results
        compute, acc, out = impl.rule(impl, value.dtype, found.requested)
        known = compiles(value.device, value.dtype, compute, acc) and out is result.dtype
        if not known or any(d.is_complex for d in (value.dtype, compute, acc, out)):
            return None
        root, where = impl.trace((value.dtype,), compute), value.device
        fused = FusedReduction(root, impl, (value.dtype,), (acc, out), value.shape, found.dims, ["e"], where)
    else:
        return None
    whole = fused.how == ["e"] and len(fused.dims) == len(fused.shape) and fused.impl.combine not in ARG_COMBINES
    return ReducedMember(call, value, result, fused) if whole and fused.results[0].is_floating_point else None


def reduced_list(members: list[ReducedMember]) -> Call:
    """Return one call that does the reductions of all members."""
    impl, first = FusedReductions([m.fused for m in members]), members[0].call
    name = f"{first.op.name} of a list"
    op = Op(name, "reduction", impl.run, (), differentiable=False, impl=impl, writes=("outs",))
    results, values = [m.result for m in members], tuple(m.value for m in members)
    parts = tuple(part for m in members for part in (m.call.parts or (m.call,)))
    makes = sorted(v.buffer for v in results)
    return Call(op, impl.run, values, {}, results, makes, frozenset(), first.line, parts)


class FusedReductions:
    """Reductions of many tensors: `run(outs, *inputs)`. On devices without a kernel for lists they run one by one."""

    def __init__(self, members: list[FusedReduction]):
        self.members = members
        self.compiled: Any = None
        self.asked = False

    def run(self, outs: list[Tensor], *inputs: Tensor) -> None:
        if not self.asked:
            f, self.asked = self.members[0], True
            parts = Parts(f.root, f.impl.combine, f.impl._final(), f.dtypes, f.results[1], f.results[0], 0, 1, "c")
            self.compiled = backend_of(f.where).compile_reductions(parts, f.where)
        if self.compiled is not None:
            self.compiled([(t.data_ptr(), out.data_ptr(), numel_of(t.shape)) for t, out in zip(inputs, outs)])
            return
        for member, t, out in zip(self.members, inputs, outs):
            member.run([out], t)
