"""Fusion of groups of nodes into submodules."""

from __future__ import annotations

from typing import Any

from ...graph import Graph
from ...graph_module import GraphModule
from ...node import Node
from ...proxy import Proxy
from ..tools_common import NodeList, legalize_graph
from .common import lift_subgraph_as_module
from .validation import validate_partition


def topo_sort(nodes: NodeList) -> NodeList:
    """Return the nodes in topological order: each after those it reads."""
    waiting = {node: sum(1 for n in node.all_input_nodes if n in set(nodes)) for node in nodes}
    ready = [node for node, count in waiting.items() if count == 0]
    done: NodeList = []
    while ready:
        node = ready.pop()
        done.append(node)
        for user in node.users:
            if user in waiting:
                waiting[user] -= 1
                if waiting[user] == 0:
                    ready.append(user)
    if len(done) != len(nodes):
        raise AssertionError("topological sorted nodes doesn't have same length as input nodes")
    return done


def fuse_as_graphmodule(
    gm: GraphModule,
    nodes: NodeList,
    module_name: str,
    partition_lookup_table: dict[Node, Any] | None = None,
    *,
    always_return_tuple: bool = False,
) -> tuple[GraphModule, tuple[Node, ...], tuple[Node, ...]]:
    """Return a module that computes these nodes, the nodes it reads, and the nodes whose values it returns. `gm` is not changed."""
    for node in nodes:
        if node.graph.owning_module is not gm:
            raise AssertionError(f"{node} doesn't belong to passed in graph module {gm._get_name()}")
        if node._erased:
            raise AssertionError(f"{node} has been removed from owning graph")
        if node not in gm.graph._index:
            raise AssertionError(f"{node} is not found in graph module {gm._get_name()}")
    if not validate_partition(nodes):
        raise AssertionError("Invalid partition, found dependency cycles")
    inside = set(nodes) if partition_lookup_table is None else partition_lookup_table
    subgraph = Graph()
    inputs: dict[Node, Node] = {}
    values: dict[Node, Node] = {}

    def remap(node: Node) -> Node:
        if node in inside:
            return values[node]
        if node not in inputs:
            inputs[node] = subgraph.placeholder(node.name, type_expr=node.type)
            inputs[node].meta = dict(node.meta)
        return inputs[node]

    for node in nodes:
        values[node] = subgraph.node_copy(node, remap)
    outputs = {n: values[n] for n in nodes if any(user not in inside for user in n.users)}
    results = tuple(outputs.values())
    subgraph.output(results[0] if len(results) == 1 and not always_return_tuple else results)
    subgraph.lint()
    fused, _ = lift_subgraph_as_module(gm, subgraph, comp_name="", class_name=module_name)
    return fused, tuple(inputs), tuple(outputs)


def insert_subgm(
    gm: GraphModule, sub_gm: GraphModule, orig_inputs: tuple[Node, ...], orig_outputs: tuple[Node, ...]
) -> GraphModule:
    """Insert a call of `sub_gm` into `gm`, and replace `orig_outputs` by its results."""
    name = sub_gm._get_name()
    gm.add_submodule(name, sub_gm)
    last = max(orig_outputs) if orig_outputs else None
    with gm.graph.inserting_after(last):
        call = gm.graph.call_module(name, args=orig_inputs, kwargs=None)
    result = sub_gm.graph.output_node().args[0]
    if len(orig_outputs) == 1 and not isinstance(result, tuple):
        orig_outputs[0].replace_all_uses_with(call, propagate_meta=True)
        return gm
    with gm.graph.inserting_after(call):
        for i, old in enumerate(orig_outputs):
            new = Proxy(call)[i].node
            old.replace_all_uses_with(new, propagate_meta=True)
    call.meta["val"] = tuple(old.meta.get("val") for old in orig_outputs)
    return gm


def erase_nodes(gm: GraphModule, nodes: NodeList) -> None:
    """Erase these nodes, the last first."""
    for node in reversed(nodes):
        gm.graph.erase_node(node)


def fuse_by_partitions(
    gm: GraphModule, partitions: list[dict[Node, Any]], prefix: str = "fused_", always_return_tuple: bool = False
) -> GraphModule:
    """Move each group of nodes to a submodule."""
    for number, partition in enumerate(partitions):
        ordered = topo_sort(list(partition))
        name = f"{prefix}{number}"
        fused, inputs, outputs = fuse_as_graphmodule(
            gm, ordered, name, partition, always_return_tuple=always_return_tuple
        )
        insert_subgm(gm, fused, inputs, outputs)
        erase_nodes(gm, ordered)
    legalize_graph(gm)
    return gm
