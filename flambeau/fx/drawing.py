"""Pictures of graphs: an SVG of the nodes in layers, without any package.

>>> net = symbolic_trace(flambeau.nn.Sequential(flambeau.nn.Linear(3, 4), flambeau.nn.ReLU()))
>>> draw_graph(net)[:4]
'<svg'
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from ..core.tensor import Tensor
from .graph import Graph
from .graph_module import GraphModule
from .node import Node

__all__ = ["Drawing", "draw_graph"]

_COLORS = {
    "placeholder": ("#dceefb", "#2b6cb0"),
    "get_attr": ("#fdf3d7", "#b7791f"),
    "call_module": ("#e3f6e5", "#2f855a"),
    "call_function": ("#f3e8fd", "#6b46c1"),
    "call_method": ("#fde8ef", "#b83280"),
    "output": ("#e2e8f0", "#4a5568"),
}
_LINE, _LETTER, _PADDING = 15, 6.7, 8  # the height of a line of text, the width of a letter, the room around the text
_GAP, _LAYER_GAP, _MARGIN = 24, 38, 12
_SWEEPS = 8


class Drawing(str):
    """The text of an SVG; notebooks show the picture."""

    def _repr_svg_(self) -> str:
        return str(self)

    def save(self, path: str | Path) -> None:
        """Write the picture to a file."""
        Path(path).write_text(self, encoding="utf-8")


class _Box:
    """A node, or a bend of an edge on its way through a layer (without text)."""

    def __init__(self, lines: list[str], kind: str = "") -> None:
        self.lines, self.kind = lines, kind
        longest = max((len(line) for line in lines), default=0)
        self.width = longest * _LETTER + 2 * _PADDING if lines else 2.0
        self.height = len(lines) * _LINE + _PADDING if lines else 0.0
        self.above: list[_Box] = []
        self.below: list[_Box] = []
        self.layer = 0
        self.x = self.y = 0.0  # of the middle, and of the upper edge


def draw_graph(graph_module: GraphModule | Graph, parameters: bool = True) -> Drawing:
    """A picture of a graph: one box per node, inputs at the top, an arrow to each reader. A box says the node's name, what it calls
    and, where that is known (`ShapeProp`, `make_fx`, `export`), the shape of its value. With `parameters=False`, what is fetched from
    the module or is a parameter of an exported program is left out."""
    graph = graph_module if isinstance(graph_module, Graph) else graph_module.graph
    owner = None if isinstance(graph_module, Graph) else graph_module
    nodes = [n for n in graph.nodes if parameters or not _is_parameter(n)]
    boxes = {node: _Box(_text(node, owner), node.op) for node in nodes}
    layers = _layered(boxes)
    _order(layers)
    _place(layers)
    return Drawing(_svg(layers))


def _is_parameter(node: Node) -> bool:
    return node.op == "get_attr" or (node.op == "placeholder" and str(node.target).startswith(("p_", "b_", "c_")))


def _text(node: Node, owner: GraphModule | None) -> list[str]:
    """Name, target, shape."""
    lines = [node.name]
    if node.op == "call_module":
        kind = type(owner.get_submodule(str(node.target))).__name__ if owner is not None else "module"
        lines.append(f"{kind} ({node.target})")
    elif node.op == "call_method":
        lines.append(f".{node.target}()")
    elif node.op == "call_function":
        lines.append(node._pretty_print_target(node.target).removeprefix("torch.ops."))
    elif node.op == "get_attr":
        lines.append(f"self.{node.target}")
    else:
        lines.append(node.op)
    lines = lines[1:] if node.op == "output" else lines
    return lines + [_shape(node)] if _shape(node) else lines


def _shape(node: Node) -> str:
    value: Any = node.meta.get("tensor_meta", node.meta.get("val"))
    if node.op == "output" or not (isinstance(value, Tensor) or hasattr(value, "shape")):
        return ""
    sizes = node.meta.get("sizes", value.shape)
    return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(str(s) for s in sizes)}]"


# -- layers -----------------------------------------------------------------------------------------------------------------


def _layered(boxes: dict[Node, _Box]) -> list[list[_Box]]:
    """Every box below all it reads; edges that pass a layer get a bend in it."""
    for node, box in boxes.items():
        read = [boxes[n] for n in node.all_input_nodes if n in boxes]
        box.layer = max((r.layer + 1 for r in read), default=0)
    for node, box in reversed(boxes.items()):  # inputs stand right above their first reader
        readers = [boxes[user].layer for user in node.users if user in boxes]
        if node.op in ("placeholder", "get_attr") and readers:
            box.layer = min(readers) - 1
    layers: list[list[_Box]] = [[] for _ in range(max((b.layer for b in boxes.values()), default=0) + 1)]
    for box in boxes.values():
        layers[box.layer].append(box)
    for node, box in boxes.items():
        for user in node.users:
            if user in boxes:
                _connect(box, boxes[user], layers)
    return layers


def _connect(start: _Box, end: _Box, layers: list[list[_Box]]) -> None:
    current = start
    for number in range(start.layer + 1, end.layer):
        bend = _Box([])
        bend.layer = number
        layers[number].append(bend)
        current.below.append(bend)
        bend.above.append(current)
        current = bend
    current.below.append(end)
    end.above.append(current)


def _order(layers: list[list[_Box]]) -> None:
    """Boxes of a layer in the order of the middles of what they are connected with, down and up again, so that few edges cross."""
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            places = {id(box): i for other in layers for i, box in enumerate(other)}

            def middle(box: _Box, places: dict[int, int] = places, down: bool = down) -> float:
                near = box.above if down else box.below
                return sum(places[id(b)] for b in near) / len(near) if near else places[id(box)]

            layer.sort(key=middle)


# -- coordinates --------------------------------------------------------------------------------------------------------------


def _place(layers: list[list[_Box]]) -> None:
    y = float(_MARGIN)
    for layer in layers:
        height = max((box.height for box in layer), default=0.0)
        for box in layer:
            box.y = y + (height - box.height) / 2
        y += height + _LAYER_GAP
        _spread(layer, [0.0] * len(layer))
    for sweep in range(2 * _SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            _spread(layer, [_mean([b.x for b in (box.above if down else box.below)], box.x) for box in layer])
    left = min((box.x - box.width / 2 for layer in layers for box in layer), default=0.0)
    for layer in layers:
        for box in layer:
            box.x += _MARGIN - left


def _mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _spread(layer: list[_Box], wanted: list[float]) -> None:
    """Put boxes as near to where they want to be as their order and the gaps allow: neighbours that collide move as one block."""
    blocks: list[tuple[float, float, list[float]]] = []  # (sum of wishes, number, offsets of the boxes from the first)
    for i, box in enumerate(layer):
        offset = 0.0 if i == 0 else (layer[i - 1].width + box.width) / 2 + _GAP
        block = (wanted[i], 1.0, [0.0])
        while blocks:
            total, count, offsets = blocks[-1]
            step = offsets[-1] + offset
            if total / count + step <= block[0] / block[1]:
                break
            blocks.pop()
            block = (total + block[0] - step * block[1], count + block[1], offsets + [step + o for o in block[2]])
            offset = 0.0 if len(blocks) == 0 else _distance(layer, i + 1 - len(block[2]))
        blocks.append(block)
    places = [total / count + o for total, count, offsets in blocks for o in offsets]
    for box, x in zip(layer, places):
        box.x = x


def _distance(layer: list[_Box], index: int) -> float:
    """How far the box of this index must be from the one before."""
    return (layer[index - 1].width + layer[index].width) / 2 + _GAP


# -- SVG ----------------------------------------------------------------------------------------------------------------------


def _svg(layers: list[list[_Box]]) -> str:
    boxes = [box for layer in layers for box in layer]
    width = max((b.x + b.width / 2 for b in boxes), default=0.0) + _MARGIN
    height = max((b.y + b.height for b in boxes), default=0.0) + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
        ' font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="11">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#718096"/></marker></defs>',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>',
    ]
    parts += [_edge(box, end) for box in boxes if box.lines for end in box.below]
    parts += [_node(box) for box in boxes if box.lines]
    return "\n".join([*parts, "</svg>"])


def _edge(start: _Box, end: _Box) -> str:
    path = [f"M{start.x:.1f} {start.y + start.height:.1f}"]
    while True:
        y0, y1 = start.y + start.height, end.y
        middle = (y0 + y1) / 2
        path.append(f"C{start.x:.1f} {middle:.1f} {end.x:.1f} {middle:.1f} {end.x:.1f} {y1:.1f}")
        if end.lines:
            break
        start, end = end, end.below[0]
    return f'<path d="{"".join(path)}" fill="none" stroke="#718096" marker-end="url(#tip)"/>'


def _node(box: _Box) -> str:
    fill, stroke = _COLORS[box.kind]
    left = box.x - box.width / 2
    parts = [
        f'<rect x="{left:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="5" fill="{fill}"'
        f' stroke="{stroke}"/>'
    ]
    for number, line in enumerate(box.lines):
        style = ' font-weight="bold"' if number == 0 else ' fill="#4a5568"'
        y = box.y + _PADDING / 2 + (number + 0.75) * _LINE
        parts.append(f'<text x="{box.x:.1f}" y="{y:.1f}" text-anchor="middle"{style}>{escape(line)}</text>')
    return "".join(parts)
