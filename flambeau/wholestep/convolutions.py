"""Convolutions that are computed otherwise than in eager calls, where that takes less time."""

from __future__ import annotations

import math
import struct
from typing import Any

from ..backends import compiled
from ..backends.cpu import jit, winograd
from ..backends.cpu.onednn.conv import Described
from ..core.dtype import float32
from ..core.tensor import contiguous_strides
from .graph import Buffer, Graph, Launch, Ref


def fewer_products(graph: Graph, results: set[int]) -> None:
    """Convolve with windows of 3 x 3 by Winograd's algorithm, where there are channels enough: forward, and for both gradients. Sums
    are rounded in another order."""
    steps: list[Any] = []
    i = 0
    while i < len(graph.steps):
        made, count = _rewritten(graph, graph.steps, i)
        graph.rounded_otherwise = graph.rounded_otherwise or bool(made)
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
    told = getattr(step.plan, "described", None)
    sizes = None if told is None or step.plan.before or step.plan.after else _sizes(told)
    if sizes is None:
        return [], 1
    places = dict(zip(told.tensors, step.arguments[1:]))
    if told.kind == "forward":
        return _convolve(graph, step.name, sizes, places["y"], places["x"], places["w"], places.get("bias"), False), 1
    made = []
    if "dx" in places:
        made += _convolve(graph, step.name, sizes.backwards(), places["dx"], places["dy"], places["w"], None, True)
    if "dw" in places:
        made += _gradient(graph, step.name, sizes, places["dw"], places.get("db"), places["x"], places["dy"])
    return made, 1


def _sizes(told: Described) -> winograd.Sizes | None:
    """The sizes of a convolution that is worth it."""
    window = told.window
    plain = told.dtype is float32 and window.groups == 1 and window.before == window.after
    if not plain or any(n != 1 for n in (*window.stride, *window.dilation)):
        return None
    if any(strides != contiguous_strides(shape) for shape, strides in told.tensors.values()):
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


def _convolve(
    graph: Graph, name: str, sizes: winograd.Sizes, y: Ref, x: Ref, w: Ref, bias: Ref | None, swapped: bool
) -> list[Launch]:
    work = winograd.work(sizes, swapped)
    weights, scratch = _memory(graph, work.weights), _memory(graph, work.scratch)
    return [
        _launch(name, "weights", [weights, w, work.table]),
        _launch(name, "convolve", [y, scratch, x, weights, bias, work.table]),
    ]


def _gradient(
    graph: Graph, name: str, sizes: winograd.Sizes, dw: Ref, db: Ref | None, x: Ref, dy: Ref
) -> list[Launch]:
    work = winograd.work(sizes, gradient=True)
    return [_launch(name, "weight_gradient", [dw, db, _memory(graph, work.scratch), x, dy, work.table])]


def _launch(name: str, which: str, arguments: list[Any]) -> Launch:
    address = winograd.function(which)
    return Launch(f"{name}: winograd {which}", address, jit.signatures[address], arguments)


def _memory(graph: Graph, size: int) -> Ref:
    """New memory of the function's own."""
    graph.buffers.append(Buffer(len(graph.buffers), 0, size))
    return Ref(graph.buffers[-1].index, 0)


def _of_product(graph: Graph, steps: list[Any]) -> tuple[list[Launch], int]:
    """The gradient of a large weight, which eager calls compute as a product of two matrices: blocks of the input, and dy with its
    channels outermost. Nobody else reads these."""
    if len(steps) < 3 or not all(isinstance(s, Launch) for s in steps) or getattr(steps[2].plan, "steps", None) is None:
        return [], 1
    blocks, copy, product = steps
    to, x, images, inputs, height, width, *rest = blocks.arguments
    places, kernel, stride, before, dilation = (tuple(rest[k : k + 2]) for k in range(0, 10, 2))
    dw, left, right = product.arguments[1:4]
    outputs = _elements(copy) // (images * places[0] * places[1])
    sizes = winograd.Sizes(images, inputs, height, width, outputs, before)
    plain = kernel == (3, 3) and stride == dilation == (1, 1) and sizes.result == places
    written, read = copy.writes(), copy.reads()
    if not plain or right != to or written != [left] or len(read) != 1 or not winograd.pays(sizes):
        return [], 1
    return _gradient(graph, product.name, sizes, dw, None, x, read[0]), 3


def _elements(step: Launch) -> int:
    """How many elements a loop goes over; 0 if it is none."""
    known, first = compiled.maps.get(step.address), step.arguments[0]
    if known is None:
        return 0
    return first if type(first) is int else math.prod(struct.unpack(f"{len(first) // 8}q", first)[: known[4]])


__all__ = ["fewer_products"]
