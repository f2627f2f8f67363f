"""Finding the nodes that come from one call of a layer or function of the original program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...graph import Graph
from ...node import Node

__all__ = ["SourcePartition", "check_subgraphs_connected", "get_source_partitions"]


@dataclass
class SourcePartition:
    """The nodes of one call, what they read, whose values others read, and the parameters among them."""

    nodes: list[Node]
    source: Any
    input_nodes: list[Node] = field(default_factory=list)
    output_nodes: list[Node] = field(default_factory=list)
    params: list[Node] = field(default_factory=list)


def _source_of(node: Node) -> tuple[str, Any] | None:
    stack = node.meta.get("source_fn_stack") or node.meta.get("torch_fn")
    if node.op == "get_attr" and stack is None:
        stack = next((u.meta["source_fn_stack"] for u in node.users if "source_fn_stack" in u.meta), None)
    if isinstance(stack, list) and stack:
        return stack[-1]
    return None


def _partition(nodes: list[Node], source: Any) -> SourcePartition:
    params = [n for n in nodes if n.op == "get_attr"]
    inputs: dict[Node, None] = {}
    outputs: dict[Node, None] = {}
    for node in nodes:
        for arg in node.args:
            if isinstance(arg, Node) and arg not in nodes and arg.op != "get_attr":
                inputs.setdefault(arg)
        if node.op != "get_attr" and any(user not in nodes for user in node.users):
            outputs.setdefault(node)
    return SourcePartition(nodes, source, list(inputs), list(outputs), params)


def get_source_partitions(
    graph: Graph, wanted_sources: list[Any], filter_fn: Callable[[Node], bool] | None = None
) -> dict[Any, list[SourcePartition]]:
    """For each wanted layer class or function, the groups of nodes that its calls became."""
    found: dict[Any, dict[str, list[Node]]] = {}
    for node in graph.nodes:
        source = _source_of(node)
        if source is not None and source[1] in wanted_sources:
            found.setdefault(source[1], {}).setdefault(source[0], []).append(node)
    return {
        kind: [_partition(nodes, kind) for nodes in groups.values() if filter_fn is None or all(map(filter_fn, nodes))]
        for kind, groups in found.items()
    }


def check_subgraphs_connected(subgraph1: SourcePartition, subgraph2: SourcePartition) -> bool:
    """Whether the second reads a value of the first."""
    return any(user in subgraph2.nodes for node in subgraph1.nodes for user in node.users)
