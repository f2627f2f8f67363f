"""Cross-layer equalization: weights of successive layers get equal ranges per channel, without changing what they compute together: one
layer's outputs are divided by the factors that multiply the next one's inputs (arXiv 1906.04721, section 4.1)."""

from __future__ import annotations

import copy
from typing import Any

import flambeau as torch

from ... import nn
from ...core.tensor import Tensor
from ..nn import intrinsic as nni

__all__ = [
    "channel_range", "converged", "cross_layer_equalization", "equalize", "expand_groups_in_paired_modules_list", "get_module_bias",
    "get_module_weight", "get_name_by_module", "has_bias", "max_over_ndim", "min_over_ndim", "process_paired_modules_list_to_name",
    "set_module_bias", "set_module_weight",
]  # fmt: skip

_supported_types = {nn.Conv2d, nn.Linear, nn.Conv1d}
_supported_intrinsic_types = {nni.ConvReLU2d, nni.LinearReLU, nni.ConvReLU1d}
_all_supported_types = _supported_types | _supported_intrinsic_types


def _layer(module: Any) -> Any:
    return module if type(module) in _supported_types else module[0]


def set_module_weight(module: Any, weight: Tensor) -> None:
    _layer(module).weight = nn.Parameter(weight)


def set_module_bias(module: Any, bias: Tensor) -> None:
    _layer(module).bias = nn.Parameter(bias)


def has_bias(module: Any) -> bool:
    return _layer(module).bias is not None


def get_module_weight(module: Any) -> Any:
    return _layer(module).weight


def get_module_bias(module: Any) -> Any:
    return _layer(module).bias


def max_over_ndim(input: Tensor, axis_list: list[int], keepdim: bool = False) -> Tensor:
    """Return the largest values along several dimensions."""
    return torch.amax(input, axis_list, keepdim)


def min_over_ndim(input: Tensor, axis_list: list[int], keepdim: bool = False) -> Tensor:
    """Return the smallest values along several dimensions."""
    return torch.amin(input, axis_list, keepdim)


def channel_range(input: Tensor, axis: int = 0) -> Tensor:
    """Return the difference of the largest and smallest value of each channel."""
    others = [d for d in range(input.ndim) if d != axis]
    return max_over_ndim(input, others) - min_over_ndim(input, others)


def get_name_by_module(model: nn.Module, module: nn.Module) -> str:
    """Return the name that a model has for one of its modules."""
    for name, found in model.named_modules():
        if found is module:
            return name
    raise ValueError("module is not in the model")


def _shape_along(values: Tensor, axis: int, dims: int) -> Tensor:
    return values.reshape([-1 if d == axis else 1 for d in range(dims)])


def cross_layer_equalization(module1: Any, module2: Any, output_axis: int = 0, input_axis: int = 1) -> None:
    """Equalize the ranges of one layer's output channels and the next one's input channels."""
    if type(module1) not in _all_supported_types or type(module2) not in _all_supported_types:
        raise ValueError("module type not supported:", type(module1), " ", type(module2))
    first, second = get_module_weight(module1), get_module_weight(module2)
    if first.size(output_axis) != second.size(input_axis):
        raise TypeError(
            "Number of output channels of first arg do not match         number input channels of second arg"
        )
    factors = torch.sqrt(channel_range(first, output_axis) / (channel_range(second, input_axis) + 1e-9))
    inverse = torch.reciprocal(factors)
    set_module_weight(module1, first * _shape_along(inverse, output_axis, first.ndim))
    if has_bias(module1):
        set_module_bias(module1, get_module_bias(module1) * inverse)
    set_module_weight(module2, second * _shape_along(factors, input_axis, second.ndim))


def process_paired_modules_list_to_name(model: nn.Module, paired_modules_list: list[list]) -> list[list]:
    """Return groups of modules or names with the modules replaced by their names."""
    for group in paired_modules_list:
        for i, item in enumerate(group):
            if isinstance(item, nn.Module):
                group[i] = get_name_by_module(model, item)
            elif not isinstance(item, str):
                raise TypeError("item must be a nn.Module or a string")
    return paired_modules_list


def expand_groups_in_paired_modules_list(paired_modules_list: list[list]) -> list[list]:
    """Return groups of more than two as pairs of neighbours."""
    if any(len(group) == 1 for group in paired_modules_list):
        raise ValueError("Group must have at least two modules")
    return [list(pair) for group in paired_modules_list for pair in zip(group, group[1:])]


def equalize(
    model: nn.Module, paired_modules_list: list[list], threshold: float = 1e-4, inplace: bool = True
) -> nn.Module:
    """Equalize groups of successive layers (modules or their names) repeatedly, until weights change by less than a threshold.
    Between them there may be functions such as relu, which scale as their inputs do."""
    names = process_paired_modules_list_to_name(model, paired_modules_list)
    if not inplace:
        model = copy.deepcopy(model)
    pairs = expand_groups_in_paired_modules_list(names)
    wanted = {name for pair in pairs for name in pair}
    modules = {name: module for name, module in model.named_modules() if name in wanted}
    before: dict[str, Any] = dict.fromkeys(modules)
    while not converged(modules, before, threshold):
        for first, second in pairs:
            before.update({name: copy.deepcopy(modules[name]) for name in (first, second)})
            cross_layer_equalization(modules[first], modules[second])
    return model


def converged(curr_modules: dict[str, Any], prev_modules: dict[str, Any], threshold: float = 1e-4) -> bool:
    """Return whether the weights of modules differ from the previous ones by less than a threshold (the sum of the norms)."""
    if curr_modules.keys() != prev_modules.keys():
        raise ValueError("The keys to the given mappings must have the same set of names of modules")
    if None in prev_modules.values():
        return False
    change = torch.tensor(0.0)
    for name, module in curr_modules.items():
        change += torch.norm(get_module_weight(module).sub(get_module_weight(prev_modules[name])))
    return bool(change < threshold)
