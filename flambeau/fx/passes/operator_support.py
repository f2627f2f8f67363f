"""Predicates that tell which nodes another compiler supports."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any

from ..node import Node
from .shape_prop import TensorMetadata
from .tools_common import CALLABLE_NODE_OPS, get_node_target

__all__ = ["OpSupports", "OperatorSupport", "OperatorSupportBase", "any_chain", "chain", "create_op_support"]

TargetTypeName = str
SupportedArgumentDTypes = Any
SupportDict = Mapping[TargetTypeName, SupportedArgumentDTypes]
IsNodeSupported = Callable[[Mapping[str, Any], Node], bool]


class OperatorSupportBase(abc.ABC):
    """Base of predicates that decide whether a node is supported."""

    @abc.abstractmethod
    def is_node_supported(self, submodules: Mapping[str, Any], node: Node) -> bool:
        """Return whether a node is supported."""


def _get_arg_dtype(arg: Node) -> Any:
    """Return the dtype of a node's result, or its type if it is not a tensor."""
    if not isinstance(arg, Node):
        raise AssertionError(f"Expected torch.fx.Node, got {type(arg)}")
    meta = arg.meta.get("tensor_meta")
    return meta.dtype if isinstance(meta, TensorMetadata) else arg.meta["type"]


def _has_allowed_dtype(argument: Any, dtypes: Any) -> bool:
    return dtypes is None or not isinstance(argument, Node) or _get_arg_dtype(argument) in dtypes


class OperatorSupport(OperatorSupportBase):
    """Decides by a table: the target's name, and the dtypes allowed for each argument (None: all)."""

    _support_dict: SupportDict

    def __init__(self, support_dict: SupportDict | None = None) -> None:
        self._support_dict = support_dict or {}

    def is_node_supported(self, submodules: Mapping[str, Any], node: Node) -> bool:
        if node.op not in CALLABLE_NODE_OPS:
            return True
        target = get_node_target(submodules, node)
        if target not in self._support_dict:
            return False
        wanted = self._support_dict[target]
        if wanted is None:
            return True
        by_position, by_name = wanted
        return all(_has_allowed_dtype(a, dtypes) for a, dtypes in zip(node.args, by_position)) and all(
            _has_allowed_dtype(node.kwargs.get(name), dtypes) for name, dtypes in by_name.items()
        )


def create_op_support(is_node_supported: IsNodeSupported) -> OperatorSupportBase:
    """Make an operator support from a function."""

    class FunctionalOperatorSupport(OperatorSupportBase):
        def is_node_supported(self, submodules: Mapping[str, Any], node: Node) -> bool:
            return is_node_supported(submodules, node)

    return FunctionalOperatorSupport()


def chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Return a predicate that accepts a node if all given ones do."""
    return create_op_support(lambda submodules, node: all(x.is_node_supported(submodules, node) for x in op_support))


def any_chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Return a predicate that accepts a node if any given one does."""
    return create_op_support(lambda submodules, node: any(x.is_node_supported(submodules, node) for x in op_support))


class OpSupports:
    """Ready-made predicates that decline nodes for common reasons."""

    @classmethod
    def decline_if_input_dtype(cls, dtype: Any) -> OperatorSupportBase:
        """Decline nodes that have an input of this dtype."""
        return create_op_support(
            lambda submodules, node: all(_get_arg_dtype(arg) != dtype for arg in node.all_input_nodes)
        )

    @classmethod
    def decline_if_node_in_names(cls, disallow_set: set[str]) -> OperatorSupportBase:
        """Decline nodes that have one of these names."""
        return create_op_support(lambda submodules, node: node.name not in disallow_set)
