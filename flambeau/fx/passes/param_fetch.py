"""Attributes of layers that other compilers need, stored on the nodes that call the layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau

from ... import nn
from ..graph_module import GraphModule

__all__ = ["default_matching", "extract_attrs_for_lowering", "lift_lowering_attrs_to_nodes"]


def default_matching(name: str, target_version: int) -> str:
    """Return the attribute's own name, whatever the version of its layer."""
    return name


_CONV = ["weight", "bias", "kernel_size", "stride", "padding", "dilation", "groups", "padding_mode"]
_POOL = ["kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode"]
_NORM = ["weight", "bias", "running_mean", "running_var", "eps"]

# Which attributes, up to which version of the layer, and what they are called in it.
module_fetch_book: dict[type, tuple[int, list[str], Callable[[str, int], str]]] = {
    nn.Linear: (1, ["weight", "bias"], default_matching),
    nn.Conv2d: (1, _CONV, default_matching),
    nn.BatchNorm2d: (2, _NORM, default_matching),
    nn.AdaptiveAvgPool2d: (1, [], default_matching),
    nn.MaxPool2d: (1, _POOL, default_matching),
    nn.ReLU: (1, ["inplace"], default_matching),
}


def extract_attrs_for_lowering(mod: nn.Module) -> dict[str, Any]:
    """Return the attributes of a layer by name."""
    name = flambeau.typename(mod)
    if type(mod) not in module_fetch_book:
        raise RuntimeError(f"{name} is not in the module_fetch_book yet, please add it to the module_fetch_book")
    version, wanted, matching = module_fetch_book[type(mod)]
    present = mod._version
    if version < present:
        raise RuntimeError(
            f"Fetcher version {version} try to fetch {name} version {present}, please upgrade the module_fetch_book"
        )
    return {"name": name, **{attr: getattr(mod, matching(attr, present)) for attr in wanted}}


def lift_lowering_attrs_to_nodes(fx_module: GraphModule) -> None:
    """Store the attributes of called layers on the nodes, as `attrs_for_lowering`."""
    for node in fx_module.graph.nodes:
        if node.op != "call_module":
            continue
        module = fx_module.get_submodule(node.target)
        if isinstance(module, GraphModule):
            lift_lowering_attrs_to_nodes(module)
        else:
            node.attrs_for_lowering = extract_attrs_for_lowering(module)
