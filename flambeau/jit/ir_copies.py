"""Copies of graphs, blocks and nodes, and the check that a graph is consistent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .source import Range

if TYPE_CHECKING:
    from .ir import Block, Graph, Node, Value


# -- copying ----------------------------------------------------------------------------------------------------------------


def copy_graph(graph: Graph) -> Graph:
    made = type(graph)()
    made.label = graph.label
    known: dict[Value, Value] = {}
    copy_block(graph, made, known)
    return made


def copy_block(block: Block, into: Block, known: dict[Value, Value]) -> None:
    """Copy inputs, nodes and outputs into a block; `known` maps old values to new ones and grows."""
    for value in block.inputs_:
        known[value] = into.add_input().copy_meta(value)
    for node in block.nodes_:
        into.append(copy_node(node, into.graph, known))
    for value in block.outputs_:
        into.add_output(known.get(value, value))


def copy_node(node: Node, graph: Graph, known: dict[Value, Value]) -> Node:
    made = type(node)(graph, node.kind_, [known.get(v, v) for v in node.inputs_], len(node.outputs_))
    made.attributes = dict(node.attributes)
    made.range, made.scope, made.schema_ = node.range, node.scope or made.graph.scope, node.schema_
    for old, new in zip(node.outputs_, made.outputs_):
        known[old] = new.copy_meta(old)
    for block in node.blocks_:
        copy_block(block, made.add_block(), known)
    return made


def insert_graph(graph: Graph, inner: Graph, arguments: Sequence[Value], place: Range | None = None) -> list[Value]:
    """Copy the nodes of another graph to the insertion point; return the values of its outputs."""
    known = dict(zip(inner.inputs_, arguments))
    for node in inner.nodes_:
        made = graph.insert(copy_node(node, graph, known))
        made.range = made.range or place
    return [known[v] for v in inner.outputs_]


def check(graph: Graph) -> None:
    """Raise unless every value is defined before it is read and every use is recorded."""

    def visit(block: Block, seen: set[Value]) -> None:
        seen = seen | set(block.inputs_)
        for node in [*block.nodes_, block.ret]:
            for index, value in enumerate(node.inputs_):
                if value not in seen:
                    raise RuntimeError(f"%{value.name} is read by {node.kind_} before it is defined")
                if (node, index) not in value.uses:
                    raise RuntimeError(f"a use of %{value.name} is not noted")
            for inner in node.blocks_:
                visit(inner, seen)
            seen.update(node.outputs_)

    visit(graph, set())
