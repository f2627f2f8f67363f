"""Norms by given statistics as formulas: a factor and an addend for each channel, applied to every element.

The operators' records declare which calls are of this kind, and how both are computed (`Op.affine`). As formulas they fuse with their
neighbours."""

from __future__ import annotations

from typing import Any

from ..core.dtype import bfloat16, dtype, float16, float32, float64, opmath
from ..core.layout import has_internal_overlap
from ..expr.node import Expr, arg, cast
from .fusion import fused_call
from .loops import Loop, Number, Place, Read, collapsed
from .patterns import Matches
from .program import Call, Program, Value

_KINDS = (float32, float64, bfloat16, float16)


def spread_norms(program: Program) -> None:
    """Rewrite calls that only multiply and add by channels as formulas."""
    matches = Matches(program)
    now: dict[int, list[Call]] = {}
    for i, call in matches:
        made = None if call.fixed or call.op.affine is None else _spread(program, matches, call)
        if made is not None:
            now[i] = made
    program.calls = [each for i, call in enumerate(program.calls) for each in now.get(i, [call])]


def _spread(program: Program, matches: Matches, call: Call) -> list[Call] | None:
    """Return the call over channels, and the call over all elements that replace a norm; None if it is not of this kind."""
    bound = call.op.bind(call.args, call.kwargs)
    found = call.op.affine(**bound)
    x, y = next(iter(bound.values())), call.results
    if found is None or not isinstance(y, Value) or x.dtype is not y.dtype or x.dtype not in _KINDS:
        return None
    operands, factor, addend, besides = found
    tensors = [v for v in operands if isinstance(v, Value)]
    unread = all(matches.is_alone(v.buffer) for v in besides)
    if not unread or any(v.dtype not in _KINDS or v.shape != (x.shape[1],) for v in tensors) or 0 in y.shape:
        return None
    if has_internal_overlap(y.shape, y.strides) or len(call.makes) < 1 or call.makes[0] != y.buffer:
        return None
    reads: list[Read] = [_operand(v) for v in operands]
    wide = opmath(x.dtype)
    scale, shift = (program.new_value((x.shape[1],), wide, x.device) for _ in range(2))
    results = {_place(v, (1,)): (root, v.dtype) for v, root in ((scale, factor), (shift, addend))}
    channels = Loop((x.shape[1],), reads, results, (call,), x.device)
    walked = tuple(int(d == 1) for d in range(len(x.shape)))
    given: list[Read] = [(_place(x, x.strides), x.dtype), *((_place(v, walked), wide) for v in (scale, shift))]
    value = cast(arg(0), wide) * arg(1) + arg(2)
    formula: dict[Place, tuple[Expr, dtype]] = {_place(y, y.strides): (value, y.dtype)}
    elements = collapsed(call, x.shape, given, formula, x.device)
    if elements is None:
        return None
    first = fused_call(channels, list(channels.results))
    first.makes, first.changes = [scale.buffer, shift.buffer], frozenset()
    first.op.name = f"{call.name} by channels"
    return [first, fused_call(elements, list(elements.results))]


def _place(v: Value, strides: tuple[int, ...]) -> Place:
    return Place(v.buffer, v.start, tuple(strides))


def _operand(x: Any) -> Read:
    return (_place(x, x.strides), x.dtype) if isinstance(x, Value) else (Number(x, type(x)), float64)
