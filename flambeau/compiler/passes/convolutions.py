"""Convolutions that are computed by another algorithm than in eager calls, where that takes less time."""

from __future__ import annotations

import itertools
import math
from typing import Any

from ...backends.cpu import jit, operands, winograd
from ...backends.cpu.onednn import sequence
from ...backends.cpu.onednn.conv import Described
from ...core.dtype import float32
from ...core.layout import channels_last_strides
from ...core.tensor import contiguous_strides
from ...graph.feature_maps import Convolution, convolution_of
from ...graph.program import Call
from ..record.steps import Launch, Other, OtherCall, Ref, Same, StepGraph, new_buffer

# Positions of the native functions' arguments for the tensors of a oneDNN plan.
_CONVOLVED = {"y": 0, "x": 2, "w": 3, "bias": 4}
_SPREAD = {"dx": 0, "dy": 2, "w": 3}
_GRADIENT = {"dw": 0, "db": 1, "x": 3, "dy": 4}


def fewer_products(graph: StepGraph, results: set[int]) -> None:
    """Compute 3 x 3 convolutions with enough channels by Winograd's algorithm, forward and both gradients. Sums round differently."""
    steps: list[Any] = []
    for call, group in itertools.groupby(graph.steps, lambda step: step.call or step):
        found = convolution_of(call) if isinstance(call, Call) else None
        steps += (found and _rewrite_call(graph, call, found)) or list(group)
    graph.steps = steps


def described(found: Convolution) -> Described:
    """Describe a convolution in the library's terms."""
    tensors = {name: (tuple(v.shape), tuple(v.strides)) for name, v in found.tensors.items()}
    kind = "forward" if "y" in tensors else "backward"
    return Described(kind, tensors, next(iter(found.tensors.values())).dtype, operands.geometry(2, *found.window))


def _rewrite_call(graph: StepGraph, call: Call, found: Convolution) -> list[Launch]:
    """Return the launches that replace the native calls of a convolution; none where these stay."""
    told = described(found)
    sizes = sizes_of(told)
    if sizes is None:
        return []
    places = {name: Ref(v.buffer, v.start) for name, v in found.tensors.items()}
    last = {name: not _is_dense(*layout) for name, layout in told.tensors.items()}
    made: list[Launch | None] = []
    if told.kind == "forward":
        work = winograd.work(sizes, last=(last["x"], last["y"], last["w"]))
        made.append(_launch(graph, call, "convolve", work, places, _CONVOLVED, told.plan()))
    if "dx" in places:
        work = winograd.work(sizes.backwards(), swapped=True, last=(last["dy"], last["dx"], last["w"]))
        made.append(_launch(graph, call, "convolve", work, places, _SPREAD, told.gradients("dx")))
    if "dw" in places:
        work = winograd.work(sizes, gradient=True, last=(last["x"], last["dy"], last["dw"]))
        plan = told.gradients(*(n for n in ("dw", "db") if n in places))
        made.append(_launch(graph, call, "weight_gradient", work, places, _GRADIENT, plan))
    return [launch for launch in made if launch is not None] if None not in made else []


def sizes_of(told: Described) -> winograd.Sizes | None:
    """Return the sizes of a convolution for Winograd's algorithm, or None if it is not worth it."""
    window = told.window
    plain = told.dtype is float32 and window.groups == 1 and window.before == window.after and len(window.stride) == 2
    if not plain or any(n != 1 for n in (*window.stride, *window.dilation)):
        return None
    if not all(
        _is_dense(shape, strides) or (name not in ("db", "bias") and strides == channels_last_strides(shape))
        for name, (shape, strides) in told.tensors.items()
    ):
        return None
    shapes = {name: shape for name, (shape, _) in told.tensors.items()}
    result = shapes["y" if "y" in shapes else "dy"]
    weight = shapes.get("w", shapes.get("dw"))
    feature_map = shapes.get("x", shapes.get("dx"))
    if weight is None or feature_map is None or weight[2:] != (3, 3):
        return None
    images, inputs, height, width = feature_map
    found = winograd.Sizes(images, inputs, height, width, result[1], (window.before[0], window.before[1]))
    return found if winograd.pays(found) else None


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    return strides == contiguous_strides(shape)


def _launch(
    graph: StepGraph, call: Call, which: str, work: winograd.Work, places: dict[str, Any], positions: dict[str, int], plan: Any
) -> Launch | None:  # fmt: skip
    """Return the call of a native function on a plan's tensors, with the plan's own call as its alternative; None if the plan does more than
    one call."""
    if plan is None or plan.before or plan.after:
        return None
    address = winograd.function(which)
    arguments: list[Any] = [None] * len(jit.signatures[address])
    arguments[-1] = work.table
    arguments[jit.facts[address].parameters.index("scratch")] = new_buffer(graph, work.scratch, "workspace")
    for tensor, position in positions.items():
        arguments[position] = places.get(tensor)
    layouts = plan.described.tensors
    sizes = [4 * math.prod(shape) for shape, _ in layouts.values()]
    runner = jit.address_of(sequence.runner(False))
    given: list[Any] = [plan.address, *(Same(positions[tensor]) for tensor in layouts)]
    given += [None] * (len(jit.signatures[runner]) - len(given))
    other_call = OtherCall(runner, jit.signatures[runner], given, plan)
    results = tuple((positions[t], size) for t, size in zip(list(layouts)[: plan.results], sizes))
    other = Other((other_call,), results, flag=winograd.ODD)
    return Launch(f"{call.name} by Winograd", address, jit.signatures[address], arguments, other=other, call=call)
