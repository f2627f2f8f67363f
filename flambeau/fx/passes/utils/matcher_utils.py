"""Subgraph matching: find the places of a graph that match a small pattern graph."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ....core.tensor import Tensor
from ...graph import Graph
from ...graph_module import _get_attr
from ...node import Node
from .validation import validate_partition

__all__ = ["InternalMatch", "SubgraphMatcher"]


@dataclass
class InternalMatch:
    """A match of a pattern in a graph: which node of the graph matches each node of the pattern."""

    anchors: list[Node]  # the pattern's last nodes
    nodes_map: dict[Node, Any] = field(default_factory=dict)  # from the pattern's nodes to the graph's
    placeholder_nodes: list[Any] = field(default_factory=list)  # the nodes that match the pattern's inputs
    returning_nodes: list[Node] = field(default_factory=list)  # the nodes that match its outputs
    name_node_map: dict[str, Node] = field(default_factory=dict)

    def __copy__(self) -> InternalMatch:
        return InternalMatch(
            self.anchors, dict(self.nodes_map), list(self.placeholder_nodes), list(self.returning_nodes)
        )


def _all_arguments(node: Node) -> list[Any]:
    """Return every argument that an operator's schema has, with defaults."""
    found = []
    for position, argument in enumerate(node.target._schema.arguments):
        if argument.name in node.kwargs:
            found.append(node.kwargs[argument.name])
        elif not argument.kwarg_only and position < len(node.args):
            found.append(node.args[position])
        else:
            found.append(argument.default_value)
    return found


def _pair_arguments(pn: Node, gn: Node) -> tuple[list, list] | None:
    """Return the arguments of both nodes in the same order; None if they cannot be compared."""
    if len(pn.args) == len(gn.args) and list(pn.kwargs) == list(gn.kwargs):
        return [*pn.args, *pn.kwargs.values()], [*gn.args, *gn.kwargs.values()]
    if pn.op == "call_function" and hasattr(pn.target, "_schema"):
        return _all_arguments(pn), _all_arguments(gn)
    return None


class SubgraphMatcher:
    """Finds a pattern in graphs. Inputs of the pattern match anything; its inner values must have no users outside of the match, unless
    they are outputs."""

    def __init__(
        self,
        pattern: Graph,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
    ) -> None:
        if len(pattern.nodes) == 0:
            raise ValueError("SubgraphMatcher cannot be initialized with an empty pattern")
        for node in pattern.nodes:
            if node.op != "output" and not node.is_impure() and not node.users:
                raise AssertionError("SubgraphMatcher cannot be initialized with an pattern with dead code")
        self.pattern, self.match_output, self.match_placeholder = pattern, match_output, match_placeholder
        self.remove_overlapping_matches, self.ignore_literals = remove_overlapping_matches, ignore_literals
        self.pattern_placeholder_nodes = [n for n in pattern.nodes if n.op == "placeholder"]
        output = next(iter(reversed(pattern.nodes)))
        self.pattern_returning_nodes = output.all_input_nodes
        only_returned = [n for n in output.all_input_nodes if len(n.users) == 1]
        self.pattern_anchors = [output] if match_output else only_returned

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        """Return the matches in a graph, in the order of their first output."""
        candidates = [
            (anchor, [n for n in graph.nodes if self._nodes_are_equal(anchor, n, node_name_match)])
            for anchor in self.pattern_anchors
        ]
        candidates = [(anchor, nodes) for anchor, nodes in candidates if nodes]
        if not candidates:
            return []
        matches = list(self._search(candidates, InternalMatch(self.pattern_anchors), node_name_match))
        matches = [m for m in matches if self._is_contained(m.nodes_map) and validate_partition(_compute_nodes(m))]
        return _drop_overlapping(matches) if self.remove_overlapping_matches else matches

    def _search(self, candidates: list, match: InternalMatch, name: str) -> Iterator[InternalMatch]:
        if not candidates:
            match.placeholder_nodes = [match.nodes_map[pn] for pn in self.pattern_placeholder_nodes]
            match.returning_nodes = [match.nodes_map[pn] for pn in self.pattern_returning_nodes]
            yield match
            return
        (anchor, nodes), *rest = candidates
        for node in nodes:
            attempt = copy.copy(match)
            if self._match_nodes(anchor, node, attempt, name):
                yield from self._search(rest, attempt, name)

    def _nodes_are_equal(self, pn: Node, gn: Node, node_name_match: str = "") -> bool:
        if not self.match_placeholder and pn.op == "placeholder":
            return True
        if node_name_match and node_name_match in gn.name:
            return True
        if pn.op != gn.op:
            return False
        if pn.op in ("placeholder", "output"):
            return True
        return self._match_attributes(pn, gn) if pn.op == "get_attr" else pn.target == gn.target

    def _match_attributes(self, pn: Node, gn: Node) -> bool:
        mine = _get_attr(pn.graph.owning_module, pn.target)
        other = _get_attr(gn.graph.owning_module, gn.target)
        if type(mine) is not type(other):
            return False
        if isinstance(mine, Tensor):
            return True
        raise RuntimeError(f"Unsupported type {mine} when matching attributes")

    def _match_nodes(self, pn: Node, gn: Node, match: InternalMatch, node_name_match: str = "") -> bool:
        if pn in match.nodes_map:
            return match.nodes_map[pn] is gn
        if any(gn is known for known in match.nodes_map.values()):
            return False
        if not self._nodes_are_equal(pn, gn, node_name_match):
            return False
        match.nodes_map[pn] = gn
        if pn.op == "placeholder":
            return True
        pair = _pair_arguments(pn, gn)
        return pair is not None and self._match_arguments(*pair, match)

    def _match_arguments(self, wanted: Any, given: Any, match: InternalMatch) -> bool:
        return len(wanted) == len(given) and all(self._match_argument(p, g, match) for p, g in zip(wanted, given))

    def _match_argument(self, wanted: Any, given: Any, match: InternalMatch) -> bool:
        if isinstance(wanted, Node) and isinstance(given, Node):
            return self._match_nodes(wanted, given, match)
        if isinstance(wanted, (list, tuple)) and isinstance(given, (list, tuple)):
            return self._match_arguments(wanted, given, match)
        return self._match_literals(wanted, given, match) or self.ignore_literals

    def _match_literals(self, wanted: Any, given: Any, match: InternalMatch) -> bool:
        if isinstance(wanted, Node):
            if wanted.op != "placeholder":
                return False
            if wanted in match.nodes_map:
                return match.nodes_map[wanted] == given
            match.nodes_map[wanted] = given
            return True
        return not isinstance(given, Node) and type(given) is type(wanted) and given == wanted

    def _is_contained(self, nodes_map: dict[Node, Any]) -> bool:
        """Return whether no node outside of the match reads an inner value."""
        inner = {gn: pn for pn, gn in nodes_map.items() if pn.op != "placeholder"}
        return all(
            pn in self.pattern_returning_nodes or all(user in inner for user in gn.users) for gn, pn in inner.items()
        )


def _compute_nodes(match: InternalMatch) -> list[Node]:
    return [gn for pn, gn in match.nodes_map.items() if pn.op not in ("placeholder", "output")]


def _drop_overlapping(matches: list[InternalMatch]) -> list[InternalMatch]:
    taken: set[Node] = set()
    kept = []
    for match in matches:
        nodes = _compute_nodes(match)
        if taken.isdisjoint(nodes):
            taken.update(nodes)
            kept.append(match)
    return kept
