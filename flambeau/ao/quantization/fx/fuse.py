"""Fusion of a traced model's layers by the patterns of the backend."""

from __future__ import annotations

import warnings
from typing import Any

from ....fx import Graph, GraphModule, Node, map_arg
from ....nn import Module, ReLU
from ....nn import functional as F
from ....nn.utils.parametrize import type_before_parametrizations
from ..backend_config import BackendConfig, get_native_backend_config
from ..backend_config.utils import (
    get_fuser_method_mapping,
    get_fusion_pattern_to_extra_inputs_getter,
    get_fusion_pattern_to_root_node_getter,
)
from ..fuser_method_mappings import get_fuser_method_new
from ..utils import MatchAllNode, _parent_name
from .custom_config import FuseCustomConfig
from .match_utils import _is_match, _sorted_patterns_dict

__all__ = ["fuse"]


def from_former_dict(kind: Any, given: Any, what: str, doing: str) -> Any:
    """Return a configuration that may be given as a dict, the former interface, with PyTorch's warning."""
    if not isinstance(given, dict):
        return given
    warnings.warn(
        f"Passing a {what} to {doing} is deprecated and will not be supported in a future version. "
        f"Please pass in a {kind.__name__} instead.",
        FutureWarning,
        stacklevel=4,
    )
    return kind.from_dict(given)


def _match(pattern: Any, node: Any, taken: dict[str, Node], last: Node) -> tuple:
    """Return the nodes of a match, nested like the pattern; record them in `taken`."""
    if isinstance(pattern, tuple):
        first, *inputs = pattern
        inner = [_match(p, arg, taken, last) for p, arg in zip(inputs, node.args)]
        return (*_match(first, node, taken, last), *(part if len(part) != 1 else part[0] for part in inner))
    if pattern is not MatchAllNode:
        taken[node.name] = last
    return (node,)


def _modules_of(matched: Any, modules: dict[str, Any], training: bool) -> Any:
    if isinstance(matched, tuple):
        return tuple(_modules_of(part, modules, training) for part in matched)
    if matched.op == "call_module":
        return modules[matched.target]
    if matched.op == "call_function" and matched.target is F.relu:
        relu = ReLU()
        relu.training = training
        return relu
    return matched.target if matched.op in ("call_function", "call_method") else MatchAllNode


def _types_of(parts: Any) -> Any:
    if isinstance(parts, tuple):
        return tuple(map(_types_of, parts))
    return type_before_parametrizations(parts) if isinstance(parts, Module) else parts


def _first_node(matched: Any) -> Node:
    while not isinstance(matched[-1], Node):
        matched = matched[-1]
    return matched[-1]


def fuse(model: GraphModule, is_qat: bool, fuse_custom_config: Any = None, backend_config: Any = None) -> GraphModule:
    """Return the model with layers fused, in a new graph."""
    from_former_dict(FuseCustomConfig, fuse_custom_config, "fuse_custom_config_dict", "fuse")
    backend: BackendConfig = from_former_dict(BackendConfig, backend_config, "backend_config_dict", "prepare")
    backend = get_native_backend_config() if backend is None else backend
    modules: dict[str, Any] = dict(model.named_modules())
    fusers = get_fuser_method_mapping(backend)
    patterns = _sorted_patterns_dict(fusers)
    root_getters = get_fusion_pattern_to_root_node_getter(backend)
    extra_getters = get_fusion_pattern_to_extra_inputs_getter(backend)

    taken: dict[str, Node] = {}  # by the name of a node, the last of the pattern it is part of
    matches: dict[Node, tuple] = {}
    for node in reversed(model.graph.nodes):
        if node.name in taken:
            continue
        for pattern in patterns:
            if _is_match(modules, node, pattern):
                matches[node] = (pattern, _match(pattern, node, taken, node))
                break

    graph = Graph()
    env: dict[str, Node] = {}

    def load(arg: Any) -> Any:
        return map_arg(arg, lambda n: env[n.name])

    for node in model.graph.nodes:
        if node in matches:
            pattern, matched = matches[node]
            root = root_getters.get(pattern, _first_node)(matched)
            extra = extra_getters[pattern](matched) if pattern in extra_getters else []
            env[node.name] = _fuse_match(root, matched, extra, modules, fusers, is_qat, graph, load)
        elif node.name not in taken:
            env[node.name] = graph.node_copy(node, load)
    return GraphModule(model, graph)


def _fuse_match(
    root: Node,
    matched: tuple,
    extra: list,
    modules: dict[str, Any],
    fusers: dict,
    is_qat: bool,
    graph: Graph,
    load: Any,
) -> Node:
    if root.op != "call_module":
        raise AssertionError("Expecting module node to be a call_module Node")
    parts = _modules_of(matched, modules, modules[str(root.target)].training)
    fuser = get_fuser_method_new(_types_of(parts), fusers)
    parent, name = _parent_name(str(root.target))
    setattr(modules[parent], name, fuser(is_qat, *parts))
    node = graph.node_copy(root, load)
    node.args = (*node.args, *(load(arg) for arg in extra))
    return node
