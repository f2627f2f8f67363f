"""Branches, loops, sequences and optional values."""

from __future__ import annotations

from typing import Any

import flambeau

from ...core.tensor import Tensor
from .table import Call, node, numbers


@node("If")
def if_(call: Call, condition: Tensor, then_branch: Any, else_branch: Any) -> tuple:
    taken = then_branch if bool(condition.reshape(()).item()) else else_branch
    return tuple(taken.call(call.known, []))


@node("Loop")
def loop(call: Call, most: Any = None, condition: Any = None, *carried: Any, body: Any) -> tuple:
    count = len(carried)
    values = list(carried)
    scanned: list[list[Any]] = [[] for _ in range(call.outputs - count)]
    step, going = 0, True if condition is None else bool(condition.item())
    limit = None if most is None else int(most.item())
    while going and (limit is None or step < limit):
        results = body.call(call.known, [flambeau.tensor(step), flambeau.tensor(going), *values])
        going = bool(results[0].item())
        values = results[1 : 1 + count]
        for kept, value in zip(scanned, results[1 + count :]):
            kept.append(value)
        step += 1
    return (*values, *(flambeau.stack(s) if s else flambeau.zeros(0) for s in scanned))


@node("Scan")
def scan(
    call: Call, *given: Any, body: Any, num_scan_inputs: int, scan_input_axes: Any = None, scan_input_directions: Any = None,
    scan_output_axes: Any = None, scan_output_directions: Any = None, directions: Any = None,
) -> tuple:  # fmt: skip
    if call.opset < 9:
        return _scan_of_batches(call, given[1:], body, num_scan_inputs)
    states, inputs = list(given[: len(given) - num_scan_inputs]), list(given[len(given) - num_scan_inputs :])
    axes = list(scan_input_axes or [0] * len(inputs))
    turned = list(scan_input_directions or [0] * len(inputs))
    rows = [x.flip(a).unbind(a) if t else x.unbind(a) for x, a, t in zip(inputs, axes, turned)]
    outs: list[list[Any]] = [[] for _ in range(call.outputs - len(states))]
    for row in zip(*rows):
        results = body.call(call.known, [*states, *row])
        states = results[: len(states)]
        for kept, value in zip(outs, results[len(states) :]):
            kept.append(value)
    out_axes = list(scan_output_axes or [0] * len(outs))
    flips = list(scan_output_directions or [0] * len(outs))
    stacked = [flambeau.stack(o[::-1] if f else o, a) for o, a, f in zip(outs, out_axes, flips)]
    return (*states, *stacked)


def _scan_of_batches(call: Call, given: tuple, body: Any, count: int) -> tuple:
    """Run Scan of opset 8, whose inputs have a batch dimension."""
    batches = []
    for b in range(given[-1].shape[0]):
        mine = [g[b] for g in given]
        inner = Call(call.kind, 9, call.outputs, call.domain)
        inner.known = call.known
        batches.append(scan(inner, *mine, body=body, num_scan_inputs=count))
    return tuple(flambeau.stack(list(values)) for values in zip(*batches))


# -- sequences ------------------------------------------------------------------------------------------------------------------------


@node("SequenceConstruct")
def sequence_construct(call: Call, *values: Any) -> list:
    return list(values)


@node("SequenceEmpty")
def sequence_empty(call: Call, dtype: int = 1) -> list:
    return []


@node("SequenceAt")
def sequence_at(call: Call, values: list, place: Tensor) -> Any:
    return values[int(place.item())]


@node("SequenceInsert")
def sequence_insert(call: Call, values: list, value: Any, place: Any = None) -> list:
    made = list(values)
    made.insert(len(made) if place is None else int(place.item()), value)
    return made


@node("SequenceErase")
def sequence_erase(call: Call, values: list, place: Any = None) -> list:
    made = list(values)
    del made[-1 if place is None else int(place.item())]
    return made


@node("SequenceLength")
def sequence_length(call: Call, values: list) -> Tensor:
    return flambeau.tensor(len(values))


@node("SplitToSequence")
def split_to_sequence(call: Call, x: Tensor, split: Any = None, axis: int = 0, keepdims: int = 1) -> list:
    if split is None:
        return list(flambeau.split(x, 1, axis)) if keepdims else list(x.unbind(axis))
    return list(flambeau.split(x, int(split.item()) if split.dim() == 0 else numbers(split), axis))


@node("ConcatFromSequence")
def concat_from_sequence(call: Call, values: list, axis: int, new_axis: int = 0) -> Tensor:
    return flambeau.stack(values, axis) if new_axis else flambeau.cat(values, axis)


@node("SequenceMap")
def sequence_map(call: Call, first: list, *rest: Any, body: Any) -> tuple:
    outs: list[list[Any]] = [[] for _ in range(call.outputs)]
    for i, value in enumerate(first):
        args = [value, *(r[i] if isinstance(r, list) else r for r in rest)]
        for kept, result in zip(outs, body.call(call.known, args)):
            kept.append(result)
    return tuple(outs)


@node("Optional")
def optional(call: Call, value: Any = None, type: Any = None) -> Any:
    return value


@node("OptionalHasElement")
def optional_has_element(call: Call, value: Any = None) -> Tensor:
    return flambeau.tensor(value is not None)


@node("OptionalGetElement")
def optional_get_element(call: Call, value: Any) -> Any:
    if value is None:
        raise RuntimeError("the optional value is empty")
    return value
