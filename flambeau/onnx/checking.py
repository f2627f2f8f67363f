"""Checks that the graph of an ONNX file can be computed: every value is produced before it is read, functions do not recurse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .errors import OnnxExporterError

_MAX_NODES = 1_000_000  # that run when all functions have been called
_MAX_DEPTH = 100  # functions that call each other

Name = tuple[str, str]  # of a function: domain and name
_WHOLE = ("", "")  # key of the graph itself


class InvalidFile(OnnxExporterError):
    """Raised when a file describes something that cannot be computed."""


def check_model(model: Any) -> None:
    """Raise InvalidFile if a node reads a value that no node produces, or if functions call themselves."""
    functions = {(f.domain, f.name): f for f in model.functions}
    _check_functions(functions, model.graph.node)
    _check_graph(model.graph, set(), f"the graph {model.graph.name!r}")
    for function in functions.values():
        what = f"the function {_quote_name((function.domain, function.name))}"
        _check_nodes(function.node, set(function.input), what)


def _check_graph(graph: Any, outer: set[str], what: str) -> None:
    known = outer | {i.name for i in graph.input} | {t.name for t in graph.initializer}
    known |= {t.values.name for t in graph.sparse_initializer}
    known = _check_nodes(graph.node, known, what)
    for output in graph.output:
        if output.name not in known:
            raise InvalidFile(f"{what} returns {output.name!r}, which no node makes")


def _check_nodes(nodes: Any, known: set[str], what: str) -> set[str]:
    """Check that every input of the nodes is defined before; return the names defined after them."""
    known = set(known)
    for node in nodes:
        for name in node.input:
            if name and name not in known:
                raise InvalidFile(_unknown(name, node, nodes, what))
        for graph in _subgraphs(node):
            _check_graph(graph, known, f"{what}, in {_label(node)}")
        known.update(node.output)
    return known


def _unknown(name: str, reader: Any, nodes: Any, what: str) -> str:
    maker = next((n for n in nodes if name in n.output), None)
    told = f"{what}: {_label(reader)} reads {name!r}"
    if maker is None:
        return f"{told}, which is neither an input nor an initializer, and which no node makes"
    return f"{told}, which {_label(maker)} makes only later: the graph has a cycle, or its nodes are not in order"


def _label(node: Any) -> str:
    return f"node {node.name!r} ({node.op_type})" if node.name else f"a node {node.op_type}"


def _quote_name(name: Name) -> str:
    return "::".join(part for part in name if part)


def _subgraphs(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _all_nodes(nodes: Iterable[Any]) -> Iterator[Any]:
    """Yield the nodes, and those of the graphs inside them."""
    for node in nodes:
        yield node
        for graph in _subgraphs(node):
            yield from _all_nodes(graph.node)


def _check_functions(functions: dict[Name, Any], nodes: Any) -> None:
    """Raise unless functions call each other without recursion, at most `_MAX_DEPTH` deep, a bounded number of times."""
    calls = {name: [(n.domain, n.op_type) for n in _all_nodes(f.node)] for name, f in functions.items()}
    if _WHOLE in functions:
        raise InvalidFile("a function of the file has no name")
    calls[_WHOLE] = [(n.domain, n.op_type) for n in _all_nodes(nodes)]
    sizes: dict[Name, int] = {}
    depths: dict[Name, int] = {}
    under_way: list[Name] = []
    todo = [(name, False) for name in calls]
    while todo:
        name, done = todo.pop()
        if done:
            under_way.pop()
            called = [c for c in calls[name] if c in functions]
            sizes[name] = len(calls[name]) + sum(sizes[c] for c in called)
            depths[name] = 1 + max((depths[c] for c in called), default=0)
            _check_extent(name, sizes[name], depths[name])
        elif name not in sizes:
            under_way.append(name)
            todo.append((name, True))
            for callee in set(calls[name]) & functions.keys():
                if callee in under_way:
                    circle = [*under_way[under_way.index(callee) :], callee]
                    raise InvalidFile(f"functions that call each other: {' -> '.join(map(_quote_name, circle))}")
                todo.append((callee, False))


def _check_extent(name: Name, size: int, depth: int) -> None:
    what = f"the function {_quote_name(name)}" if name != _WHOLE else "the graph"
    if size > _MAX_NODES:
        raise InvalidFile(f"{what} runs {size} nodes through its functions, but at most {_MAX_NODES} are accepted")
    if depth > _MAX_DEPTH:
        raise InvalidFile(f"{what} calls functions to a depth of {depth}, but at most {_MAX_DEPTH} are accepted")
