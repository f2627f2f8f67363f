"""One picture of a network: its layers as boxes, in the order they run, with the shapes that flow between them. SVG, by hand."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from ..autograd import no_grad
from ..core import naming
from ..nn import Module
from ..nn.modules.attention import MultiheadAttention
from ..nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

__all__ = ["Drawing", "draw"]

_LETTER, _SMALL, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 7.4, 6.0, 40, 26, 34, 30
# What a layer is, by a part of its class's name, and its colour.
_COLOURS = (
    ("conv", "#cfe3f7"), ("linear", "#d6ecd2"), ("norm", "#fbe9c4"), ("pool", "#e5d9f2"), ("lstm", "#d2eeee"), ("gru", "#d2eeee"),
    ("rnn", "#d2eeee"), ("attention", "#f7d6e0"), ("embedding", "#dfe5ec"), ("dropout", "#eeeeee"),
)  # fmt: skip
_LAYER, _STEP, _END = "#f2f2f2", "#fdfdf6", "#ffffff"
# Questions about tensors: no steps of the computation.
_UNSHOWN = {"aten::size", "aten::Int", "aten::dim", "aten::ScalarImplicit"}


class Box:
    """A layer that runs, a step between layers, or an end of the network."""

    def __init__(self, title: str, detail: str, colour: str):
        self.title, self.detail, self.colour = title, detail, colour
        self.sources: list[Box] = []
        self.shape = ""
        self.level = 0
        self.x = self.y = 0.0

    @property
    def width(self) -> float:
        return max(90.0, 24 + max(len(self.title) * _LETTER, len(self.detail) * _SMALL))


class Drawing:
    """A picture. Notebooks show it; `save(path)` writes it, `str(drawing)` is the SVG."""

    def __init__(self, text: str):
        self.text = text

    def __str__(self) -> str:
        return self.text

    def _repr_svg_(self) -> str:
        return self.text

    def save(self, path: str | Path) -> None:
        Path(path).write_text(self.text, encoding="utf-8")


def draw(model: Module, *args: Any, path: str | Path | None = None) -> Drawing:
    """A picture of a network as it runs on these arguments; written to `path`, if there is one.

    >>> draw(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), flambeau.ones(1, 4), path="net.svg")  # doctest: +SKIP
    """
    boxes = _boxes(model, args)
    made = Drawing(_picture(boxes, type(model).__name__))
    if path is not None:
        made.save(path)
    return made


# -- what there is to draw ------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def _each_call_named(model: Module) -> Iterator[dict[str, Module]]:
    """While the model runs, what is recorded belongs to calls: `layer1.0.conv@3` is the third call of anything."""
    state = naming.load(f"{naming.PACKAGE}._C")._get_tracing_state
    paths = {id(module): name for name, module in model.named_modules()}
    calls: dict[str, Module] = {}

    def enter(module: Module, args: Any) -> None:
        name = f"{paths.get(id(module), type(module).__name__)}@{len(calls)}"
        calls[name] = module
        state().push_scope(name)

    def leave(module: Module, args: Any, result: Any) -> None:
        state().pop_scope()

    handles = register_module_forward_pre_hook(enter), register_module_forward_hook(leave, always_call=True)
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _layer_box(module: Module, name: str) -> Box:
    kind = type(module).__name__
    colour = next((colour for part, colour in _COLOURS if part in kind.lower()), _LAYER)
    count = sum(p.numel() for p in module.parameters())
    parts = [name.partition("@")[0], f"{count:,} parameters" if count else ""]
    return Box(kind, " · ".join(part for part in parts if part), colour)


def _boxes(model: Module, args: tuple) -> list[Box]:
    trace = naming.load(f"{naming.PACKAGE}.jit.trace_graph")._get_trace_graph
    with _each_call_named(model) as calls, no_grad():
        graph, _ = trace(model, args, strict=False)
    found: list[Box] = []
    sources: dict[Any, list[Box]] = defaultdict(list)  # the boxes that a value comes from
    for i, value in enumerate(list(graph.inputs())[: len(args)]):
        found.append(Box("input" if len(args) == 1 else f"input {i}", "", _END))
        found[-1].shape = _shape(value)
        sources[value] = [found[-1]]
    layers: dict[str, Box] = {}
    for node in graph.nodes():
        before = list(dict.fromkeys(box for value in _read(node) for box in sources[value]))
        call = next((name for name in node.scopeName().split("/") if name in calls and _is_one(calls[name])), None)
        tensors = any(map(_is_tensor, node.outputs()))
        if node.kind().startswith("prim::") and not (call is not None and tensors and before):
            for value in node.outputs():  # lists and the like: through them, boxes are joined
                sources[value] = before
            continue
        if not (tensors or call) or node.kind() in _UNSHOWN:
            continue  # a question about a tensor
        if call is None:
            box = Box(node.kind().partition("::")[2].strip("_"), "", _STEP)
            found.append(box)
        else:
            if call not in layers:
                layers[call] = _layer_box(calls[call], call)
                found.append(layers[call])
            box = layers[call]
        box.sources += [b for b in before if b is not box and b not in box.sources]
        for value in node.outputs():
            sources[value] = [box]
            box.shape = _shape(value) or box.shape
    for i, value in enumerate(graph.outputs()):
        end = Box("output" if i == 0 else f"output {i}", "", _END)
        end.sources, end.shape = list(dict.fromkeys(sources[value])), _shape(value)
        found.append(end)
    return _needed(found)


def _is_one(module: Module) -> bool:
    """Whether a layer is drawn as one box."""
    return isinstance(module, MultiheadAttention) or not any(True for _ in module.children())


def _read(node: Any) -> Iterator[Any]:
    """What a node reads, and what is read in the blocks inside it."""
    yield from node.inputs()
    for block in node.blocks():
        for inner in block.nodes():
            yield from _read(inner)


def _is_tensor(value: Any) -> bool:
    return value.type().kind() == "TensorType"


def _needed(boxes: list[Box]) -> list[Box]:
    """Without what leads to no output."""
    kept: set[int] = set()
    waiting = [box for box in boxes if box.colour == _END and box.sources]
    while waiting:
        box = waiting.pop()
        if id(box) not in kept:
            kept.add(id(box))
            waiting += box.sources
    return [box for box in boxes if id(box) in kept]


def _shape(value: Any) -> str:
    return "×".join(str(n) for n in value.type().sizes()) if value.isCompleteTensor() else ""


# -- where things go --------------------------------------------------------------------------------------------------------
def _placed(boxes: list[Box]) -> tuple[float, float]:
    """Give every box its place, in rows from above; returns the size of the picture."""
    rows: dict[int, list[Box]] = defaultdict(list)
    for _ in boxes:  # a layer may need what runs after it began: until nothing changes any more
        before = [box.level for box in boxes]
        for box in boxes:
            box.level = 1 + max((s.level for s in box.sources if box not in s.sources), default=-1)
        if before == [box.level for box in boxes]:
            break
    for box in boxes:
        rows[box.level].append(box)
    middle: dict[int, float] = {}
    for level in sorted(rows):
        row = rows[level]
        row.sort(key=lambda b: sum(middle.get(id(s), 0.0) for s in b.sources) / max(1, len(b.sources)))
        width = sum(b.width for b in row) + _GAP_X * (len(row) - 1)
        x = -width / 2
        for box in row:
            box.x, box.y = x, _MARGIN + 24 + level * (_HEIGHT + _GAP_Y)
            middle[id(box)] = x + box.width / 2
            x += box.width + _GAP_X
    left = min((b.x for b in boxes), default=0.0)
    aside = 90 if any(b.level - s.level > 1 for b in boxes for s in b.sources) else 0
    for box in boxes:
        box.x += _MARGIN - left
    right = max((b.x + b.width for b in boxes), default=0.0)
    return right + aside + _MARGIN, _MARGIN * 2 + len(rows) * (_HEIGHT + _GAP_Y)


def _arrow(source: Box, target: Box, boxes: list[Box]) -> str:
    x1, y1 = source.x + source.width / 2, source.y + _HEIGHT
    x2, y2 = target.x + target.width / 2, target.y
    between = [b for b in boxes if source.level < b.level < target.level]
    if not between:
        bend = (y2 - y1) / 2
        path = f"M{x1:.0f},{y1:.0f} C{x1:.0f},{y1 + bend:.0f} {x2:.0f},{y2 - bend:.0f} {x2:.0f},{y2 - 5:.0f}"
    else:  # around what lies between, on the right
        side = max(b.x + b.width for b in (*between, source, target)) + 14 + 6 * min(len(between), 8)
        start, end = source.y + _HEIGHT / 2, target.y + _HEIGHT / 2
        x1, x2 = source.x + source.width, target.x + target.width
        path = f"M{x1:.0f},{start:.0f} C{side:.0f},{start:.0f} {side:.0f},{start:.0f} {side:.0f},{start + 20:.0f}"
        path += f" L{side:.0f},{end - 20:.0f} C{side:.0f},{end:.0f} {side:.0f},{end:.0f} {x2 + 5:.0f},{end:.0f}"
    return f'<path d="{path}" fill="none" stroke="#777" stroke-width="1.2" marker-end="url(#a)"/>'


def _picture(boxes: list[Box], title: str) -> str:
    width, height = _placed(boxes)
    parts = [_arrow(source, box, boxes) for box in boxes for source in box.sources]
    for box in boxes:
        centre = box.x + box.width / 2
        parts.append(
            f'<rect x="{box.x:.0f}" y="{box.y:.0f}" width="{box.width:.0f}" height="{_HEIGHT}" rx="6" fill="{box.colour}"'
            ' stroke="#888"/>'
            f'<text x="{centre:.0f}" y="{box.y + (17 if box.detail else 25):.0f}" text-anchor="middle">{escape(box.title)}</text>'
        )
        if box.detail:
            parts.append(
                f'<text x="{centre:.0f}" y="{box.y + 32:.0f}" text-anchor="middle" font-size="10" fill="#555">'
                f"{escape(box.detail)}</text>"
            )
        if box.shape and not box.title.startswith("output"):
            parts.append(
                f'<text x="{centre + 8:.0f}" y="{box.y + _HEIGHT + 15:.0f}" font-size="10" fill="#666">{box.shape}</text>'
            )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
        ' font-family="sans-serif" font-size="13">\n'
        '<defs><marker id="a" markerWidth="8" markerHeight="8" refX="5" refY="3" orient="auto"><path d="M0,0 L6,3 L0,6 z"'
        ' fill="#777"/></marker></defs>\n'
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>\n'
        f'<text x="{_MARGIN}" y="26" font-size="15" font-weight="bold">{escape(title)}</text>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )
