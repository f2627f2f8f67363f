"""Functions written in onnxscript as translations of operators: their nodes are inlined into the graph."""

from __future__ import annotations

from typing import Any

from .builder import Builder, OnnxGraph, OnnxNode, Value
from .errors import OnnxExporterError
from .serialize import onnx_package


def call_function(g: Builder, function: Any, args: list[Any]) -> Any:
    """Write the nodes of an onnxscript function for these arguments."""
    proto = function.to_function_proto()
    onnx = onnx_package()
    given: dict[str, Any] = {}
    for name, value in zip(proto.input, args):
        given[name] = g.value(value)
    names = list(proto.attribute) + [a.name for a in proto.attribute_proto]
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in proto.attribute_proto}
    attributes.update(zip(names, args[len(proto.input) :]))
    _write(g, proto.node, given, attributes, onnx)
    results = tuple(given[name] for name in proto.output)
    return results[0] if len(results) == 1 else results


def _write(g: Builder, nodes: Any, known: dict[str, Any], attributes: dict[str, Any], onnx: Any) -> None:
    for proto in nodes:
        values: dict[str, Any] = {}
        for a in proto.attribute:
            if a.ref_attr_name:
                if attributes.get(a.ref_attr_name) is not None:
                    values[a.name] = attributes[a.ref_attr_name]
            elif a.type == onnx.AttributeProto.GRAPH:
                values[a.name] = _inner(g, a.g, known, attributes, onnx)
            elif a.type == onnx.AttributeProto.TENSOR:
                values[a.name] = onnx.numpy_helper.to_array(a.t)
            else:
                found = onnx.helper.get_attribute_value(a)
                values[a.name] = found.decode() if isinstance(found, bytes) else found
        missing = [n for n in proto.input if n and n not in known]
        if missing:
            raise OnnxExporterError(f"the onnxscript function reads {missing[0]!r}, which nothing makes")
        node = OnnxNode(
            proto.domain, proto.op_type, [known[n] if n else None for n in proto.input], values, len(proto.output)
        )
        node.scope = g.scope
        if node.domain:
            g.domains.add(node.domain)
        g.graph.nodes.append(node)
        known.update(zip(proto.output, node.outputs))


def _inner(g: Builder, proto: Any, known: dict[str, Any], attributes: dict[str, Any], onnx: Any) -> OnnxGraph:
    inner = g.inner(proto.name)
    inside = dict(known)
    for i in proto.input:
        value = Value("", None, None)
        inner.graph.inputs.append(value)
        inside[i.name] = value
    _write(inner, proto.node, inside, attributes, onnx)
    inner.graph.outputs = [inside[o.name] for o in proto.output]
    return inner.graph
