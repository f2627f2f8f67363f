"""Graph modules of prepared and quantized models, which preserve attributes of the original model."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from ....fx import Graph, GraphModule
from ....nn import Module

__all__ = ["FusedGraphModule", "ObservedGraphModule", "ObservedStandaloneGraphModule", "QuantizedGraphModule"]

_KEY = "_observed_graph_module_attrs"


@dataclass
class ObservedGraphModuleAttrs:
    """Results of `prepare` that `convert` needs."""

    node_name_to_qconfig: dict[str, Any]
    node_name_to_scope: dict[str, tuple[str, type]]
    prepare_custom_config: Any
    equalization_node_name_to_qconfig: dict[str, Any]
    qconfig_mapping: Any
    is_qat: bool
    observed_node_names: set[str]
    is_observed_standalone_module: bool = False
    standalone_module_input_quantized_idxs: list[int] | None = None
    standalone_module_output_quantized_idxs: list[int] | None = None


class _AttributeKeeping(GraphModule):
    """A graph module that preserves some attributes of the module it was made from."""

    def __init__(self, root: Any, graph: Graph, preserved_attr_names: set[str]):
        kept = {name: getattr(root, name) for name in preserved_attr_names if hasattr(root, name)}
        super().__init__(root, graph)
        self.preserved_attr_names = preserved_attr_names
        for name, value in kept.items():
            setattr(self, name, value)

    def __deepcopy__(self, memo: dict) -> Any:
        holder = Module()
        holder.__dict__ = copy.deepcopy(self.__dict__)
        return type(self)(holder, copy.deepcopy(self.graph), copy.deepcopy(self.preserved_attr_names))


class FusedGraphModule(_AttributeKeeping):
    """A graph module with fused layers."""


class ObservedGraphModule(_AttributeKeeping):
    """A graph module with observers inserted."""


class ObservedStandaloneGraphModule(ObservedGraphModule):
    """A part of a model that was prepared separately."""


class QuantizedGraphModule(_AttributeKeeping):
    """A graph module of quantized operators."""


def observed_attrs(module: Any) -> ObservedGraphModuleAttrs | None:
    """Return the results of `prepare` that are stored in a module, or None if it was not prepared."""
    return module.meta.get(_KEY) if hasattr(module, "meta") else None


def _is_observed_module(module: Any) -> bool:
    return observed_attrs(module) is not None


def _get_observed_graph_module_attr(model: Any, attr_name: str) -> Any:
    attrs = observed_attrs(model)
    return None if attrs is None else getattr(attrs, attr_name)


def _is_observed_standalone_module(module: Any) -> bool:
    attrs = observed_attrs(module)
    return attrs is not None and attrs.is_observed_standalone_module
