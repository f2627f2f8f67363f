"""Pass that drops values kept for a derivative if they can be computed from what remains (`Op.remade`, `Op.lean`).

Probabilities of a loss over a large vocabulary take as much memory as the scores, which are stored anyway, and take longer to write and to
read than to compute."""

from __future__ import annotations

from .checker import on_meta
from .conversions import Kernel, new_results, unconverted
from .patterns import Matches
from .program import Call, Program, Value


def remake_kept(program: Program) -> None:
    """Recompute saved values in derivatives from values that are still unchanged, so that the calls before need not save them."""
    matches = Matches(program)
    for i, call in matches:
        found = new_results(call) if call.op.lean is not None else None
        if found is None:
            continue
        outs, _ = found
        readers = _readers(matches, i, outs[-1])
        exchanged = {k: _from_source(matches, k, call, i) for k in readers or ()}
        now = _lean(call, outs) if exchanged and all(exchanged.values()) else None
        if now is None:
            continue
        matches.exchange(i, now, [])
        for k, reader in exchanged.items():
            matches.exchange(k, reader, [])  # type: ignore[arg-type]
    matches.finish()


def remake_between(programs: list[Program], kept: set[int]) -> None:
    """Apply `remake_kept` across programs over the same buffers, of which the others run after the first, as derivatives do; `kept` are the
    buffers read after all of them."""
    counts = [len(program.calls) for program in programs]
    whole = Program(programs[0].buffers, [call for program in programs for call in program.calls], kept=kept)
    remake_kept(whole)
    calls = iter(whole.calls)
    for program, count in zip(programs, counts):
        program.calls = [next(calls) for _ in range(count)]


def _readers(matches: Matches, maker: int, kept: Value) -> list[int]:
    """Return the calls that read a kept value; [] if anything else touches it."""
    users = matches.users(kept.buffer)
    return [] if users is None or users[:1] != [maker] else users[1:]


def _from_source(matches: Matches, k: int, maker: Call, i: int) -> Call | None:
    """Return the same call on an argument of the call that made its operand, if that argument is unchanged until then."""
    call = matches.calls[k]
    assert call is not None
    found = None if call.op.remade is None else new_results(call)
    if call.op.remade is None or found is None:
        return None
    kept, source, operator = call.op.remade
    given = maker.op.bind(maker.args, maker.kwargs).get(source)
    bound = call.op.bind(call.args, call.kwargs)
    if not isinstance(given, Value) or not isinstance(bound[kept], Value) or bound[kept].shape != given.shape:
        return None
    if not matches.unchanged({given.buffer}, i, k) or given.dtype is not bound[kept].dtype:
        return None
    if matches.program.buffers[given.buffer].source == "state":  # a caller may change it before the backward pass
        return None
    outs, several = found
    op = operator.op
    if op.loads:  # it may be in another program than what converts for it
        given = unconverted(given, k, matches) or given
    args = tuple(given if name == kept else value for name, value in bound.items())
    kernel = Kernel(op, outs[0].device, several)
    return Call(op, kernel, args, {}, outs, [v.buffer for v in outs], call.changes, call.line, (call,))


def _lean(call: Call, outs: list[Value]) -> Call | None:
    """Return the call without its last result, or None if its record has no such form."""
    op = call.op.lean.op
    args = tuple(call.op.bind(call.args, call.kwargs).values())
    described = op.layout(*on_meta(args))
    kept = [] if type(described) is tuple else [(tuple(one[0]), one[1]) for one in described]
    if kept != [(tuple(v.shape), v.dtype) for v in outs[:-1]]:
        return None
    kernel = Kernel(op, outs[0].device, True)
    made = [v.buffer for v in outs[:-1]]
    return Call(op, kernel, args, {}, outs[:-1], made, call.changes, call.line, (call,))
