"""Drawings of ONNX graphs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ..fx.drawing import Drawing, draw_graph
from ..fx.graph import Graph
from ..fx.node import Node
from .dtypes import DTYPE
from .serialize import onnx_package


class _Operator:
    """Stand-in for a node's operator in a drawing: it has a name and cannot be called."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = "onnx"

    def __call__(self, *args: Any) -> None:
        raise NotImplementedError("a picture does not compute")


def drawing(model: Any, parameters: bool = False) -> Drawing:
    """Return `model` (an ONNXProgram, a ModelProto or the path of a file) drawn as SVG: one box per node with its name, its operator and
    the shape of its result. `parameters` shows the inputs of weights as well.

    >>> program = flambeau.onnx.export(flambeau.nn.ReLU(), (flambeau.ones(2),), dynamo=True, verbose=False)
    >>> flambeau.onnx.drawing(program).save("model.svg")
    """
    onnx = onnx_package()
    proto = getattr(model, "model_proto", model)
    proto = proto if isinstance(proto, onnx.ModelProto) else onnx.load_model(proto)
    source = onnx.shape_inference.infer_shapes(proto).graph
    shapes = {v.name: v.type.tensor_type for v in (*source.input, *source.value_info, *source.output)}
    graph, known = Graph(), {}
    held = {t.name for t in source.initializer}
    for value in source.input:
        if value.name not in held:
            known[value.name] = _named(graph.placeholder("input"), value.name, shapes)
    for tensor in source.initializer:
        known[tensor.name] = _named(graph.get_attr(tensor.name), tensor.name, shapes)
    for proto_node in source.node:
        if proto_node.op_type == "Constant" and not parameters:
            continue
        args = tuple(known[name] for name in proto_node.input if name in known)
        made = graph.call_function(_Operator(proto_node.op_type), args)
        _named(made, proto_node.name, shapes, proto_node.output[0] if proto_node.output else "")
        known.update(dict.fromkeys(proto_node.output, made))
    graph.output(tuple(known[o.name] for o in source.output))
    return draw_graph(graph, parameters)


def _named(node: Node, name: str, shapes: dict[str, Any], value: str = "") -> Node:
    node.name = name
    kind = shapes.get(value or name)
    if kind is not None and kind.elem_type in DTYPE:
        sizes = [d.dim_param or d.dim_value if d.WhichOneof("value") else "?" for d in kind.shape.dim]
        node.meta["val"] = SimpleNamespace(shape=sizes, dtype=DTYPE[kind.elem_type])
    return node
