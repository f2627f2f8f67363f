"""Helpers of several passes: names of targets, node orders."""

from __future__ import annotations

import heapq
import operator
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from ...core.tensor import Tensor
from ..graph import Graph
from ..graph_module import GraphModule
from ..names import module_name, qualified_name, type_repr
from ..node import Node

__all__ = ["get_acc_ops_name", "get_node_target", "is_node_output_tensor", "legalize_graph", "stable_topological_sort"]

Tensors = Any
TensorOrTensors = Any
NodeList = list[Node]
NodeSet = set[Node]
Names = list[str]
CALLABLE_NODE_OPS = {"call_module", "call_function", "call_method"}


def get_acc_ops_name(k: Any) -> str:
    """Return the name of a class or function; for one in `acc_ops`, the short name."""
    if isinstance(k, str):
        return k
    module = module_name(k) or ""
    if "acc_ops" in module:
        return f"acc_ops.{k.__name__}"
    return type_repr(k) if isinstance(k, type) else f"{module}.{k.__name__}"


def get_node_target(submodules: Mapping[str, Any], node: Node) -> str:
    """Return the target of a node's call as text: the class of a module, the name of a function or method."""
    if node.op not in CALLABLE_NODE_OPS:
        raise AssertionError("Expect op types of " + ", ".join(CALLABLE_NODE_OPS) + f", but found {node.op}")
    if node.op == "call_module":
        module = submodules[node.target]
        return get_acc_ops_name(getattr(module, "_base_class_origin", type(module)))
    if node.op == "call_method":
        return node.target
    if "acc_ops" in (getattr(node.target, "__module__", None) or ""):
        return f"acc_ops.{node.target.__name__}"
    return qualified_name(node.target)


def is_node_output_tensor(node: Node) -> bool:
    """Return whether shape propagation found that the node's result is a tensor."""
    kind = node.meta.get("type")
    return kind is not None and issubclass(kind, Tensor)


# Cheap ones on numbers and comparisons come as soon as they can: others wait for their checks.
_EARLY_FUNCTIONS = (
    operator.add, operator.mul, operator.sub, operator.floordiv, operator.truediv, operator.mod, operator.le, operator.lt,
    operator.ge, operator.gt, operator.eq, operator.ne,
)  # fmt: skip


class _Queue:
    """Queue of nodes in the order they became ready; calls of functions in `_EARLY_FUNCTIONS` come first."""

    def __init__(self) -> None:
        self.items: deque[Node] = deque()

    def push(self, node: Node, first: bool) -> None:
        if not first and node.op == "call_function" and node.target in _EARLY_FUNCTIONS:
            self.items.appendleft(node)
        else:
            self.items.append(node)

    def pop(self) -> Node | None:
        return self.items.popleft() if self.items else None


class _Heap:
    """A queue of nodes that yields them in their original order."""

    def __init__(self, nodes: Any) -> None:
        self.number = {node: i for i, node in enumerate(nodes)}
        self.items: list[int] = []
        self.nodes = list(nodes)

    def push(self, node: Node, first: bool) -> None:
        heapq.heappush(self.items, self.number[node])

    def pop(self) -> Node | None:
        return self.nodes[heapq.heappop(self.items)] if self.items else None


def _reorder(gm: GraphModule, ready: Any, failure: Callable[[str], Exception]) -> GraphModule:
    """Reorder the nodes topologically; the queue `ready` picks the next of the nodes whose inputs are placed."""
    waiting = {node: len(node.all_input_nodes) for node in gm.graph.nodes}
    for node, count in waiting.items():
        if count == 0:
            ready.push(node, True)
    graph = Graph(tracer_cls=gm.graph._tracer_cls)
    values: dict[Node, Node] = {}
    while (node := ready.pop()) is not None:
        values[node] = graph.node_copy(node, lambda n: values[n])
        for user in node.users:
            waiting[user] -= 1
            if waiting[user] == 0:
                ready.push(user, False)
    if len(values) < len(waiting):
        raise failure(f"Input graph has cycles, unable to add {[n for n, count in waiting.items() if count]}")
    graph._codegen = gm.graph._codegen
    gm.graph = graph
    return gm


def legalize_graph(gm: GraphModule) -> GraphModule:
    """Sort the nodes topologically: each after those it reads."""
    return _reorder(gm, _Queue(), RuntimeError)


def stable_topological_sort(gm: GraphModule) -> GraphModule:
    """Sort the nodes topologically, moving as few of them as possible."""
    return _reorder(gm, _Heap(gm.graph.nodes), AssertionError)
