"""Partitioning of a graph into the largest groups of supported nodes, which become submodules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...graph_module import GraphModule
from ...names import qualified_name
from ...node import Node
from ..operator_support import OperatorSupportBase
from ..utils.fuser_utils import fuse_by_partitions


class Partition:
    """A group of nodes."""

    def __init__(
        self, id: int | None = None, nodes: Iterable[Node] | None = None, node_orders: Iterable[int] | None = None
    ) -> None:
        self.id = id
        self.nodes: dict[Node, int | None] = {}
        if nodes is not None:
            self.nodes = dict.fromkeys(nodes) if node_orders is None else dict(zip(nodes, node_orders))

    def __repr__(self) -> str:
        return str(self.nodes)

    def add_node(self, node: Node, node_order: int | None = None) -> None:
        self.nodes[node] = node_order

    def remove_node(self, node: Node) -> None:
        del self.nodes[node]

    def size(self) -> int:
        return len(self.nodes)


class CapabilityBasedPartitioner:
    """Partition the supported nodes of a graph into as few groups as possible, each of which can run as a unit."""

    def __init__(
        self,
        graph_module: GraphModule,
        operator_support: OperatorSupportBase,
        allows_single_node_partition: bool = False,
        non_compute_ops: Sequence[str] | None = None,
        allowed_single_node_partition_ops: Sequence[str] | None = None,
        skip_horizontal_fusion: bool = False,
    ) -> None:
        self.graph_module, self.operator_support = graph_module, operator_support
        self.allows_single_node_partition = allows_single_node_partition
        self.non_compute_ops = non_compute_ops or []
        self.allowed_single_node_partition_ops = allowed_single_node_partition_ops or []
        self.skip_horizontal_fusion = skip_horizontal_fusion

    def _is_node_supported(self, node: Node) -> bool:
        return self.operator_support.is_node_supported(dict(self.graph_module.named_modules()), node)

    def propose_partitions(self) -> list[Partition]:
        """Return the groups, in reverse order of the graph."""
        groups = _Groups(self.graph_module)
        for node in reversed(self.graph_module.graph.nodes):
            if node.op in ("placeholder", "output") or not self._is_node_supported(node):
                continue
            current = groups.new(node)
            for other in groups.candidates(node, current, self.skip_horizontal_fusion):
                current = groups.merge(current, other)
        groups.join_tuples()
        found = [p for p in groups.partitions() if self.allows_single_node_partition or self._is_worthwhile(p)]
        return [p for p in found if p.size() > 0]

    def _is_worthwhile(self, partition: Partition) -> bool:
        """Return whether a partition has more than one node that computes."""
        free = {"torch.ops.aten.view", "_operator.getitem", *self.non_compute_ops}
        names = [qualified_name(n.target) for n in partition.nodes if n.op == "call_function"]
        count = sum(name not in free for name in names)
        return count + sum(name in self.allowed_single_node_partition_ops for name in names) > 1

    def fuse_partitions(self, partitions: list[Partition], prefix: str = "fused_") -> GraphModule:
        """Make each group a submodule."""
        return fuse_by_partitions(self.graph_module, [p.nodes for p in partitions], prefix=prefix)

    def partition_and_fuse(self, prefix: str = "fused_") -> GraphModule:
        """Find groups and make each a submodule."""
        return self.fuse_partitions(self.propose_partitions(), prefix=prefix)

    def remove_bookend_non_compute_ops(self, partitions: list[Partition]) -> None:
        """Remove nodes that do not compute from the beginning and the end of groups."""
        free = set(self.non_compute_ops)
        for partition in partitions:
            for direction in ("all_input_nodes", "users"):
                self._trim(partition, free, direction)

    @staticmethod
    def _trim(partition: Partition, free: set[str], direction: str) -> None:
        trimmed = True
        while trimmed:
            trimmed = False
            for node in list(partition.nodes):
                is_free = node.op == "call_function" and qualified_name(node.target) in free
                if is_free and not any(n in partition.nodes for n in getattr(node, direction)):
                    partition.remove_node(node)
                    trimmed = True


class _Groups:
    """Groups of nodes, and the order between groups."""

    def __init__(self, module: GraphModule) -> None:
        self.module = module
        self.order = {node: i for i, node in enumerate(module.graph.nodes)}
        self.after: dict[Node, set[Node]] = {}
        for node in reversed(module.graph.nodes):
            self.after[node] = set(node.users).union(*(self.after[user] for user in node.users))
        self.members: dict[int, set[Node]] = {}
        self.group_of: dict[Node, int] = {}
        self.next_id = 0

    def new(self, node: Node) -> int:
        number, self.next_id = self.next_id, self.next_id + 1
        self.members[number] = {node}
        self.group_of[node] = number
        return number

    def candidates(self, node: Node, current: int, only_users: bool) -> list[int]:
        """Return the groups that a node's group may merge with, in the order of their creation."""
        if only_users:
            return list(dict.fromkeys(self.group_of[u] for u in node.users if u in self.group_of))
        return [number for number in sorted(self.members) if number != current]

    def merge(self, first: int, second: int) -> int:
        """Merge two groups, unless a node outside depends on one and is needed by the other."""
        if first == second:
            return first
        together = self.members[first] | self.members[second]
        if self._reaches_itself(together, {first, second}):
            return first
        kept, gone = (first, second) if len(self.members[first]) >= len(self.members[second]) else (second, first)
        for node in self.members.pop(gone):
            self.group_of[node] = kept
        self.members[kept] = together
        return kept

    def _reaches_itself(self, nodes: set[Node], own: set[int]) -> bool:
        """Return whether a path leaves the nodes and returns to them; another group on the path counts as one node."""
        waiting = [user for node in nodes for user in node.users if user not in nodes]
        seen: set[Node] = set()
        while waiting:
            node = waiting.pop()
            if node in nodes:
                return True
            if node in seen:
                continue
            seen.add(node)
            waiting += node.users
            group = self.group_of.get(node)
            if group is not None and group not in own:
                waiting += [u for member in self.members[group] for u in member.users if u not in self.members[group]]
        return False

    def join_tuples(self) -> None:
        """Move `getitem` nodes into the group of the node that makes the tuple."""
        changed = True
        while changed:
            changed = False
            for node in self.module.graph.nodes:
                names = {qualified_name(user.target) if user.op == "call_function" else "" for user in node.users}
                if names != {"_operator.getitem"}:
                    continue
                group = self.group_of.get(node)
                for user in node.users:
                    if self.group_of.get(user) != group:
                        self._move(user, group)
                        changed = True

    def _move(self, node: Node, group: int | None) -> None:
        if node in self.group_of:
            self.members[self.group_of.pop(node)].discard(node)
        if group is not None:
            self.members[group].add(node)
            self.group_of[node] = group

    def partitions(self) -> list[Partition]:
        found: list[Any] = []
        for number, nodes in self.members.items():
            ordered = sorted(nodes, key=self.order.__getitem__)
            found.append(Partition(number, ordered, [self.order[n] for n in ordered]))
        return found
