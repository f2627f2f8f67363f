"""fuse_modules: fusion of a model's layers, given by name."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from ... import nn
from ...nn.utils.parametrize import type_before_parametrizations
from .fuser_method_mappings import get_fuser_method
from .utils import _parent_name, getattr_from_fqn

__all__ = ["fuse_known_modules", "fuse_modules", "fuse_modules_qat"]


def _get_module(model: nn.Module, submodule_key: str) -> Any:
    return getattr_from_fqn(model, submodule_key)


def _set_module(model: nn.Module, submodule_key: str, module: Any) -> None:
    parent, name = _parent_name(submodule_key)
    setattr(getattr_from_fqn(model, parent) if parent else model, name, module)


def fuse_known_modules(mod_list: list, is_qat: bool, additional_fuser_method_mapping: dict | None = None) -> list:
    """Return the fused module, followed by Identity modules in place of the others. Hooks are moved to it."""
    types = tuple(type_before_parametrizations(m) for m in mod_list)
    fused = get_fuser_method(types, additional_fuser_method_mapping)(is_qat, *mod_list)
    for pre_hook in mod_list[0]._forward_pre_hooks.values():
        fused.register_forward_pre_hook(pre_hook)
    mod_list[0]._forward_pre_hooks.clear()
    for hook in mod_list[-1]._forward_hooks.values():
        fused.register_forward_hook(hook)
    mod_list[-1]._forward_hooks.clear()
    rest = [nn.Identity() for _ in mod_list[1:]]
    for identity in rest:
        identity.training = mod_list[0].training
    return [fused, *rest]


def _fuse_modules_helper(
    model: nn.Module, modules_to_fuse: list, is_qat: bool, fuser_func: Callable, fuse_custom_config_dict: dict | None
) -> None:
    additional = (fuse_custom_config_dict or {}).get("additional_fuser_method_mapping", {})
    fused = fuser_func([_get_module(model, name) for name in modules_to_fuse], is_qat, additional)
    for name, module in zip(modules_to_fuse, fused):
        _set_module(model, name, module)


def _fuse_modules(
    model: nn.Module,
    modules_to_fuse: list,
    is_qat: bool,
    inplace: bool = False,
    fuser_func: Callable = fuse_known_modules,
    fuse_custom_config_dict: dict | None = None,
) -> nn.Module:
    if not inplace:
        model = copy.deepcopy(model)
    groups = [modules_to_fuse] if all(isinstance(name, str) for name in modules_to_fuse) else modules_to_fuse
    for group in groups:
        _fuse_modules_helper(model, group, is_qat, fuser_func, fuse_custom_config_dict)
    return model


def fuse_modules(
    model: nn.Module,
    modules_to_fuse: list[Any],
    inplace: bool = False,
    fuser_func: Callable[..., Any] = fuse_known_modules,
    fuse_custom_config_dict: dict[Any, Any] | None = None,
) -> nn.Module:
    """Return the model with each group of layers fused into one: `fuse_modules(model, [["conv", "bn", "relu"]])`.

    For models in evaluation mode: batch norms are folded into the weights."""
    return _fuse_modules(model, modules_to_fuse, False, inplace, fuser_func, fuse_custom_config_dict)


def fuse_modules_qat(
    model: nn.Module,
    modules_to_fuse: list[Any],
    inplace: bool = False,
    fuser_func: Callable[..., Any] = fuse_known_modules,
    fuse_custom_config_dict: dict[Any, Any] | None = None,
) -> nn.Module:
    """Fuse layers for quantization-aware training: batch norms are kept inside of the fused modules."""
    return _fuse_modules(model, modules_to_fuse, True, inplace, fuser_func, fuse_custom_config_dict)
