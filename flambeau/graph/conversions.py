"""Conversions merged into the calls that read or make the converted values.

Autocast converts before and after operators that compute in float32. Kernels that load elements one by one convert them anyway (`Op.loads`),
and those that round when they store can round to the requested dtype (`Op.stores`): the same numbers, and one pass over memory less."""

from __future__ import annotations

from typing import Any

from ..core.device import device
from ..core.dtype import opmath
from ..core.records import replace
from ..core.size import make_size
from ..core.tensor import contiguous_strides, numel_of
from ..expr.node import arg, cast, replace_arguments
from ..ops.machinery.door import kernel_for
from .checker import on_meta
from .fusion import fused_call, loop_in
from .loops import Loop, Place, conversion_of
from .patterns import Matches
from .program import Call, Program, Value


def fold_conversions(program: Program) -> None:
    """Make calls read unconverted arguments and store converted results, so that separate conversions are not needed."""
    matches = Matches(program)
    for i, call in matches:
        found = new_results(call) if call.op.loads or call.op.stores else None
        if found is None:
            continue
        outs, several = found
        args = list(call.op.bind(call.args, call.kwargs).values())
        loaded = _load(call, args, i, matches)
        stored = _store(call, outs, i, matches)
        if loaded or stored:
            kernel = Kernel(call.op, outs[0].device, several)
            parts = (*(call.parts or (call,)), *(program.calls[k] for k in stored))
            makes = [v.buffer for v in outs]
            now = Call(call.op, kernel, tuple(args), {}, outs, makes, call.changes, call.line, parts)
            matches.exchange(i, now, stored)
    matches.finish()


def _load(call: Call, args: list[Any], i: int, matches: Matches) -> bool:
    """Replace converted arguments by what they were converted from; return whether there was one."""
    found = False
    for name in call.op.loads:
        at = list(call.op.arguments).index(name)
        source = unconverted(args[at], i, matches) if isinstance(args[at], Value) else None
        if source is not None:
            args[at], found = source, True
    return found


def unconverted(v: Value, i: int, matches: Matches) -> Value | None:
    """Return the narrower value that `v` was converted from, if it is still unchanged at position `i`; else None."""
    made = matches.maker(v.buffer)
    maker = None if made is None else matches.calls[made]
    both = None if maker is None else conversion_of(maker)
    if made is None or both is None or not (both[1] == v or _same_memory(both[1], v)):
        return None
    source = both[0]
    widens = opmath(source.dtype) is v.dtype and source.dtype is not v.dtype
    if not widens or not matches.unchanged({source.buffer}, made, i):
        return None
    return replace(source, shape=v.shape, strides=v.strides)


def read_unconverted(program: Program) -> None:
    """Make loops read narrower floats directly, where a conversion was made only for them."""
    matches = Matches(program)
    for i, call in matches:
        both = conversion_of(call)
        users = None if both is None else matches.users(both[1].buffer)
        if (
            both is None
            or users is None
            or opmath(both[0].dtype) is not both[1].dtype
            or both[0].dtype is both[1].dtype
        ):
            continue
        readers = {k: loop_in(program.calls[k]) for k in users if k != i}
        reads_only = all(loop is not None and both[1].buffer not in loop.written() for loop in readers.values())
        if readers and min(readers) > i and reads_only and matches.unchanged({both[0].buffer}, i, max(readers)):
            for k in readers:
                reader = matches.calls[k]
                loop = None if reader is None else loop_in(reader)  # as an earlier exchange has left it
                if loop is not None:
                    now = _load_source_directly(loop, *both)
                    matches.exchange(k, fused_call(now, list(now.results)), [])
    matches.finish()


def _load_source_directly(loop: Loop, source: Value, target: Value) -> Loop:
    """Return a loop that reads `source` in place of `target`, which was converted from it."""
    reads, values = list(loop.reads), {}
    for k, (p, d) in enumerate(loop.reads):
        values[k] = arg(k)
        if isinstance(p, Place) and p.buffer == target.buffer:
            start = source.start + (p.start - target.start) // target.dtype.itemsize * source.dtype.itemsize
            reads[k] = (Place(source.buffer, start, p.strides), source.dtype)
            values[k] = cast(arg(k), d)
    roots = replace_arguments(tuple(root for root, _ in loop.results.values()), values)
    results = {p: (root, d) for (p, (_, d)), root in zip(loop.results.items(), roots)}
    return Loop(loop.sizes, reads, results, loop.parts, loop.device)


def _same_memory(a: Value, b: Value) -> bool:
    """Return whether two dense values are the same elements of memory in the same order."""
    return (
        (a.buffer, a.start, a.dtype) == (b.buffer, b.start, b.dtype)
        and numel_of(a.shape) == numel_of(b.shape)
        and all(v.is_contiguous for v in (a, b))
    )


def _store(call: Call, outs: list[Value], i: int, matches: Matches) -> list[int]:
    """Replace results that are only converted by the converted ones; return the positions of the calls that become unnecessary."""
    gone = []
    for at in call.op.stores:
        if at >= len(outs):
            continue
        out = outs[at]
        users = matches.only_pair(out.buffer)
        reader = None if users is None or users[0] != i else matches.calls[users[1]]
        both = None if reader is None else conversion_of(reader)
        if users is None or both is None or not _same_memory(both[0], out) or both[1].start:
            continue
        if opmath(both[1].dtype) is not out.dtype or matches.first_touch(both[1].buffer) != users[1]:
            continue
        outs[at] = replace(both[1], shape=out.shape, strides=out.strides)
        gone.append(users[1])
    return gone


def new_results(call: Call) -> tuple[list[Value], bool] | None:
    """Return everything that a primitive computes into new memory, results for its derivative included, and whether its kernels receive a
    list; None if that is not known."""
    op = call.op
    if isinstance(call.function, Kernel):
        return list(call.results), call.function.several
    if op.layout is None or call.changes or call.fixed:
        return None
    found, several = all_results(call)
    return (found, several) if found and not any(0 in v.shape for v in found) else None


def all_results(call: Call) -> tuple[list[Value], bool]:
    """Return all results of a primitive's layout rule, and whether they are a list; [] if the call made fewer buffers."""
    described = call.op.layout(*on_meta(tuple(call.op.bind(call.args, call.kwargs).values())))
    several = type(described) is not tuple
    described = described if several else [described]
    if len(call.makes) < len(described):
        return [], several
    where = next(v.device for v in call.arguments())
    values = []
    for b, (shape, d, _, *rest) in zip(call.makes, described):
        strides = contiguous_strides(shape) if not rest or rest[0] is None else tuple(rest[0])
        values.append(Value(b, 0, make_size(shape), strides, d, where))
    return values, several


class Kernel:
    """The kernel of a primitive on one device, called with the memory of its results: a list of tensors (`several`), or one."""

    def __init__(self, op: Any, where: device, several: bool):
        self.op, self.where, self.several = op, where, several

    def __call__(self, outs: list[Any], *args: Any) -> None:
        kernel = kernel_for(self.op, self.where)
        assert kernel is not None
        kernel(outs if self.several else outs[0], *args)
