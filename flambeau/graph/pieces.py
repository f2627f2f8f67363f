"""Concatenations as copies, one for each part of the result, so that the call that makes a part can store it there directly.

The operators' records declare which calls are concatenations, and where the parts are (`Op.pieces`)."""

from __future__ import annotations

from collections.abc import Callable

from ..core.layout import expand_strides
from ..core.records import replace
from ..core.size import make_size
from ..expr.node import arg
from .checker import on_meta
from .fusion import fused_call, loop_in
from .loops import Loop, Place, collapsed, rounded
from .patterns import Matches
from .program import Call, Program, Value

_MOST = 8  # parts that are better stored one by one than joined and then copied


def split_copies(program: Program) -> None:
    """Replace each call that only copies by one copy for each of its parts."""
    program.calls = [each for call in program.calls for each in (copies_of(call) or [call])]


def split_where_made(program: Program) -> None:
    """Split calls into copies of their parts if the makers of all parts can store them in place; otherwise one launch for all parts is better
    than one for each. A copy or conversion that follows is merged into them."""
    while _split_once(program):
        pass


def _split_once(program: Program) -> bool:
    """Split calls whose parts can be stored in place, in one pass over the program; return whether there was one."""
    matches = Matches(program)
    found = False
    for i, call in matches:
        copies = copies_of(call) if call.op.pieces is not None and not call.fixed else None
        if copies is None:
            continue
        users = matches.only_pair(call.results.buffer)
        reader = None if users is None or users[0] != i else matches.calls[users[1]]
        further = None if reader is None or len(copies) > _MOST else _store_all_directly(copies, reader)
        if reader is not None and users is not None and further and matches.first_touch(reader.makes[0]) == users[1]:
            matches.replace(i, further, [users[1]])
            found = True
        elif _are_storable(call, i, matches):
            matches.replace(i, copies, [])
            found = True
    matches.finish()
    return found


def _store_all_directly(copies: list[Call], reader: Call) -> list[Call] | None:
    """Return copies that store where `reader` would copy or convert their result to, the first of which makes that memory; else None."""
    loop = None if reader.changes or len(reader.makes) != 1 else loop_in(reader)
    found = [] if loop is None else [now for copy in copies if (now := _store_directly(copy, loop)) is not None]
    for k, copy in enumerate(found):
        copy.makes, copy.changes = ([], frozenset(reader.makes)) if k else (list(reader.makes), frozenset())
    return found if len(found) == len(copies) else None


def _are_storable(call: Call, i: int, matches: Matches) -> bool:
    for v in call.arguments():
        users = matches.only_pair(v.buffer)
        maker = None if users is None or users[1] != i else matches.calls[users[0]]
        known = maker is not None and (maker.op.strided or maker.op.pieces is not None or loop_in(maker) is not None)
        if not known:
            return False
    return True


def _store_directly(copy: Call, after: Loop) -> Call | None:
    """Return a copy that stores where a loop would copy or convert its result to; None if the loop does anything else."""
    if len(after.results) != 1 or len(after.reads) != 1:
        return None
    (source, read), ((target, (last, kind)),) = after.reads[0], after.results.items()
    loop = copy.op.impl.loop
    ((stored, (root, d)),) = loop.results.items()
    plain = last is arg(0) or (last.op == "cast" and last.args[0] is arg(0))
    if not plain or not isinstance(source, Place) or read is not d or source.buffer != stored.buffer or source.start:
        return None
    walked = sorted(zip(source.strides, after.sizes, target.strides), reverse=True)
    cut = loop.cut(stored, {c for s, n, _ in walked for c in (s, s * n)})
    if cut is None or walked[-1][0] < 1:
        return None
    ((stored, (root, d)),) = cut.results.items()
    first, rest = target.start, stored.start // d.itemsize
    for mine, size, theirs in walked:
        first += rest // mine * theirs * kind.itemsize
        if rest // mine >= size:
            return None
        rest %= mine
    strides = []
    for n, stride in zip(cut.sizes, stored.strides):
        mine, size, theirs = next((w for w in walked if w[0] <= stride), (0, 0, 0))
        if rest or not mine or stride % mine or stride // mine * n > size:
            return None
        strides.append(stride // mine * theirs)
    place = Place(target.buffer, first, tuple(strides))
    parts = (*loop.parts, *after.parts)
    return fused_call(Loop(cut.sizes, cut.reads, {place: (rounded(root, d), kind)}, parts, loop.device), [place])


def copies_of(call: Call, other: Callable[[Value], Value] | None = None) -> list[Call] | None:
    """Return a call that only copies as copies of its parts; None for other calls. `other` maps values that have moved to their new places."""
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
