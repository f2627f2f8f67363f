"""Sums of tensors that are zero but for one part each: if the parts fill the result, they are written to their places, without fills and
additions. The gradient of a tensor that views took apart is such a sum.

The operators' records declare which of them write arguments into parts of zeros, and where (`Op.places`)."""

from __future__ import annotations

from typing import NamedTuple

from ..core.records import replace
from ..core.storage import UntypedStorage
from ..core.tensor import numel_of
from ..expr.node import arg, const
from ..kernels import geometry
from .fusion import fused_call
from .loops import Loop, Place, loop_of
from .patterns import Matches
from .program import Call, Program, Value

Box = tuple[tuple[int, int], ...]  # from, to, in each dimension


class Part(NamedTuple):
    """A value written to a part of a dense tensor; `target` is a view of that tensor's memory."""

    source: Value
    target: Value
    box: Box
    call: Call
    position: int


class Sum(NamedTuple):
    """A tensor that is zero outside these parts, which do not overlap, and the positions of the calls that made it."""

    parts: list[Part]
    gone: list[int]


def place_parts(program: Program) -> None:
    """Write the parts of sums of disjoint parts directly to their places."""
    matches = Matches(program)
    known: dict[int, Sum] = {}  # by buffer
    for i, call in matches:
        if call.op.places is not None and not call.rewritten:
            known.update(_sum_of_parts(call, i))
            continue
        found = _added_sums(call, known, matches)
        if found is None:
            continue
        both = _join_sums(known[found[0]], known[found[1]], call, i)
        if both is None:
            continue
        target = call.results
        if sum(numel_of(p.target.shape) for p in both.parts) < numel_of(target.shape):
            known[target.buffer] = both
        elif all(matches.unchanged({p.source.buffer}, p.position, i) for p in both.parts):
            matches.replace(i, _copy_calls(both, call), [k for k in both.gone if k != i])
    matches.finish()


def _sum_of_parts(call: Call, i: int) -> dict[int, Sum]:
    out = call.results
    if not isinstance(out, Value) or len(call.makes) != 1 or not out.is_whole or call.changes:
        return {}
    parts = []
    for source, place in call.op.places(**call.op.bind(call.args, call.kwargs)):
        there = place(out.over(UntypedStorage(0, out.device)))
        start = there._offset * out.dtype.itemsize
        target = Value(out.buffer, start, there.shape, there._strides, out.dtype, out.device)
        box = _box(target, out)
        if box is None or source.dtype is not out.dtype or source.shape != target.shape or 0 in source.shape:
            return {}
        parts.append(Part(source, target, box, call, i))
    return {out.buffer: Sum(parts, [i])}


def _box(part: Value, whole: Value) -> Box | None:
    """Return the part as a range in each dimension of the whole, or None if it is not of that form."""
    sizes = {s: n for n, s in zip(part.shape, part.strides) if n > 1}
    at, rest, box = part.start // part.dtype.itemsize, dict(sizes), []
    for n, s in zip(whole.shape, whole.strides):
        first, at = divmod(at, s) if n > 1 else (0, at)
        size = rest.pop(s, 1) if n > 1 else 1
        if first + size > n:
            return None
        box.append((first, first + size))
    plain = not rest and len(sizes) == sum(n > 1 for n in part.shape)
    return tuple(box) if plain else None


def _added_sums(call: Call, known: dict[int, Sum], matches: Matches) -> tuple[int, int] | None:
    """Return the buffers of two sums of parts that a call adds up, if nothing else reads them; else None."""
    loop = None if call.rewritten or len(call.makes) != 1 or call.changes else loop_of(call)
    if loop is None or len(loop.reads) != 2 or not isinstance(call.results, Value) or not call.results.is_whole:
        return None
    (place, (root, d)), (first, second) = next(iter(loop.results.items())), loop.reads
    both = [
        p.buffer
        for p, t in (first, second)
        if isinstance(p, Place) and p.strides == place.strides and t is d and not p.start
    ]
    if (
        root.op != "add"
        or set(root.args) != {arg(0), arg(1)}
        or len(set(both)) != 2
        or any(b not in known for b in both)
    ):
        return None
    if any(v.shape != call.results.shape for v in call.arguments()) or any(matches.only_pair(b) is None for b in both):
        return None
    return both[0], both[1]


def _join_sums(a: Sum, b: Sum, call: Call, i: int) -> Sum | None:
    """Return both sums as one, over the memory of the call's result; None if parts overlap."""
    if any(all(b < end and start < e for (b, e), (start, end) in zip(p.box, q.box)) for p in a.parts for q in b.parts):
        return None
    out = call.results
    parts = [p._replace(target=replace(p.target, buffer=out.buffer)) for p in (*a.parts, *b.parts)]
    return Sum(parts, [*a.gone, *b.gone, i])


def _copy_calls(found: Sum, call: Call) -> list[Call]:
    """Return a copying call for each part. They add zero as the sum did, so that no negative zero remains."""
    calls: list[Call] = []
    for k, p in enumerate(found.parts):
        given = [p.target.strides, p.source.strides]
        _, sizes, strides, _ = geometry.plan(p.target.shape, given)
        read = Place(p.source.buffer, p.source.start, tuple(strides[1]))
        write = Place(p.target.buffer, p.target.start, tuple(strides[0]))
        root = arg(0) + const(0)
        stands_for = (p.call, call) if k + 1 == len(found.parts) else (p.call,)
        loop = Loop(
            tuple(sizes), [(read, p.source.dtype)], {write: (root, p.target.dtype)}, stands_for, p.target.device
        )
        copy = fused_call(loop, [write])
        copy.makes = [] if k else [p.target.buffer]
        copy.changes = frozenset({p.target.buffer} if k else ())
        calls.append(copy)
    return calls
