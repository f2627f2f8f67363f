"""Search for the nodes that come from one call of a layer or function of the original program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...graph import Graph
from ...names import type_repr
from ...node import Node

__all__ = ["SourcePartition", "check_subgraphs_connected", "get_source_partitions"]


@dataclass
class SourcePartition:
    """The nodes of one call, with its inputs, outputs and parameters."""

    nodes: list[Node]
    source: Any
    input_nodes: list[Node] = field(default_factory=list)
    output_nodes: list[Node] = field(default_factory=list)
    params: list[Node] = field(default_factory=list)


def _source_of(node: Node, wanted: list[Any]) -> tuple[Any, str] | None:
    """Return the wanted source (a function or module type) that a node comes from, and the name of that call; None if there is none."""
    stack = node.meta.get("source_fn_stack")
    if stack is not None:
        return (stack[-1][1], stack[-1][0]) if stack[-1][1] in wanted else None
    if node.meta.get("torch_fn") is not None:
        call, function = node.meta["torch_fn"]
        name = function.split(".")[1]
        if name in wanted:
            return name, call
    modules = node.meta.get("nn_module_stack")
    if node.op != "call_function" or not modules:
        return None
    path, kind = list(modules.values())[-1]
    for source in wanted:
        if source == kind or (isinstance(source, type) and _is_of(kind, source)):
            return source, path
    return None


def _is_of(kind: Any, source: type) -> bool:
    return issubclass(kind, source) if isinstance(kind, type) else kind == type_repr(source)


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
    """Return the groups of nodes that came from each wanted layer class or function (or its name)."""
    found: dict[Any, dict[str, list[Node]]] = {}
    for node in graph.nodes:
        source = _source_of(node, wanted_sources)
        if source is not None:
            found.setdefault(source[0], {}).setdefault(source[1], []).append(node)
    return {
        kind: [_partition(nodes, kind) for nodes in groups.values() if filter_fn is None or all(map(filter_fn, nodes))]
        for kind, groups in found.items()
    }


def check_subgraphs_connected(subgraph1: SourcePartition, subgraph2: SourcePartition) -> bool:
    """Return whether the second subgraph reads a value of the first."""
    return any(user in subgraph2.nodes for node in subgraph1.nodes for user in node.users)
