"""Common subexpressions: a call that repeats an earlier one is dropped, and the earlier result is read."""

from __future__ import annotations

from typing import Any

from ..core.records import replace
from .conversions import Kernel, new_results
from .fusion import FusedMap, fused_call
from .memory import mapped
from .program import Call, Program, Value


def share(program: Program) -> None:
    """Drop calls whose results exist already. Both results are the program's own and never written again, and their operands have not changed
    in between."""
    writers: dict[int, list[int]] = {}
    kept = program.lasting()  # and buffers that must not be replaced
    for i, call in enumerate(program.calls):
        for b in call.writes():
            writers.setdefault(b, []).append(i)
        if call.stays:
            kept |= call.touches()
    seen: dict[Any, tuple[int, Call]] = {}
    instead: dict[int, int] = {}
    calls: list[Call] = []
    for i, call in enumerate(program.calls):
        now = renamed(call, instead) if instead and not instead.keys().isdisjoint(call.touches()) else call
        key = _key(now) if all(writers[b] == [i] and b not in kept for b in call.makes) else None
        before = None if key is None else seen.get(key)
        if before is not None and _is_fresh(program, now, before[1], before[0], i, writers):
            instead.update(zip(now.makes, before[1].makes))
            continue
        if key is not None:
            seen[key] = i, now
        calls.append(now)
    program.calls = calls


def _is_fresh(program: Program, call: Call, first: Call, at: int, i: int, writers: dict[int, list[int]]) -> bool:
    """Return whether nothing that a repeated call reads was written since the first one, and their results have the same size."""
    sizes = [[program.buffers[b].size for b in each.makes] for each in (call, first)]
    return sizes[0] == sizes[1] and not any(at < k < i for b in call.reads() for k in writers.get(b, ()))


def _key(call: Call) -> Any:
    """Return a key that is equal for calls with equal results, or None if a call cannot be shared."""
    if call.stays or call.changes or not call.makes or call.op.draws or call.op.reads_values:
        return None
    try:
        key = (call.op.key, call.op.name, call.function, _hashable((call.args, call.kwargs)))
        hash(key)
    except TypeError:
        return None
    return key


def _hashable(value: Any) -> Any:
    if type(value) in (list, tuple):
        return type(value), tuple(map(_hashable, value))
    if type(value) is dict:
        return tuple((k, _hashable(v)) for k, v in value.items())
    return type(value), value


def renamed(call: Call, instead: dict[int, int]) -> Call:
    """Return a call, and its native calls, with buffers replaced as in `instead` (old to new)."""

    def other(v: Value) -> Value:
        return replace(v, buffer=instead[v.buffer]) if v.buffer in instead else v

    makes, changes = ([instead.get(b, b) for b in given] for given in (call.makes, call.changes))
    args, kwargs, results = mapped((call.args, call.kwargs, call.results), Value, other)
    now = replace(call, args=args, kwargs=kwargs, results=results, makes=makes, changes=frozenset(changes), steps=None)
    if isinstance(call.op.impl, FusedMap):
        loop = call.op.impl.loop.renamed(instead)
        same = fused_call(loop, list(loop.results))
        now.op, now.function = same.op, same.function
    if call.steps is not None:
        now.steps = [step.renamed(instead, now) for step in call.steps]
    return now


def write_over(program: Program) -> None:
    """Store results over operands that nobody reads again (`Op.over`): large scores and their gradient never exist at the same time."""
    last, lasting = program.last_uses(), program.lasting()
    made = {b for call in program.calls for b in call.makes}
    instead: dict[int, int] = {}
    for i, call in enumerate(program.calls):
        now = renamed(call, instead) if not instead.keys().isdisjoint(call.touches()) else call
        found = new_results(now) if now.op.over else None
        if found is not None:
            args, (out,) = now.op.bind(now.args, now.kwargs), found[0]
            given = args[now.op.over]
            gone = last[given.buffer] == i and given.buffer in made and lasting.isdisjoint((out.buffer, given.buffer))
            if gone and given.dtype is out.dtype and all(_is_whole(program, v) for v in (given, out)):
                instead[out.buffer] = given.buffer
                kernel, changes = Kernel(now.op, out.device, found[1]), now.changes | {given.buffer}
                result = [replace(out, buffer=given.buffer)]
                now = Call(now.op, kernel, tuple(args.values()), {}, result, [], changes, now.line, now.parts or (now,))
        program.calls[i] = now


def _is_whole(program: Program, v: Value) -> bool:
    """Return whether a contiguous value is all of a buffer that the program has made."""
    buffer = program.buffers[v.buffer]
    return buffer.source == "new" and v.is_contiguous and v.start == 0 and v.nbytes == buffer.size
