"""Epilogues of convolutions: operations on the result that are applied while it is written."""

from __future__ import annotations

from typing import Any

from ...backends.cpu import winograd
from ...backends.cpu.onednn.postops import CHANNEL, EACH, Step
from ...core.device import cpu
from ...core.dtype import float32
from ...core.records import replace
from ...expr.node import arg, is_const
from ...graph.loops import Loop, Place
from ..record.planning import emitted, joined_call, loop_at
from ..record.steps import Launch, OtherCall, Ref, Same, StepGraph, new_buffer
from .epilogues import steps_of

_Y, _BIAS, _SCALE, _EXTRA, _TABLE = 0, 4, 5, 6, 7  # arguments of the native function


def join_followers(graph: StepGraph, results: set[int]) -> None:
    """Fuse batch norm in evaluation, addition and `relu` into the Winograd convolution before them, if nothing else reads its result."""
    while any(_join_followers(graph, results, i) for i in range(len(graph.steps))):
        pass


def _join_followers(graph: StepGraph, results: set[int], i: int) -> bool:
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
    made = _with_loop(graph, step, graph.steps[j])
    if not made:
        return False
    graph.steps[j : j + 1] = made
    del graph.steps[i]
    return True


def _with_loop(graph: StepGraph, step: Launch, follower: Launch) -> list[Launch]:
    """Return a convolution and a loop over its results as one step, preceded by a loop that computes its numbers per channel if needed; [] if
    they cannot be joined."""
    loop, given = loop_at(follower), list(step.arguments)
    if loop is None or len(loop.results) != 1 or winograd.is_positive(given[_TABLE]):
        return []
    (place, (root, kind)), *_ = loop.results.items()
    out = Ref(*place[:2])
    positive = root.op == "maximum" and is_const(root.args[1], 0)
    told = step.other.calls[0].plan.described  # type: ignore[union-attr]
    found = None if kind is not float32 else steps_of(root.args[0] if positive else root, loop, given[_Y], told)
    places = None if found is None or not (found or positive) else _places(found)
    if places is None or any(given[k] is not None for k in places if k != _BIAS) or (given[_EXTRA] and len(places)):
        return []
    again = {given[_Y]: Same(_Y), out: Same(_Y), **{place: Same(k) for k, place in places.items()}}
    bias: Any = given[_BIAS]
    first: list[Launch] = []
    if bias is not None and (_SCALE in places or _BIAS in places):
        if not (_SCALE in places and _BIAS in places) or graph.buffers[bias.buffer].source != "state":
            return []
        scale, shift = places[_SCALE], places[_BIAS]
        first, places[_SCALE], places[_BIAS] = _add_channel_loop(graph, follower.name, told, bias, scale, shift)
        again |= {scale: Same(_SCALE), shift: Ref(places[_SCALE].buffer, 4 * told.tensors["y"][0][1])}
        step = _pass_bias_separately(step, bias)
    arguments = [places.get(k, a) for k, a in enumerate(given)]
    arguments[_Y] = out
    if positive:
        arguments[_TABLE] = winograd.positive(given[_TABLE])
    instead = [again.get(a, a) if type(a) is Ref else a for a in follower.arguments]
    return [*first, _append_call(step, follower, arguments, OtherCall(follower.address, follower.signature, instead))]


def _places(found: list[tuple[Step, Ref | None]]) -> dict[int, Any] | None:
    """Return the arguments of the native function for the following steps: a factor and an addend for each channel, then a tensor to add;
    None if others are left."""
    places: dict[int, Any] = {}
    for position, step in _NATIVE:
        if found and found[0][0] == step:
            places[position] = found.pop(0)[1]
    return None if found else places


_NATIVE = ((_SCALE, Step("mul", (), CHANNEL)), (_BIAS, Step("add", (), CHANNEL)), (_EXTRA, Step("add", (), EACH)))


def _add_channel_loop(
    graph: StepGraph, name: str, told: Any, bias: Ref, scale: Ref, shift: Ref
) -> tuple[list[Launch], Ref, Ref]:
    """Make a loop over channels for a convolution with a bias of its own: return it, the place of the factors followed by the addends, and
    that of the bias."""
    channels = told.tensors["y"][0][1]
    both, moved = new_buffer(graph, 8 * channels), new_buffer(graph, 4 * channels)
    places = [Place(both.buffer, 0, (1,)), Place(both.buffer, 4 * channels, (1,)), Place(moved.buffer, 0, (1,))]
    roots = [arg(0), arg(1), arg(2) * arg(0) + arg(1)]
    results = {p: (root, float32) for p, root in zip(places, roots)}
    reads: list[Any] = [(Place(*ref, (1,)), float32) for ref in (scale, shift, bias)]
    return [emitted(graph, Loop((channels,), reads, results, (), cpu), name)], both, moved


def _append_call(step: Launch, follower: Launch, arguments: list[Any], call: OtherCall) -> Launch:
    assert step.other is not None
    other = step.other._replace(calls=(*step.other.calls, call))
    name = f"{step.name}, {follower.name}"
    weight = step.weight + follower.weight
    return Launch(
        name, step.address, step.signature, arguments, weight=weight, other=other, call=joined_call([step, follower])
    )


def _pass_bias_separately(step: Launch, bias: Ref) -> Launch:
    """Return the step with the bias itself as an argument of its other call, because that argument of the step will change."""
    assert step.other is not None
    first, *rest = step.other.calls
    arguments = [bias if a == Same(_BIAS) else a for a in first.arguments]
    other = step.other._replace(calls=(first._replace(arguments=arguments), *rest))
    return replace(step, other=other)
