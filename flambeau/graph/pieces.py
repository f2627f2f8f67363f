"""Concatenations as copies, one for each part of the result, so that whoever makes a part can store it there at once.

Which calls are such, and where the parts lie, their records say (`Op.pieces`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..core.layout import expand_strides
from ..core.size import make_size
from ..expr.node import arg
from .checker import on_meta
from .fusion import fused_call, loop_in
from .loops import Place, collapsed
from .patterns import Matches
from .program import Call, Program, Value


def split_copies(program: Program) -> None:
    """Make a copy of each part of a call that only copies."""
    program.calls = [each for call in program.calls for each in (copies_of(call) or [call])]


def split_where_made(program: Program) -> None:
    """The same for calls whose parts are all made by calls that can store them where they belong: elsewhere one launch for all parts is
    better than one for each."""
    matches = Matches(program)
    for i, call in matches:
        copies = copies_of(call) if call.op.pieces is not None and _are_storable(call, i, matches) else None
        if copies:
            matches.replace(i, copies, [])
    matches.finish()


def _are_storable(call: Call, i: int, matches: Matches) -> bool:
    for v in call.arguments():
        users = matches.only_pair(v.buffer)
        maker = None if users is None or users[1] != i else matches.calls[users[0]]
        if maker is None or not (maker.op.strided or loop_in(maker) is not None):
            return False
    return True


def copies_of(call: Call, other: Callable[[Value], Value] | None = None) -> list[Call] | None:
    """A call that only copies as the copies of its parts; None for other calls. `other` says where values lie now, if not where they lay."""
    result, lies = call.results, other or (lambda v: v)
    if call.fixed or call.op.pieces is None or call.changes or len(call.makes) != 1 or not isinstance(result, Value):
        return None
    given, values = tuple(call.op.bind(call.args, call.kwargs).values()), call.arguments()
    if any(v.dtype is not result.dtype or v.dtype.is_complex for v in values) or "out" in call.kwargs:
        return None
    found: list[Call] = []
    for k, shape, strides, first in call.op.pieces(*on_meta(given)):
        if 0 in shape:
            continue
        start = result.start + first * result.dtype.itemsize
        source, part = (
            lies(values[k]),
            lies(replace(result, start=start, shape=make_size(shape), strides=tuple(strides))),
        )
        read = Place(source.buffer, source.start, tuple(expand_strides(source.shape, source.strides, shape)))
        stored = Place(part.buffer, part.start, part.strides)
        loop = collapsed(call, shape, [(read, source.dtype)], {stored: (arg(0), result.dtype)}, result.device)
        if loop is None:
            return None
        copy = fused_call(loop, list(loop.results))
        copy.makes, copy.changes = ([], frozenset((part.buffer,))) if found else ([part.buffer], frozenset())
        found.append(copy)
    if call.steps is not None and len(call.steps) == len(found) and other is None:
        for copy, step in zip(found, call.steps):
            copy.steps, step.call = [step], copy
    return found


__all__ = ["copies_of", "split_copies", "split_where_made"]
