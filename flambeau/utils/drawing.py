"""Drawing of a network: its layers as boxes, in the order they run, with the shapes that flow between them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..autograd import no_grad
from ..core import naming
from ..core.svg import Drawing
from ..nn import Module
from ..nn.modules.attention import MultiheadAttention
from ..nn.unchanged import unchanged
from .layered import Box, picture

# What a layer is, by a part of its class's name, and its colour.
_COLOURS = (
    ("conv", "#cfe3f7"), ("linear", "#d6ecd2"), ("norm", "#fbe9c4"), ("pool", "#e5d9f2"), ("lstm", "#d2eeee"), ("gru", "#d2eeee"),
    ("rnn", "#d2eeee"), ("attention", "#f7d6e0"), ("embedding", "#dfe5ec"), ("dropout", "#eeeeee"),
)  # fmt: skip
_LAYER, _STEP, _END = "#f2f2f2", "#fdfdf6", "#ffffff"
# Questions about tensors: no steps of the computation.
_UNSHOWN = {"aten::size", "aten::Int", "aten::dim", "aten::ScalarImplicit"}


def _box(title: str, detail: str = "", colour: str = _END) -> Box:
    return Box(title, [detail] if detail else [], colour, "#888")


def draw(model: Module, *args: Any, path: str | Path | None = None) -> Drawing:
    """Return a drawing of the network `model` as it runs on `args` in evaluation mode; written to `path` if given.

    >>> svg = draw(flambeau.nn.Sequential(flambeau.nn.Linear(4, 8), flambeau.nn.ReLU()), flambeau.ones(1, 4), path="net.svg")
    """
    boxes, sources = _boxes(model, args)
    edges = [(source, box) for box in boxes for source in sources[box]]
    made = picture(boxes, edges, type(model).__name__)
    if path is not None:
        made.save(path)
    return made


# -- what there is to draw ------------------------------------------------------------------------------------------------
def _layer_box(module: Module, name: str) -> Box:
    kind = type(module).__name__
    colour = next((colour for part, colour in _COLOURS if part in kind.lower()), _LAYER)
    count = sum(p.numel() for p in module.parameters())
    parts = [name.partition("@")[0], f"{count:,} parameters" if count else ""]
    return _box(kind, " · ".join(part for part in parts if part), colour)


def _boxes(model: Module, args: tuple) -> tuple[list[Box], dict[Box, list[Box]]]:
    """Return the boxes that lead to an output, and the boxes that each reads."""
    trace = naming.above("jit.trace_graph")._get_trace_graph
    paths = {id(module): name for name, module in model.named_modules()}
    calls: dict[str, Module] = {}

    def scope_of(module: Module) -> str:
        """Name a call: `layer1.0.conv@3` is the third call of anything."""
        name = f"{paths.get(id(module), type(module).__name__)}@{len(calls)}"
        calls[name] = module
        return name

    with unchanged(model, training=False), no_grad():
        graph, _ = trace(model, args, strict=False, _scope_of=scope_of)
    found: list[Box] = []
    read: dict[Box, list[Box]] = defaultdict(list)
    sources: dict[Any, list[Box]] = defaultdict(list)  # the boxes that a value comes from
    for i, value in enumerate(list(graph.inputs())[: len(args)]):
        found.append(_box("input" if len(args) == 1 else f"input {i}"))
        found[-1].label = _shape(value)
        sources[value] = [found[-1]]
    layers: dict[str, Box] = {}
    for node in graph.nodes():
        before = list(dict.fromkeys(box for value in _values_read(node) for box in sources[value]))
        call = next((name for name in node.scopeName().split("/") if name in calls and _is_one(calls[name])), None)
        tensors = any(map(_is_tensor, node.outputs()))
        if node.kind().startswith("prim::") and not (call is not None and tensors and before):
            for value in node.outputs():  # lists and the like: through them, boxes are joined
                sources[value] = before
            continue
        if not (tensors or call) or node.kind() in _UNSHOWN:
            continue  # a question about a tensor
        if call is None:
            box = _box(node.kind().partition("::")[2].strip("_"), colour=_STEP)
            found.append(box)
        else:
            if call not in layers:
                layers[call] = _layer_box(calls[call], call)
                found.append(layers[call])
            box = layers[call]
        read[box] += [b for b in before if b is not box and b not in read[box]]
        for value in node.outputs():
            sources[value] = [box]
            box.label = _shape(value) or box.label
    ends = []
    for i, value in enumerate(graph.outputs()):
        ends.append(_box("output" if i == 0 else f"output {i}"))
        read[ends[-1]] = list(dict.fromkeys(sources[value]))
    return _reachable_boxes([*found, *ends], ends, read), read


def _is_one(module: Module) -> bool:
    """Return whether a layer is drawn as one box."""
    return isinstance(module, MultiheadAttention) or not any(True for _ in module.children())


def _values_read(node: Any) -> Iterator[Any]:
    """Yield the values that a node reads, and those read in the blocks inside it."""
    yield from node.inputs()
    for block in node.blocks():
        for inner in block.nodes():
            yield from _values_read(inner)


def _is_tensor(value: Any) -> bool:
    return value.type().kind() == "TensorType"


def _reachable_boxes(boxes: list[Box], ends: list[Box], read: dict[Box, list[Box]]) -> list[Box]:
    """Return the boxes that lead to an output."""
    kept: set[Box] = set()
    waiting = [end for end in ends if read[end]]
    while waiting:
        box = waiting.pop()
        if box not in kept:
            kept.add(box)
            waiting += read[box]
    return [box for box in boxes if box in kept]


def _shape(value: Any) -> str:
    return "×".join(str(n) for n in value.type().sizes()) if value.isCompleteTensor() else ""
