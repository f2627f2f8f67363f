"""Splitting of a graph into modules by the tags of its nodes."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from ...nn import ModuleList
from ..graph import Graph
from ..graph_module import GraphModule
from ..node import Node, map_arg
from ..proxy import Proxy
from .utils.common import HolderModule, lift_subgraph_as_module

__all__ = ["Component", "getattr_recursive", "setattr_recursive", "split_by_tags"]


def getattr_recursive(obj: Any, name: str) -> Any:
    """Return the attribute at a dotted path, or None."""
    for part in name.split("."):
        obj = obj._modules.get(part) if isinstance(obj, ModuleList) else getattr(obj, part, None)
        if obj is None:
            return None
    return obj


def setattr_recursive(obj: Any, attr: str, value: Any) -> None:
    """Set the attribute at a dotted path."""
    *prefix, last = attr.split(".")
    for part in prefix:
        obj = getattr(obj, part)
    setattr(obj, last, value)


@dataclass
class Component:
    """The nodes with one tag, which become a submodule."""

    graph: Graph
    order: int
    name: str
    input_placeholders: list[Node] = field(default_factory=list)
    orig_inputs: list[Node] = field(default_factory=list)
    orig_outputs: list[Node] = field(default_factory=list)
    getattr_maps: dict[Node, Node] = field(default_factory=dict)
    constructor_args: list[str] = field(default_factory=list)
    gm: GraphModule | None = None


def _nodes_in(values: Any) -> list[Node]:
    found: list[Node] = []
    map_arg(values, lambda n: found.append(n))
    return found


class _Splitter:
    def __init__(self, gm: GraphModule, tags: list[str]) -> None:
        self.gm = gm
        self.components = [Component(Graph(), i, tag) for i, tag in enumerate(tags)]
        self.by_tag = {c.name: c for c in self.components}
        self.home: dict[Node, Component] = {}  # of the original nodes
        self.copies: dict[Node, Node] = {}
        self.main = Graph()
        self.main_values: dict[Node, Node] = {}
        self.needed: dict[Node, None] = {}  # values that leave their component

    def add(self, node: Node) -> None:
        if not hasattr(node, "tag"):
            raise AssertionError(f"Node does not have tag: {node.format_node()}")
        component = self.by_tag[node.tag]
        above = [self.home[n].order for n in node.all_input_nodes if n.op not in ("placeholder", "get_attr")]
        highest = max(above, default=0)
        if component.order < highest:
            raise AssertionError(
                f"Component {component.name} order must be >= max of its upstream components, order={component.order} and"
                f" max={highest}"
            )
        self.home[node] = component
        copied = component.graph.node_copy(node, lambda n: self._value_in(component, n))
        copied.tag = node.tag
        self.copies[node] = copied

    def _value_in(self, component: Component, node: Node) -> Node:
        if node.op == "get_attr":
            if node not in component.getattr_maps:
                component.getattr_maps[node] = component.graph.get_attr(node.target, type_expr=node.type)
                component.getattr_maps[node].meta = copy.copy(node.meta)
            return component.getattr_maps[node]
        if node.op != "placeholder" and self.home[node] is component:
            return self.copies[node]
        if node not in component.orig_inputs:
            component.orig_inputs.append(node)
            placeholder = component.graph.placeholder(node.name, type_expr=node.type)
            placeholder.meta = copy.copy(node.meta)
            component.input_placeholders.append(placeholder)
            self.needed[node] = None
        return component.input_placeholders[component.orig_inputs.index(node)]

    def call(self, component: Component, return_tuple: bool) -> dict[str, str]:
        """Turn the component into a module and call it in the main graph."""
        results = tuple(self.copies[n] for n in component.orig_outputs)
        single = len(results) == 1 and not return_tuple
        component.graph.output(results[0] if single else results)
        component.gm, paths = lift_subgraph_as_module(self.gm, component.graph, comp_name=component.name)
        args = tuple(self.main_values[n] for n in component.orig_inputs)
        node = self.main.call_module(component.name, args=args, kwargs=None)
        for i, original in enumerate(component.orig_outputs):
            self.main_values[original] = node if single else Proxy(node)[i].node
        return paths


def split_by_tags(
    gm: GraphModule,
    tags: list[str],
    return_fqn_mapping: bool = False,
    return_tuple: bool = False,
    GraphModuleCls: type[GraphModule] = GraphModule,  # noqa: N803
) -> Any:
    """Return a module that calls one module for each tag, in this order; nodes have their tags as `node.tag`. With `return_fqn_mapping`,
    also return the new paths of parameters."""
    split = _Splitter(gm, tags)
    output = gm.graph.output_node()
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            split.main_values[node] = split.main.placeholder(node.name, type_expr=node.type)
            split.main_values[node].meta = copy.copy(node.meta)
        elif node.op not in ("output", "get_attr"):
            split.add(node)
    returned = _nodes_in(output.args[0])
    attributes = [n for n in returned if n.op == "get_attr"]
    for node in returned:
        if node.op == "get_attr":
            split.main_values[node] = split.main.get_attr(node.name, type_expr=node.type)
        else:
            split.needed[node] = None
    for node in split.needed:
        if node.op != "placeholder":
            split.home[node].orig_outputs.append(node)
    paths: dict[str, str] = {}
    for component in split.components:
        paths.update(split.call(component, return_tuple))
    split.main.output(map_arg(output.args[0], lambda n: split.main_values[n]))
    split.main._codegen = gm.graph._codegen
    root = HolderModule({c.name: c.gm for c in split.components})
    for node in attributes:
        setattr(root, node.name, getattr_recursive(gm, node.target))
    result = GraphModuleCls(root, split.main)
    return (result, paths) if return_fqn_mapping else result
