"""Graph of a network for TensorBoard: its operations, grouped by module."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from tensorboard.compat.proto.attr_value_pb2 import AttrValue
from tensorboard.compat.proto.config_pb2 import RunMetadata
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.compat.proto.node_def_pb2 import NodeDef
from tensorboard.compat.proto.step_stats_pb2 import DeviceStepStats, StepStats
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.versions_pb2 import VersionDef

from ...core import naming
from ...nn import Module
from ...nn.unchanged import unchanged


def _paths(model: Module) -> dict[int, str]:
    """Return the name of each module in the graph, by id: `Net`, `Sequential[conv1]`."""
    found = {id(model): type(model).__name__}
    for module in model.modules():
        for place, child in module.named_children():
            found.setdefault(id(child), f"{type(child).__name__}[{place}]")
    return found


def graph(
    model: Module, args: Any, verbose: bool = False, use_strict_trace: bool = True
) -> tuple[GraphDef, RunMetadata]:
    """Return the graph of what the model computes for these arguments in evaluation mode: TensorBoard's nodes, and its device
    statistics."""
    trace = naming.above("jit.trace_graph")._get_trace_graph
    given = tuple(args) if isinstance(args, (list, tuple)) else (args,)
    paths = _paths(model)
    with unchanged(model, training=False):
        recorded, _ = trace(
            model, given, strict=use_strict_trace, _scope_of=lambda m: paths.get(id(m), type(m).__name__)
        )
    if verbose:
        print(recorded)
    nodes = list(_nodes(recorded, model, len(given)))
    stats = RunMetadata(step_stats=StepStats(dev_stats=[DeviceStepStats(device="/device:CPU:0")]))
    return GraphDef(node=nodes, versions=VersionDef(producer=22)), stats


def _nodes(recorded: Any, model: Module, count: int) -> Iterator[NodeDef]:
    names: dict[Any, str] = {}
    inputs = list(recorded.inputs())
    state = {id(value): name for name, value in model.state_dict(keep_vars=True).items()}
    paths = _full_paths(model)
    for value in inputs[:count]:
        names[value] = f"input/{value.debugName()}"
        yield _node(names[value], "IO Node", [], _sizes(value), "{}")
    for value, name in zip(inputs[count:], state.values()):
        owner, _, last = name.rpartition(".")
        names[value] = f"{paths[owner]}/{last}/{value.debugName()}"
        yield _node(names[value], "prim::GetAttr", [], None, f"{{ name : {last}}}")
    for node in recorded.nodes():
        scope = f"{node.scopeName()}/" if node.scopeName() else ""
        for value in node.outputs():
            names[value] = scope + value.debugName()
        attributes = ", ".join(f"{name} : {node[name]}" for name in node.attributeNames())
        for value in node.outputs():
            sources = [names[v] for v in node.inputs() if v in names]
            yield _node(names[value], node.kind(), sources, _sizes(value), f"{{ {attributes}}}" if attributes else "{}")
    for i, value in enumerate(recorded.outputs(), 1):
        yield _node(f"output/output.{i}", "IO Node", [names[value]], _sizes(value), "{}")


def _full_paths(model: Module) -> dict[str, str]:
    """Return module paths in TensorBoard's form: `conv1.0` -> `Net/Sequential[conv1]/Conv2d[0]`."""
    found = {"": type(model).__name__}
    for name, module in model.named_modules():
        if name:
            around, _, last = name.rpartition(".")
            found[name] = f"{found[around]}/{type(module).__name__}[{last}]"
    return found


def _sizes(value: Any) -> list[int] | None:
    return value.type().sizes() if value.isCompleteTensor() else None


def _node(name: str, kind: str, inputs: list[str], sizes: list[int] | None, attributes: str) -> NodeDef:
    about = {"attr": AttrValue(s=attributes.encode())}
    if sizes is not None:
        shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=n) for n in sizes])
        about["_output_shapes"] = AttrValue(list=AttrValue.ListValue(shape=[shape]))
    return NodeDef(name=name, op=kind, input=inputs, attr=about)


def of_onnx(path: Any) -> GraphDef:
    """Read the graph of an ONNX file."""
    try:
        onnx = importlib.import_module("onnx")
    except ImportError:
        raise ImportError("add_onnx_graph needs the package onnx: pip install onnx", name="onnx") from None
    found = onnx.load(path).graph
    nodes = []
    for value in (*found.input, *found.output):
        sizes = [d.dim_value for d in value.type.tensor_type.shape.dim]
        nodes.append(_node(value.name, "Variable", [], sizes, ""))
    for node in found.node:
        about = ", ".join(str(attribute).replace("\n", " ") for attribute in node.attribute)
        nodes.append(_node(node.output[0], node.op_type, list(node.input), None, about))
    return GraphDef(node=nodes, versions=VersionDef(producer=22))
