"""What follows a convolution, done on the way."""

from __future__ import annotations

from typing import Any

from ...backends import compiled
from ...backends.cpu import winograd
from ...core.dtype import float32
from ..record.steps import Graph, Launch, Other, OtherCall, Same
from .norms import by_channel, operands_of, spare

_Y, _BIAS, _SCALE, _EXTRA, _TABLE = 0, 4, 5, 6, 7  # arguments of the native function


def join_followers(graph: Graph, results: set[int]) -> None:
    """Let a convolution by Winograd's algorithm do what follows it, while its results are in registers: a batch norm that evaluates,
    the addition of something of its size, `relu`. Nobody else reads what it makes."""
    while any(_joined(graph, results, i) for i in range(len(graph.steps))):
        pass


def _joined(graph: Graph, results: set[int], i: int) -> bool:
    step = graph.steps[i]
    if not isinstance(step, Launch) or step.other is None or step.other.calls[0].plan.described.kind != "forward":
        return False
    y = step.arguments[_Y]
    users = [k for k, s in enumerate(graph.steps) if any(r.buffer == y.buffer for r in s.refs())]
    own = graph.buffers[y.buffer].source == "new" and y.buffer not in results
    if not own or len(users) != 2 or users[0] != i or not isinstance(graph.steps[users[1]], Launch):
        return False
    j = users[1]
    read = {r.buffer for r in step.refs()}
    between = graph.steps[i + 1 : j]
    if not all(isinstance(s, Launch) and not read & {r.buffer for r in s.writes()} for s in between):
        return False
    made = _with_norm(graph, results, step, graph.steps[j]) or _with_loop(step, graph.steps[j])
    if not made:
        return False
    graph.steps[j : j + 1] = made
    del graph.steps[i]
    return True


def _with_loop(step: Launch, loop: Launch) -> list[Launch]:
    """A convolution and a loop over its results, as one step."""
    known, given = compiled.maps.get(loop.address), step.arguments
    sign = winograd.is_positive(given[_TABLE])
    if known is None or sign or len(known[0]) != 1 or set(known[3]) != {"c"} or {*known[1], *known[2]} != {float32}:
        return []
    count, out, *others = loop.arguments
    formula, (_, size), y = str(known[0][0]), step.other.results[0], given[_Y]  # type: ignore[union-attr]
    extra = [place for place in others if place != y]
    if (
        type(count) is not int
        or 4 * count != size
        or formula not in _FORMULAS[len(others)]
        or len(extra) + 1 != len(others)
    ):
        return []
    if extra and given[_EXTRA] is not None:
        return []
    arguments = [out, *given[1:]]
    if extra:
        arguments[_EXTRA] = extra[0]
    if formula.startswith("maximum"):
        arguments[_TABLE] = winograd.positive(given[_TABLE])
    again = [count, Same(_Y), *(Same(_Y) if place == y else Same(_EXTRA) for place in others)]
    return [_and_then(step, loop, arguments, OtherCall(loop.address, loop.signature, again))]


_FORMULAS = {  # by the number of operands; a0 and a1 are what is computed and something else
    1: ("maximum(a0, 0)",),
    2: ("(a0 + a1)", "maximum(cast((a0 + a1), float32), 0)"),
}


def _and_then(step: Launch, follower: Launch, arguments: list[Any], call: OtherCall) -> Launch:
    assert step.other is not None
    other = Other((*step.other.calls, call), step.other.results)
    name = f"{step.name}, {follower.name}"
    both = step.relaid, follower.relaid
    relaid = None if both[0] is None or both[1] is None else both[0].then(*both[1])
    weight = step.weight + follower.weight
    return Launch(name, step.address, step.signature, arguments, weight=weight, other=other, relaid=relaid)


def _with_norm(graph: Graph, results: set[int], step: Launch, norm: Launch) -> list[Launch]:
    """A convolution and a batch norm by given statistics: a loop that makes a scale and a bias of these for each channel, and one
    step."""
    given = step.arguments
    has = operands_of(graph, results, norm)
    if has is None or given[_SCALE] is not None or given[_EXTRA] is not None:
        return []
    if has["x"] != given[_Y] or winograd.is_positive(given[_TABLE]):
        return []
    if given[_BIAS] is not None and graph.buffers[given[_BIAS].buffer].source != "state":
        return []
    channels, scale, shift = by_channel(graph, norm, has, given[_BIAS])
    arguments = list(given)
    arguments[_Y], arguments[_BIAS], arguments[_SCALE] = has["out"], shift, scale
    # In place, and where nobody looks afterwards.
    instead = {"out": Same(_Y), "x": Same(_Y), "rstd": Same(_SCALE), "factors": spare(scale, has)}
    again = [instead.get(name, a) for name, a in has.items()]
    first = _unsame(step, given)
    return [channels, _and_then(first, norm, arguments, OtherCall(norm.address, norm.signature, again))]


def _unsame(step: Launch, given: list[Any]) -> Launch:
    """The step, whose other call has the bias itself as an argument, because the step's own will be another one."""
    assert step.other is not None
    first, *rest = step.other.calls
    arguments = [given[_BIAS] if a == Same(_BIAS) else a for a in first.arguments]
    other = Other((first._replace(arguments=arguments), *rest), step.other.results)
    weight = step.weight
    return Launch(
        step.name, step.address, step.signature, step.arguments, weight=weight, other=other, relaid=step.relaid
    )


__all__ = ["join_followers"]
