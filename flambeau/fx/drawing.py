"""Drawings of graphs: an SVG of the nodes in layers, without any package.

>>> net = symbolic_trace(flambeau.nn.Sequential(flambeau.nn.Linear(3, 4), flambeau.nn.ReLU()))
>>> draw_graph(net)[:4]
'<svg'
"""

from __future__ import annotations

from typing import Any

from ..core.svg import Drawing
from ..core.tensor import Tensor
from ..utils.layered import Box, picture
from .graph import Graph
from .graph_module import GraphModule
from .node import Node

_COLORS = {
    "placeholder": ("#dceefb", "#2b6cb0"),
    "get_attr": ("#fdf3d7", "#b7791f"),
    "call_module": ("#e3f6e5", "#2f855a"),
    "call_function": ("#f3e8fd", "#6b46c1"),
    "call_method": ("#fde8ef", "#b83280"),
    "output": ("#e2e8f0", "#4a5568"),
}
_FONT = "DejaVu Sans Mono, Menlo, Consolas, monospace"


def draw_graph(graph_module: GraphModule | Graph, parameters: bool = True) -> Drawing:
    """Draw a graph as SVG: one box per node, inputs at the top, an arrow to each user. A box shows the node's name, its target and, if
    known (`ShapeProp`, `make_fx`, `export`), the shape of its value. With `parameters=False`, nodes that fetch attributes of the module and
    parameters of an exported program are left out."""
    graph = graph_module if isinstance(graph_module, Graph) else graph_module.graph
    owner = None if isinstance(graph_module, Graph) else graph_module
    held = {n for n in graph.nodes if n.op == "placeholder" and str(n.target).startswith(("p_", "b_", "c_"))}
    nodes = [n for n in graph.nodes if parameters or (n not in held and n.op != "get_attr")]
    boxes = {node: _box(node, owner) for node in nodes}
    edges = [(box, boxes[user]) for node, box in boxes.items() for user in node.users if user in boxes]
    return picture(list(boxes.values()), edges, font=_FONT)


def _box(node: Node, owner: GraphModule | None) -> Box:
    """Return the box of a node: name, target and shape, in the colours of the node's kind."""
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
    lines += [_shape(node)] if _shape(node) else []
    return Box(lines[0], lines[1:], *_COLORS[node.op])


def _shape(node: Node) -> str:
    value: Any = node.meta.get("tensor_meta", node.meta.get("val"))
    if node.op == "output" or not (isinstance(value, Tensor) or hasattr(value, "shape")):
        return ""
    sizes = node.meta.get("sizes", value.shape)
    return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(str(s) for s in sizes)}]"
