"""Helpers of several passes: names of targets, node orders, groups that must stay together."""

from __future__ import annotations

import heapq
import operator
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...core.tensor import Tensor
from ..graph import Graph
from ..graph_module import GraphModule
from ..names import module_name, qualified_name, type_repr
from ..node import Node

__all__ = [
    "FxNetAccFusionsFinder", "get_acc_ops_name", "get_node_target", "is_node_output_tensor", "legalize_graph",
    "stable_topological_sort",
]  # fmt: skip

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


class FxNetAccFusionsFinder:
    """Finds groups of nodes connected by values that are not tensors: they must run on one device."""

    def __init__(self, module: GraphModule, acc_nodes: NodeSet) -> None:
        self.module, self.acc_nodes = module, acc_nodes
        self.nodes = list(module.graph.nodes)
        self.node_index = {node: i for i, node in enumerate(self.nodes)}

    @dataclass
    class FusionGroup:
        """A group of nodes to fuse, during its construction."""

        top_node_idx: int
        nodes: NodeSet
        inputs: NodeSet
        nodes_need_process: NodeSet

        def add_node(self, node: Node) -> None:
            if node in self.nodes:
                return
            self.nodes_need_process.add(node)
            self.nodes.add(node)
            self.inputs.discard(node)
            self.inputs |= {n for n in node.all_input_nodes if n.op in CALLABLE_NODE_OPS and n not in self.nodes}

    def recursive_add_node(self, fusion_group: Any, inputs: Any, visited: NodeSet | None = None) -> bool:
        """Add the nodes on paths from the group through `inputs` back to it. Returns whether there is such a path."""
        for arg in list(inputs):
            if visited is not None:
                if arg in visited:
                    continue
                visited.add(arg)
            if arg.op not in CALLABLE_NODE_OPS or self.node_index[arg] < fusion_group.top_node_idx:
                continue
            if arg in fusion_group.nodes:
                return True
            if self.recursive_add_node(fusion_group, arg.all_input_nodes, visited):
                fusion_group.add_node(arg)
                return True
        return False

    def _grow(self, group: Any) -> None:
        while group.nodes_need_process:
            node = group.nodes_need_process.pop()
            self.recursive_add_node(group, group.inputs, set())
            near = [] if "tensor_meta" in node.meta else list(node.users)
            near += [arg for arg in node.all_input_nodes if "tensor_meta" not in arg.meta]
            for other in near:
                if other.op in CALLABLE_NODE_OPS and other not in group.nodes:
                    group.add_node(other)
                    group.top_node_idx = min(group.top_node_idx, self.node_index[other])
                    self.recursive_add_node(group, group.inputs, set())

    def __call__(self) -> dict[Node, NodeSet]:
        groups: dict[Node, NodeSet] = {}
        for node in list(self.acc_nodes):
            ours = node not in groups and node.op in CALLABLE_NODE_OPS and node in self.acc_nodes
            if not ours or "tensor_meta" in node.meta:
                continue
            group = self.FusionGroup(self.node_index[node], {node}, set(node.all_input_nodes), {node})
            self._grow(group)
            if group.nodes <= self.acc_nodes:
                groups.update(dict.fromkeys(group.nodes, group.nodes))
            else:
                self.acc_nodes -= group.nodes
        return groups


# Cheap ones on numbers and comparisons come as soon as they can: others wait for their checks.
_EARLY = (
    operator.add, operator.mul, operator.sub, operator.floordiv, operator.truediv, operator.mod, operator.le, operator.lt,
    operator.ge, operator.gt, operator.eq, operator.ne,
)  # fmt: skip


class _Queue:
    """Queue of nodes in the order they became ready; calls of functions in `_EARLY` come first."""

    def __init__(self) -> None:
        self.items: deque[Node] = deque()

    def push(self, node: Node, first: bool) -> None:
        if not first and node.op == "call_function" and node.target in _EARLY:
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


def _rearranged(gm: GraphModule, ready: Any, failure: Callable[[str], Exception]) -> GraphModule:
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
    return _rearranged(gm, _Queue(), RuntimeError)


def stable_topological_sort(gm: GraphModule) -> GraphModule:
    """Sort the nodes topologically, moving as few of them as possible."""
    return _rearranged(gm, _Heap(gm.graph.nodes), AssertionError)
