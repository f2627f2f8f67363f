"""Matching with names: a pattern that also returns a dict of names and values."""

from __future__ import annotations

from typing import Any

from ....utils._pytree import tree_flatten, tree_unflatten
from ...graph import Graph
from ...graph_module import GraphModule
from ...node import Node
from ...pytree_codegen import _PyTreeCodeGen
from .matcher_utils import InternalMatch, SubgraphMatcher

__all__ = ["SubgraphMatcherWithNameNodeMap"]


def _split_to_graph_and_name_node_map(gm: GraphModule) -> tuple[GraphModule, dict[str, Node]]:
    """Remove the name-to-node dict, the last returned value, from the output."""
    output = gm.graph.output_node()
    codegen = gm.graph._codegen
    nested = isinstance(codegen, _PyTreeCodeGen) and codegen.pytree_info.out_spec is not None
    values = tree_unflatten(list(output.args[0]), codegen.pytree_info.out_spec) if nested else output.args[0]  # type: ignore[attr-defined]
    if not isinstance(values, tuple):
        raise AssertionError("Expecting the pattern graph to return a tuple")
    if len(values) < 2:
        raise AssertionError("Expecting the pattern graph to have at least two outputs")
    *results, names = values
    if not isinstance(names, dict):
        raise AssertionError("Expecting the input graph to have a dict output as the last element")
    leaves, shape = tree_flatten(results)
    output.args = (leaves,)
    if isinstance(codegen, _PyTreeCodeGen):
        codegen.pytree_info = codegen.pytree_info._replace(out_spec=shape)
    gm.recompile()
    return gm, dict(names)


class SubgraphMatcherWithNameNodeMap(SubgraphMatcher):
    """Finds a pattern that names some of its nodes; `name_node_map` of a match has those of the graph."""

    def __init__(
        self,
        pattern_gm: GraphModule,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
    ) -> None:
        module, self.name_node_map = _split_to_graph_and_name_node_map(pattern_gm)
        self.pattern_gm = module
        super().__init__(module.graph, match_output, match_placeholder, remove_overlapping_matches, ignore_literals)

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        matches = super().match(graph, node_name_match)
        for match in matches:
            found: dict[str, Any] = {name: match.nodes_map[node] for name, node in self.name_node_map.items()}
            match.name_node_map = found
        return matches
