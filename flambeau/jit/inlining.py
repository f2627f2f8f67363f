"""Inlining: replace calls in a graph by the graphs of the called functions."""

from __future__ import annotations

from . import cleanup
from .ir import Block, Graph, Node, copy_graph
from .ir_copies import insert_graph
from .types import ClassType, FunctionType


def inlined(graph: Graph) -> Graph:
    """Return a copy of a graph with calls of functions and methods inlined (calls of interfaces stay)."""
    made = copy_graph(graph)
    inline(made)
    cleanup.lower_tuples(made)
    cleanup.remove_dead(made)
    return made


def inline(block: Block) -> None:
    for node in list(block.nodes_):
        for inner in node.blocks_:
            inline(inner)
        called = _called_function(node)
        if called is None:
            continue
        values = node.inputs_[1:] if node.kind_ == "prim::CallFunction" else list(node.inputs_)
        body = copy_graph(called)
        inline(body)
        with block.graph.at(node):
            results = insert_graph(block.graph, body, values, node.range)
        for out, value in zip(node.outputs_, results):
            out.replace_by(value)
            if out.has_name() and not value.has_name():
                value.set_name(out.name)
        node.destroy()


def _called_function(node: Node) -> Graph | None:
    if node.kind_ == "prim::CallFunction":
        kind = node.inputs_[0].type
        return kind.function.graph if isinstance(kind, FunctionType) else None
    if node.kind_ == "prim::CallMethod":
        owner = node.inputs_[0].type
        if isinstance(owner, ClassType):
            method = owner.find_method(node.attributes["name"])
            return method.graph if method is not None else None
    return None
