"""Gradients as an optimizer's kernel reads them (`Op.updates`): clipping has multiplied each by one number, autocast has converted it before.

Where nobody reads a gradient after the update, the kernel multiplies on the way, and reads what was converted: three passes over all
gradients less."""

from __future__ import annotations

from ..core.dtype import float32
from ..core.records import replace
from ..core.tensor import numel_of
from ..expr.node import arg
from .conversions import unconverted
from .loops import Place, loop_of
from .patterns import Matches
from .program import Program, Value
from .reductions import reduced


def fold_into_updates(program: Program) -> None:
    """Let updates of parameters multiply and convert gradients that only they still read."""
    for fold in (_scale, _convert):
        matches = Matches(program)
        for i, call in matches:
            if call.op.updates and call.args[1] and all(isinstance(g, Value) for g in call.args[1]):
                fold(matches, i)
        matches.finish()


def _scale(matches: Matches, i: int) -> None:
    """Give all factors to an update, where each gradient was multiplied by the same one."""
    call, found = matches.calls[i], {}
    assert call is not None
    for grad in call.args[1]:
        scaled = _scaling_position(matches, grad, i)
        if scaled is not None:
            found[scaled[0]] = scaled[1]
    if len(found) == len(call.args[1]) and len(set(found.values())) == 1:
        matches.exchange(i, replace(call, args=(*call.args, list(found.values())), makes=[]), list(found))


def _scaling_position(matches: Matches, grad: Value, i: int) -> tuple[int, Value] | None:
    """The position of the call that multiplies a gradient by a float32 number, if only the update at `i` reads it then; and the number."""
    users = matches.users(grad.buffer)
    if users is None or len(users) < 2 or users[-1] != i or grad.dtype is not float32:
        return None
    call = matches.calls[users[-2]]
    loop = None if call is None or call.makes or call.changes != {grad.buffer} else loop_of(call)
    if loop is None or len(loop.reads) != 2 or len(loop.results) != 1:
        return None
    ((target, (root, _)),) = loop.results.items()
    places = [p for p, d in loop.reads if isinstance(p, Place) and d is float32]
    whole = (target.start, loop.sizes, target.strides) == (grad.start, (numel_of(grad.shape),), (1,))
    number = next((p for p in places if p != target), target)
    if not whole or set(places) != {target, number} or any(number.strides) or number.buffer == target.buffer:
        return None
    product = root.op == "mul" and {*map(id, root.args)} == {id(arg(0)), id(arg(1))}
    if not product or not matches.unchanged({number.buffer}, users[-2], i):
        return None
    return users[-2], Value(number.buffer, number.start, grad.shape[:0], (), float32, grad.device)


def _convert(matches: Matches, i: int) -> None:
    """Let an update read gradients as they were before they were converted, where besides it only reductions read the result."""
    call = matches.calls[i]
    assert call is not None
    grads = []
    for grad in call.args[1]:
        users = matches.users(grad.buffer)
        readers = [] if users is None else [matches.calls[k] for k in users[1:-1]]
        alone = users is not None and users[-1] == i and all(c is not None and reduced(c) is not None for c in readers)
        grads.append((unconverted(grad, i, matches) if alone else None) or grad)
    if grads != call.args[1]:
        matches.exchange(i, replace(call, args=(call.args[0], grads, *call.args[2:]), makes=[]), [])  # for its own use
