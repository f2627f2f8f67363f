"""Search and replace in graphs: every place that looks like a pattern becomes something else.

>>> traced = symbolic_trace(lambda x: flambeau.relu(x) + 1)
>>> matches = replace_pattern(traced, lambda x: flambeau.relu(x), lambda x: flambeau.sigmoid(x))
>>> print(traced.code.strip())
def forward(self, x):
    sigmoid = torch.sigmoid(x);  x = None
    add = sigmoid + 1;  sigmoid = None
    return add
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..nn import Module
from ._symbolic_trace import symbolic_trace
from .graph import Graph
from .graph_module import GraphModule
from .node import Node
from .passes import utils

__all__ = ["Match", "ReplacedPatterns", "replace_pattern", "replace_pattern_with_filters"]

MatchFilter = Callable[[utils.matcher_utils.InternalMatch, Graph, Graph], bool]


class Match(NamedTuple):
    """A match of the pattern: the node that matches the pattern's last one, and the map from pattern nodes to graph nodes."""

    anchor: Node
    nodes_map: dict[Node, Node]


@dataclass
class ReplacedPatterns:
    """A Match, and the nodes that replaced it."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node]


def replace_pattern(gm: GraphModule, pattern: Any, replacement: Any) -> list[Match]:
    """Replace subgraphs that match `pattern`, a function or module with the same parameters as `replacement`. Matches that overlap
    an earlier one are left alone."""
    return [Match(m.anchor, m.nodes_map) for m in replace_pattern_with_filters(gm, pattern, replacement)]


def replace_pattern_with_filters(
    gm: GraphModule,
    pattern: Any,
    replacement: Any = None,
    match_filters: list[MatchFilter] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[[utils.matcher_utils.InternalMatch, Graph, Graph], Graph] | None = None,
    node_name_match: str = "",
) -> list[ReplacedPatterns]:
    """Replace subgraphs that match `pattern` and pass all filters. With `ignore_literals`, constants may differ.
    `replacement_callback` makes a graph for each match, instead of `replacement`."""
    pattern_graph = _graph_of(pattern)
    matcher = utils.matcher_utils.SubgraphMatcher(pattern_graph, ignore_literals=ignore_literals)
    matches = matcher.match(gm.graph, node_name_match=node_name_match)
    matches = [m for m in matches if all(agrees(m, gm.graph, pattern_graph) for agrees in match_filters or ())]
    common = None if replacement is None else _graph_of(replacement)
    if common is None and replacement_callback is None:
        raise AssertionError("Must provide either a replacement GraphModule or a replacement callback")
    renewed: dict[Node, Node] = {}
    replaced = []
    for match in matches:
        new = replacement_callback(match, gm.graph, pattern_graph) if replacement_callback is not None else common
        assert new is not None
        nodes = _replace(gm.graph, match, pattern_graph, new, renewed)
        replaced.append(ReplacedPatterns(match.anchors[0], match.nodes_map, nodes))
    gm.recompile()
    if isinstance(replacement, Module):
        _copy_attributes(gm, replacement)
    return replaced


def _graph_of(program: Any) -> Graph:
    if isinstance(program, GraphModule):
        return program.graph
    return program if isinstance(program, Graph) else symbolic_trace(program).graph


def _replace(
    graph: Graph,
    match: utils.matcher_utils.InternalMatch,
    pattern: Graph,
    replacement: Graph,
    renewed: dict[Node, Node],
) -> list[Node]:
    """Insert a copy of `replacement` in place of a match. `renewed` maps nodes removed by earlier replacements to
    their successors. Returns the new nodes."""
    parameters = [n for n in replacement.nodes if n.op == "placeholder"]
    if len(parameters) != len(match.placeholder_nodes):
        raise AssertionError(f"Placeholder count mismatch: {len(match.placeholder_nodes)} vs {len(parameters)}")
    match.nodes_map = {k: renewed.get(v, v) if isinstance(v, Node) else v for k, v in match.nodes_map.items()}
    match.placeholder_nodes = [renewed.get(n, n) if isinstance(n, Node) else n for n in match.placeholder_nodes]
    values: dict[Node, Any] = dict(zip(parameters, match.placeholder_nodes))
    with graph.inserting_before(_insertion_point(graph, match)):
        result = graph.graph_copy(replacement, values)
    results = (result,) if isinstance(result, Node) else result
    if len(match.returning_nodes) != len(results):
        raise AssertionError(f"Returning nodes count mismatch: {len(match.returning_nodes)} vs {len(results)}")
    for old, new in zip(match.returning_nodes, results):
        old.replace_all_uses_with(new)
        renewed[old] = new
    for node in reversed(pattern.nodes):
        if node.op not in ("placeholder", "output"):
            graph.erase_node(match.nodes_map[node])
    return [node for node in values.values() if not any(node is given for given in match.placeholder_nodes)]


def _insertion_point(graph: Graph, match: utils.matcher_utils.InternalMatch) -> Node:
    """Return the node before which to insert a replacement: the first that reads a result, else the one after the last result."""
    users = {user for node in match.returning_nodes for user in node.users}
    if users:
        return next(node for node in graph.nodes if node in users)
    last = next(node for node in reversed(graph.nodes) if node in match.returning_nodes)
    return last.next


def _submodule_at(module: Module, path: str) -> Any:
    owner, _, name = path.rpartition(".")
    try:
        return getattr(module.get_submodule(owner), name, None)
    except AttributeError:
        return None


def _copy_attributes(gm: GraphModule, replacement: Module) -> None:
    """Copy the submodules and parameters that the replacement refers to into the module."""
    gm.delete_all_unused_submodules()
    for node in gm.graph.nodes:
        if node.op not in ("call_module", "get_attr") or _submodule_at(gm, node.target) is not None:
            continue
        value = _submodule_at(replacement, node.target)
        if value is None:
            raise RuntimeError(
                'Attempted to create a "',
                node.op,
                f'" node during subgraph rewriting with target {node.target}, but the referenced attribute does not exist in'
                " the replacement GraphModule",
            )
        copied = copy.deepcopy(value)
        if isinstance(value, Module):
            gm.add_submodule(node.target, copied)
        else:
            setattr(gm, node.target, copied)
    gm.graph.lint()
