"""Common subexpression elimination: equal calls are made once."""

from __future__ import annotations

from typing import Any

from .....library.aten import aten
from .....utils._pytree import tree_flatten
from ....graph import Graph
from ....graph_module import GraphModule
from ....node import Node
from ...infra.pass_base import PassBase, PassResult

# Two calls of these are not the same as one: they draw random numbers, or change a tensor.
_RANDOM = (
    "dropout bernoulli multinomial native_dropout normal poisson binomial rrelu rand_like rand randint randn randperm"
)
_IN_PLACE = "add_ sub_ mul_ div_ pow_ lerp_ relu_ sigmoid_ tanh_"


def get_CSE_banned_ops() -> set[Any]:  # noqa: N802
    """Return the operators whose calls must not be merged."""
    return {getattr(aten, name) for name in f"{_RANDOM} {_IN_PLACE}".split()}


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
