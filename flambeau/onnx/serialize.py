"""Conversion of graphs to ONNX files: names, constants, protos."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np

from ..core.tensor import Tensor
from .builder import Absent, Builder, OnnxGraph, OnnxNode, Value
from .dtypes import NUMBER, array_of, tensor_of
from .errors import UnsupportedOperatorError

IR_VERSION = {
    7: 3, 8: 3, 9: 4, 10: 5, 11: 6, 12: 7, 13: 7, 14: 7, 15: 8, 16: 8, 17: 8, 18: 8, 19: 9, 20: 9, 21: 10, 22: 10,
    23: 11,
}  # fmt: skip


def onnx_package() -> Any:
    """Return the package `onnx`, or raise an error that says how to install it."""
    try:
        import onnx  # noqa: PLC0415  only exports need it
        import onnx.helper  # noqa: PLC0415
        import onnx.numpy_helper  # noqa: PLC0415
    except ImportError as error:
        raise ModuleNotFoundError("ONNX files need the package onnx: pip install 'flambeau[onnx]'") from error
    return onnx


def as_output(g: Builder, value: Value, name: str) -> None:
    """Add a value to a graph's outputs; an input, a parameter or another output is copied by an Identity node first."""
    if isinstance(value, Absent):
        raise UnsupportedOperatorError([("a result of the model", value.why, "")], g.opset)
    maker = value.producer
    taken = {v.name for v in (*g.graph.inputs, *g.graph.outputs)}
    if name and name in taken:
        name = next(word for n in itertools.count(1) if (word := f"{name}_{n}") not in taken)
    if (
        maker is None
        or maker.op_type == "Constant"
        or maker not in g.graph.nodes
        or any(value is o for o in g.graph.outputs)
    ):
        value = g.op("Identity", value).known(value.dtype, value.shape)
    if name:
        value.name = name
    g.graph.outputs.append(value)


def number_values(graph: OnnxGraph) -> None:
    """Number inputs, parameters and results, before anything is simplified: PyTorch names inputs by their number and the first node that
    reads them (`onnx::Gemm_0`), and results by their number alone."""
    without_dead(graph)
    readers: dict[int, str] = {}
    for node in graph.nodes:
        for value in node.inputs:
            readers.setdefault(id(value), node.op_type)
    number = 0
    for value in (*graph.inputs, *(value for value, _ in graph.parameters.values())):
        value.number, number = number, number + 1
    for node in graph.nodes:
        number += node.ghosts
        for value in node.outputs:
            value.number, number = number, number + 1
    graph.counted = number
    for value in graph.inputs:
        value.name = value.name or f"onnx::{readers.get(id(value), '')}_{value.number}"
    for value in graph.outputs:
        value.name = value.name or str(value.number)


def name_everything(graph: OnnxGraph, dynamo: bool) -> None:
    """Name nodes and values as PyTorch's two exporters do."""
    used = {v.name for v in graph.inputs} | {v.name for v in graph.outputs} | set(graph.parameters)
    _name_nodes(graph, dynamo, used, {})


def _name_nodes(graph: OnnxGraph, dynamo: bool, used: set[str], counts: dict[str, int]) -> None:
    for node in graph.nodes:
        if dynamo:
            stem = node.name or f"node_{node.op_type}"
        else:
            parts = node.scope.split(".") if node.scope else []
            path = "/".join(".".join(parts[: i + 1]) for i in range(len(parts)))
            stem = "/" + (f"{path}/" if path else "") + node.op_type
        number = counts.get(stem, 0)
        counts[stem] = number + 1
        node.name = stem if not number else f"{stem}_{number}"
        for i, value in enumerate(node.outputs):
            if value.name and (value in graph.outputs or value.name in used):
                continue
            wanted = (value.label or f"val_{len(used)}") if dynamo else f"{node.name}_output_{i}"
            while wanted in used:
                wanted += "_"
            value.name = wanted
            used.add(wanted)
        for attribute in node.attributes.values():
            if isinstance(attribute, OnnxGraph):
                for value in attribute.inputs:
                    if not value.name or value.name in used:
                        value.name = f"{node.name}_input_{len(used)}"
                    used.add(value.name)
                _name_nodes(attribute, dynamo, used, counts)
                for value in attribute.outputs:
                    if not value.name:
                        value.name = f"{node.name}_output_{len(used)}"


