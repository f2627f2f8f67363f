"""Matching of patterns (written from the last operator to the first) in a graph."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from ....fx import Graph, Node
from ....nn import Module
from ....nn.utils.parametrize import type_before_parametrizations
from ..utils import MatchAllNode
from .graph_module import _is_observed_standalone_module
from .quantize_handler import QuantizeHandler

__all__: list[str] = []
_MatchResult = tuple[Node, Any, Any, QuantizeHandler]


def _pattern_size(pattern: Any) -> int:
    return sum(map(_pattern_size, pattern)) if isinstance(pattern, tuple) else 1


def _sorted_patterns_dict(patterns_dict: dict[Any, Any]) -> dict[Any, Any]:
    """Return the patterns sorted by length, longest first."""
    order = sorted(patterns_dict.items(), key=lambda kv: -_pattern_size(kv[0]) if isinstance(kv[0], tuple) else 1)
    return dict(order)


def _target_matches(modules: dict[str, Any], node: Node, wanted: Any, pattern: Any) -> bool:
    if isinstance(wanted, type) and issubclass(wanted, Module):
        return node.op == "call_module" and type_before_parametrizations(modules[node.target]) is wanted
    if callable(wanted):
        if node.op != "call_function" or node.target is not wanted:
            return False
        return node.target is not getattr or node.args[1] == pattern[1]
    if isinstance(wanted, str):
        return node.op == "call_method" and node.target == wanted
    return node.target == wanted


def _is_match(modules: dict[str, Any], node: Any, pattern: Any, max_uses: int = sys.maxsize) -> bool:
    """Return whether a node and its inputs match a pattern whose inner results have no other users."""
    wanted, *inputs = pattern if isinstance(pattern, tuple) else (pattern,)
    if wanted is getattr:
        inputs = []
    if isinstance(wanted, type) and issubclass(wanted, MatchAllNode):
        return True
    if node == pattern:
        return True
    if not isinstance(node, Node) or len(node.users) > max_uses or not _target_matches(modules, node, wanted, pattern):
        return False
    if not inputs:
        return True
    return len(inputs) == len(node.args) and all(_is_match(modules, a, p, 1) for a, p in zip(node.args, inputs))


def _matched_nodes(pattern: Any, node: Any) -> list:
    """Return the nodes of a match, nested like the pattern."""
    if not isinstance(pattern, tuple):
        return [node]
    own, *inputs = pattern
    matched = _matched_nodes(own, node)
    if own is getattr:
        return matched
    inner = [n for p, arg in zip(inputs, node.args) for n in _matched_nodes(p, arg)]
    if len(inner) > 1 and len(inputs) == 1:
        return [*matched, tuple(inner)]
    return [*matched, *inner]


def _nodes_in(matched: Any) -> Iterable[Node]:
    if isinstance(matched, Node):
        yield matched
    elif isinstance(matched, (list, tuple)):
        for part in matched:
            yield from _nodes_in(part)


def _find_matches(
    graph: Graph,
    modules: dict[str, Any],
    patterns: dict[Any, Callable[..., QuantizeHandler]],
    root_node_getter_mapping: dict[Any, Callable],
    standalone_module_names: list[str] = [],  # noqa: B006
    standalone_module_classes: list[type] = [],  # noqa: B006
    custom_module_classes: list[Any] = [],  # noqa: B006
) -> dict[str, _MatchResult]:
    """Return (last node, all nodes, pattern, handler) of the match that each node belongs to, by the node's name."""
    found: dict[str, _MatchResult] = {}
    for node in reversed(graph.nodes):
        if node.name in found:
            continue
        for pattern, make in patterns.items():
            if _is_match(modules, node, pattern):
                matched = _matched_nodes(pattern, node)
                handler = make(matched, modules, root_node_getter_mapping.get(pattern))
                for part in _nodes_in(matched):
                    found[part.name] = (node, matched, pattern, handler)
                break
    for node in graph.nodes:
        if node.op != "call_module":
            continue
        module = modules[node.target]
        if type(module) in custom_module_classes:
            found[node.name] = (node, node, None, QuantizeHandler(node, modules, is_custom_module=True))
        if (
            node.target in standalone_module_names
            or type(module) in standalone_module_classes
            or _is_observed_standalone_module(module)
        ):
            found[node.name] = (node, node, None, QuantizeHandler(node, modules, is_standalone_module=True))
    return found
