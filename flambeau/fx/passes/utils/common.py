"""Conversion of a subgraph to a module, and comparison of graphs."""

from __future__ import annotations

from typing import Any

from ....nn import Module
from ...graph import Graph
from ...graph_module import GraphModule
from .matcher_utils import SubgraphMatcher

__all__ = ["HolderModule", "compare_graphs", "lift_subgraph_as_module"]


class HolderModule(Module):
    """A module that only contains other modules."""

    def __init__(self, d: dict[str, Any]) -> None:
        super().__init__()
        for name, module in d.items():
            self.add_module(name, module)


def lift_subgraph_as_module(
    gm: GraphModule, subgraph: Graph, comp_name: str = "", class_name: str = "GraphModule"
) -> tuple[GraphModule, dict[str, str]]:
    """Return a module for a graph that refers to attributes of `gm`, and the new paths (within `comp_name`) of those attributes."""
    holder = HolderModule({})
    paths: dict[str, str] = {}
    for node in subgraph.nodes:
        if node.op not in ("call_module", "get_attr"):
            continue
        *prefix, field = node.target.split(".")
        owner: Any = holder
        original: Any = gm
        for name in prefix:
            if not hasattr(owner, name):
                owner.add_module(name, HolderModule({}))
            owner, original = getattr(owner, name), getattr(original, name)
        paths[node.target] = f"{comp_name}.{node.target}"
        setattr(owner, field, getattr(original, field))
    return GraphModule(holder, subgraph, class_name), paths


def compare_graphs(left: Graph, right: Graph) -> bool:
    """Return whether two graphs have the same nodes."""
    return bool(SubgraphMatcher(left, match_output=True, match_placeholder=True).match(right))
