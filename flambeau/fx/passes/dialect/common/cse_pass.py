"""Common subexpression elimination: equal calls are made once."""

from __future__ import annotations

from typing import Any

from .....library.aten import aten
from .....library.aten.resolver import draws
from .....ops.machinery.schema_table import aten_names, overloads_of, schema_of
from .....utils._pytree import tree_flatten
from ....graph import Graph
from ....graph_module import GraphModule
from ....node import Node
from ...infra.pass_base import PassBase, PassResult


def get_CSE_banned_ops() -> set[Any]:  # noqa: N802
    """Return the operators whose calls must not be merged: those that draw random numbers or change a tensor."""
    return {getattr(aten, name) for name in aten_names() if draws(name) or _is_in_place(name)}


def _is_in_place(name: str) -> bool:
    schemas = [schema_of(name, overload) for overload in overloads_of(name)]
    return any(schema.is_mutable and not schema.is_out for schema in schemas)


def _token(node: Node, values: dict[Node, Node]) -> tuple:
    """Return a key that is equal for nodes that compute the same: target and arguments, with known duplicates replaced."""
    leaves, shape = tree_flatten((node.args, dict(node.kwargs)))
    return node.op, node.target, tuple((type(v), values.get(v, v) if isinstance(v, Node) else v) for v in leaves), shape


class CSEPass(PassBase):
    """Merges equal calls, except those of `banned_ops`."""

    def __init__(self, banned_ops: set[Any] | None = None) -> None:
        self.banned_ops = banned_ops or set()

    def call(self, graph_module: GraphModule) -> PassResult:
        graph = Graph()
        values: dict[Node, Node] = {}
        seen: dict[tuple, Node] = {}
        for node in graph_module.graph.nodes:
            joined = node.op not in ("placeholder", "output", "get_attr")
            joined = joined and getattr(node.target, "overloadpacket", node.target) not in self.banned_ops
            token = _token(node, values) if joined else None
            if token is not None and token in seen:
                values[node] = seen[token]
                continue
            values[node] = graph.node_copy(node, lambda n: values[n])
            if token is not None:
                seen[token] = values[node]
        if len(graph.nodes) == len(graph_module.graph.nodes):
            return PassResult(graph_module, False)
        return PassResult(GraphModule(graph_module, graph), True)