def without_dead(graph: OnnxGraph, outer: set[int] | None = None) -> set[int]:
    """Remove nodes without readers, and return the values that are read."""
    read = {id(v) for v in graph.outputs} | (outer or set())
    kept = []
    for node in reversed(graph.nodes):
        if not any(id(o) in read for o in node.outputs):
            continue
        while id(node.outputs[-1]) not in read and _is_optional(node.op_type, len(node.outputs) - 1):
            node.outputs.pop()
        for attribute in node.attributes.values():
            if isinstance(attribute, OnnxGraph):
                read |= without_dead(attribute)
        read |= {id(i) for i in node.inputs if i is not None}
        kept.append(node)
    graph.nodes = kept[::-1]
    return read


@functools.cache
def _is_optional(kind: str, place: int) -> bool:
    """Return whether an ONNX operator's output at this position is optional."""
    defs = onnx_package().defs
    outputs = defs.get_schema(kind).outputs if defs.has(kind) else ()
    return place < len(outputs) and outputs[place].option == defs.OpSchema.FormalParameterOption.Optional


def _info(value: Value, onnx: Any) -> Any:
    helper = onnx.helper
    if value.items is not None:
        return helper.make_tensor_sequence_value_info(value.name, NUMBER[value.items[0].dtype], None)
    if value.dtype is None:
        return helper.make_empty_tensor_value_info(value.name)
    return helper.make_tensor_value_info(
        value.name, NUMBER[value.dtype], None if value.shape is None else list(value.shape)
    )


def tensor_proto(array: np.ndarray, name: str = "") -> Any:
    return onnx_package().numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)


def _attribute(key: str, value: Any, onnx: Any) -> Any:
    if isinstance(value, OnnxGraph):
        return onnx.helper.make_attribute(key, graph_proto(value, onnx))
    if isinstance(value, np.ndarray):
        return onnx.helper.make_attribute(key, tensor_proto(value))
    if isinstance(value, Tensor):
        return onnx.helper.make_attribute(key, tensor_proto(array_of(value)))
    if isinstance(value, list) and not value:
        return onnx.helper.make_attribute(key, value, attr_type=onnx.AttributeProto.INTS)
    return onnx.helper.make_attribute(key, value)


def node_proto(node: OnnxNode, onnx: Any) -> Any:
    made = onnx.NodeProto(op_type=node.op_type, name=node.name, domain=node.domain)
    made.input.extend("" if v is None else v.name for v in node.inputs)
    made.output.extend(v.name for v in node.outputs)
    made.attribute.extend(_attribute(key, value, onnx) for key, value in sorted(node.attributes.items()))
    return made


def graph_proto(graph: OnnxGraph, onnx: Any, parameters: bool = True) -> Any:
    nodes = [node_proto(n, onnx) for n in graph.nodes]
    made = onnx.helper.make_graph(
        nodes, graph.name, [_info(v, onnx) for v in graph.inputs], [_info(v, onnx) for v in graph.outputs]
    )
    if parameters:
        made.initializer.extend(tensor_proto(array_of(t), v.name) for v, t in graph.parameters.values())
    return made


def model_proto(
    g: Builder, *, dynamo: bool, custom_opsets: dict[str, int], export_params: bool = True, inputs_too: bool = False,
    ir_version: int | None = None,
) -> Any:  # fmt: skip
    """Return the whole file as a ModelProto."""
    onnx = onnx_package()
    graph = g.graph
    read = without_dead(graph)
    graph.parameters = {name: pair for name, pair in graph.parameters.items() if id(pair[0]) in read}
    if dynamo:
        _lift_constants(graph)
    name_everything(graph, dynamo)
    made = graph_proto(graph, onnx, export_params)
    if inputs_too or not export_params or g.opset < 9:
        made.input.extend(_info(v, onnx) for v, _ in graph.parameters.values())
    opsets = [onnx.helper.make_opsetid("", g.opset)]
    opsets += [onnx.helper.make_opsetid(d, custom_opsets.get(d, 1)) for d in sorted(g.domains)]
    model = onnx.helper.make_model(made, opset_imports=opsets, producer_name="pytorch" if not dynamo else "pytorch")
    model.producer_version = "2.13.0"
    model.ir_version = ir_version or (10 if dynamo else IR_VERSION.get(g.opset, 10))
    return model


def _lift_constants(graph: OnnxGraph) -> None:
    """Turn Constant nodes into initializers, like parameters."""
    kept = []
    for node in graph.nodes:
        if (
            node.op_type == "Constant"
            and isinstance(node.attributes.get("value"), np.ndarray)
            and node.outputs[0] not in graph.outputs
        ):
            value = node.outputs[0]
            number = len(graph.parameters)
            while not value.name or value.name in graph.parameters:
                value.name, number = f"val_{number}", number + 1
            graph.parameters[value.name] = (value, tensor_of(node.attributes["value"]))
        else:
            kept.append(node)
    graph.nodes = kept
