"""Results stored directly at the destination of a later copy, as gradients of queries, keys and values that become one matrix.

An operator's record declares which results its kernel can store with any strides (`Op.strided`)."""

from __future__ import annotations

from ..core.records import replace
from ..core.tensor import numel_of
from ..expr.node import arg
from .conversions import Kernel, new_results
from .fusion import loop_in
from .loops import Loop, Place
from .patterns import Matches
from .program import Call, Program, Value


def place(program: Program) -> None:
    """Drop copies of results that are read nowhere else: their kernels store them at the destination."""
    matches = Matches(program)
    for i, call in matches:
        found = None if call.fixed or not call.op.strided else new_results(call)
        if found is None:
            continue
        outs, several = found
        gone: list[int] = []
        for at in call.op.strided:
            gone += _store_at_destination(matches, outs, at, i, gone)
        if gone:
            kernel = Kernel(call.op, outs[0].device, several)
            parts = (call, *(p for k in gone for p in (program.calls[k].parts or (program.calls[k],))))
            own = {b for each in (call, *(program.calls[k] for k in gone)) for b in each.makes}
            stored = {v.buffer for v in outs}
            args = tuple(call.op.bind(call.args, call.kwargs).values())
            changes = call.changes | (stored - own)
            now = Call(call.op, kernel, args, {}, outs, sorted(stored & own), changes, call.line, parts)
            matches.exchange(i, now, gone)
    matches.finish()


def _store_at_destination(matches: Matches, outs: list[Value], at: int, i: int, gone: list[int]) -> list[int]:
    """Replace a result by the destination of its only copy; return the position of that copy, or [] if there is another use."""
    out = outs[at]
    users = matches.only_pair(out.buffer)
    copy = None if users is None or users[0] != i else matches.calls[users[1]]
    loop = None if copy is None else loop_in(copy)
    if users is None or loop is None or len(loop.reads) != 1 or len(loop.results) != 1:
        return []
    ((target, (root, d)),) = loop.results.items()
    source, read = loop.reads[0]
    if root is not arg(0) or not isinstance(source, Place) or read is not d or d is not out.dtype or source.start:
        return []
    strides = _strides(out, loop, source, target)
    if strides is None or strides[-1] != 1 or not matches.is_untouched(target.buffer, users[1], gone):
        return []
    outs[at] = replace(out, buffer=target.buffer, start=target.start, strides=strides)
    return [users[1]]


def _strides(out: Value, loop: Loop, source: Place, target: Place) -> tuple[int, ...] | None:
    """Return the strides of a dense result at the destination of a loop that copies it; None if it is no strided part there."""
    walked = sorted(zip(source.strides, loop.sizes, target.strides), reverse=True)
    inside = 1
    for mine, size, _ in reversed(walked):
        if mine != inside:
            return None
        inside *= size
    if inside != numel_of(out.shape):
        return None
    found = []
    for n, stride in zip(out.shape, out.strides):
        mine, size, theirs = next(d for d in walked if d[0] <= stride)
        if n > 1 and (stride % mine or stride // mine * n > size):
            return None
        found.append(stride // mine * theirs)
    return tuple(found)
