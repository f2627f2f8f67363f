"""Properties of a matched pattern: how it is observed, and whether its module is swapped or traced separately."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....fx import Node
from ..backend_config import BackendConfig, ObservationType
from .utils import all_node_args_have_no_tensors

__all__ = ["QuantizeHandler"]


def _default_root_node_getter(node_pattern: Any) -> Any:
    """Return the first operator of a matched pattern, which is written from the last one."""
    while node_pattern is not None and not isinstance(node_pattern, Node):
        node_pattern = node_pattern[-1]
    return node_pattern


class QuantizeHandler:
    """A match of a pattern in a graph."""

    observation_type: ObservationType | None = None

    def __init__(
        self,
        node_pattern: Any,
        modules: dict[str, Any],
        root_node_getter: Callable | None = None,
        is_custom_module: bool = False,
        is_standalone_module: bool = False,
    ):
        self.node_pattern, self.modules = node_pattern, modules
        self.root_node = (root_node_getter or _default_root_node_getter)(node_pattern)
        self.is_custom_module_, self.is_standalone_module_ = is_custom_module, is_standalone_module
        args = self.root_node.args if isinstance(self.root_node, Node) else ()
        self.num_tensor_args = sum(
            isinstance(arg, Node) and not all_node_args_have_no_tensors(arg, modules, {}) for arg in args
        )

    def is_general_tensor_value_op(self) -> bool:
        """Return whether the result has the observer of the input."""
        return self.observation_type == ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT

    def is_custom_module(self) -> bool:
        return self.is_custom_module_

    def is_standalone_module(self) -> bool:
        return self.is_standalone_module_


def _handler_for(config: Any) -> Callable[..., QuantizeHandler]:
    def make(node_pattern: Any, modules: dict[str, Any], root_node_getter: Callable | None = None) -> QuantizeHandler:
        made = QuantizeHandler(node_pattern, modules, root_node_getter)
        counts = config._num_tensor_args_to_observation_type
        if counts and made.num_tensor_args not in counts:
            raise AssertionError(
                f"Must provide observation_type config for tensor number {made.num_tensor_args} in "
                f"num_tensor_args_to_observation_type for {node_pattern}"
            )
        made.observation_type = counts[made.num_tensor_args] if counts else config.observation_type
        return made

    return make


def _get_pattern_to_quantize_handlers(backend_config: BackendConfig) -> dict[Any, Callable[..., QuantizeHandler]]:
    patterns = backend_config._pattern_complex_format_to_config
    return {pattern: _handler_for(config) for pattern, config in patterns.items()}
