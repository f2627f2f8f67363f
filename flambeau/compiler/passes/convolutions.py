"""Convolutions that are computed otherwise than in eager calls, where that takes less time."""

from __future__ import annotations

import math
import struct
from typing import Any

from ...backends import compiled
from ...backends.cpu import jit, operands, winograd
from ...backends.cpu.onednn import sequence
from ...backends.cpu.onednn.conv import Described
from ...core.dtype import float32
from ...core.layout import channels_last_strides
from ...core.tensor import contiguous_strides
from ..record.steps import Graph, Launch, Other, OtherCall, Same, new_buffer

# Where the native functions have what a plan of oneDNN has.
_CONVOLVED = {"y": 0, "x": 2, "w": 3, "bias": 4}
_SPREAD = {"dx": 0, "dy": 2, "w": 3}
_GRADIENT = {"dw": 0, "db": 1, "x": 3, "dy": 4}


def fewer_products(graph: Graph, results: set[int]) -> None:
    """Convolve with windows of 3 x 3 by Winograd's algorithm, where there are channels enough: forward, and for both gradients. Sums
    are rounded in another order."""
    steps: list[Any] = []
    i = 0
    while i < len(graph.steps):
        made, count = _rewritten(graph, graph.steps, i)
        steps += made or graph.steps[i : i + count]
        i += count
    graph.steps = steps


def _rewritten(graph: Graph, steps: list[Any], i: int) -> tuple[list[Launch], int]:
    """What takes the place of the steps from number i on, and of how many of them; nothing where they stay."""
    step = steps[i]
    if not isinstance(step, Launch):
        return [], 1
    known = jit.facts.get(step.address)
    if known is not None and known.name == "block_rows":
        return _of_product(graph, steps[i : i + 3])
    told: Any = getattr(step.plan, "described", None)
    sizes = sizes_of(told) if type(told) is Described else None
    if sizes is None:
        return [], 1
    places = dict(zip(told.tensors, step.arguments[1:]))
    last = {name: not _is_dense(*layout) for name, layout in told.tensors.items()}
    made: list[Launch | None] = []
    if told.kind == "forward":
        work = winograd.work(sizes, last=(last["x"], last["y"], last["w"]))
        made.append(_launch(graph, step.name, "convolve", work, places, _CONVOLVED, step.plan))
    if "dx" in places:
        work = winograd.work(sizes.backwards(), swapped=True, last=(last["dy"], last["dx"], last["w"]))
        plan = told.gradients("dx")
        made.append(_launch(graph, step.name, "convolve", work, places, _SPREAD, plan))
    if "dw" in places:
        work = winograd.work(sizes, gradient=True, last=(last["x"], last["dy"], last["dw"]))
        plan = told.gradients(*(n for n in ("dw", "db") if n in places))
        made.append(_launch(graph, step.name, "weight_gradient", work, places, _GRADIENT, plan))
    found = [launch for launch in made if launch is not None]
    for launch in found:
        launch.relaid = step.relaid
    return found if len(found) == len(made) else [], 1


def sizes_of(told: Described) -> winograd.Sizes | None:
    """The sizes of a convolution that is worth it."""
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
    picture = shapes.get("x", shapes.get("dx"))
    if weight is None or picture is None or weight[2:] != (3, 3):
        return None
    images, inputs, height, width = picture
    found = winograd.Sizes(images, inputs, height, width, result[1], (window.before[0], window.before[1]))
    return found if winograd.pays(found) else None


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    return strides == contiguous_strides(shape)


def _launch(
    graph: Graph, name: str, which: str, work: winograd.Work, places: dict[str, Any], positions: dict[str, int], plan: Any
) -> Launch | None:  # fmt: skip
    """The call of a native function on a plan's tensors, beside the call of that plan, if that is all there is to it."""
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
    call = OtherCall(runner, jit.signatures[runner], given, plan)
    other = Other((call,), tuple((positions[t], size) for t, size in zip(list(layouts)[: plan.results], sizes)))
    return Launch(f"{name} by Winograd", address, jit.signatures[address], arguments, other=other)


def _of_product(graph: Graph, steps: list[Any]) -> tuple[list[Launch], int]:
    """The gradient of a large weight, which eager calls compute as a product of two matrices, by Winograd's algorithm."""
    told = as_gradient(steps)
    if told is None:
        return [], 1
    described, given = told
    sizes = sizes_of(described)
    assert sizes is not None
    work, plan = winograd.work(sizes, gradient=True), described.gradients("dw")
    made = _launch(graph, steps[2].name, "weight_gradient", work, given, _GRADIENT, plan)
    return ([], 1) if made is None else ([made], 3)


def as_gradient(steps: list[Any]) -> tuple[Described, dict[str, Any]] | None:
    """The gradient of a large weight as a product of two matrices, blocks of the input, and dy with its channels outermost, which nobody
    else reads: what a convolution computes from which places, where Winograd's algorithm is worth it."""
    known = jit.facts.get(steps[0].address) if isinstance(steps[0], Launch) else None
    if known is None or known.name != "block_rows" or len(steps) < 3 or not all(isinstance(s, Launch) for s in steps):
        return None
    if getattr(steps[2].plan, "steps", None) is None:
        return None
    blocks, copy, product = steps
    to, x, images, inputs, height, width, *rest = blocks.arguments
    places, kernel, stride, before, dilation = (tuple(rest[k : k + 2]) for k in range(0, 10, 2))
    dw, left, right = product.arguments[1:4]
    outputs = _elements(copy) // (images * places[0] * places[1])
    sizes = winograd.Sizes(images, inputs, height, width, outputs, before)
    plain = kernel == (3, 3) and stride == dilation == (1, 1) and sizes.result == places
    written, read = copy.writes(), copy.reads()
    if not plain or right != to or written != [left] or len(read) != 1 or not winograd.pays(sizes):
        return None
    shapes = {"dw": (outputs, inputs, 3, 3), "dy": (images, outputs, *places), "x": (images, inputs, height, width)}
    tensors = {name: (shape, contiguous_strides(shape)) for name, shape in shapes.items()}
    return Described("backward", tensors, float32, operands.geometry(2, 1, before, 1, 1)), {
        "dw": dw,
        "x": x,
        "dy": read[0],
    }


def _elements(step: Launch) -> int:
    """How many elements a loop goes over; 0 if it is none."""
    known, first = compiled.maps.get(step.address), step.arguments[0]
    if known is None:
        return 0
    return first if type(first) is int else math.prod(struct.unpack(f"{len(first) // 8}q", first)[: known[4]])


__all__ = ["as_gradient", "fewer_products", "sizes_of"]
