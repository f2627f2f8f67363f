"""Small changes of graphs, and the memory sizes of their values."""

from __future__ import annotations

from typing import Any, NamedTuple

import flambeau

from ..graph import Graph
from ..graph_module import GraphModule
from ..node import Node, map_arg
from .shape_prop import ShapeProp, TensorMetadata

__all__ = ["get_size_of_all_nodes", "get_size_of_node", "get_tensor_meta", "replace_target_nodes_with", "size_bytes"]


def replace_target_nodes_with(
    fx_module: GraphModule, old_op: str, old_target: Any, new_op: str, new_target: Any
) -> None:
    """Replace one call target by another in all nodes."""
    graph = Graph()
    values: dict[Node, Node] = {}
    for node in fx_module.graph.nodes:
        if node.op == old_op and node.target == old_target:
            args = map_arg(node.args, lambda n: values[n])
            kwargs = map_arg(node.kwargs, lambda n: values[n])
            values[node] = graph.create_node(new_op, new_target, args, kwargs, node.name)
        else:
            values[node] = graph.node_copy(node, lambda n: values[n])
    fx_module.graph = graph


class size_bytes(NamedTuple):  # noqa: N801
    """Bytes of a node's result, and of the result together with its parameters."""

    output_size: int
    total_size: int


def get_size_of_all_nodes(fx_module: GraphModule, args: list | None = None) -> None:
    """Set `size_bytes` of all nodes; if `args` are given, the graph is run on them first."""
    if args is not None:
        ShapeProp(fx_module).propagate(*args)
    for node in fx_module.graph.nodes:
        if node.op == "output":
            break
        node.size_bytes = get_size_of_node(fx_module, node)


def get_tensor_meta(node: Node) -> TensorMetadata:
    """Return the metadata that ShapeProp stored for a node's result."""
    found = node.meta.get("tensor_meta")
    if not found:
        raise RuntimeError(
            f"Node {node} has no tensor metadata associated with it! Check that shape propagation has run."
        )
    return found


def get_size_of_node(fx_module: GraphModule, node: Node) -> size_bytes:
    """Return the bytes of a node's result, and of the result together with its parameters."""
    meta = get_tensor_meta(node)
    outputs = meta.shape.numel()
    parameters = 0
    if node.op == "call_module":
        parameters = sum(p.numel() for p in fx_module.get_submodule(node.target).parameters())
    width = flambeau.tensor([], dtype=meta.dtype).element_size()
    return size_bytes(width * outputs, width * (outputs + parameters))
