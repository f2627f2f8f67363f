"""Lookup of a tensor in a model by name, and the mask that is put on it."""

from __future__ import annotations

from itertools import chain
from typing import Any

from ....core.tensor import Tensor
from ....nn.modules.module import Module
from ....nn.utils.parametrize import is_parametrized, type_before_parametrizations

__all__ = [
    "FakeSparsity", "fqn_to_module", "get_arg_info_from_tensor_fqn", "module_contains_param", "module_to_fqn", "swap_module",
]  # fmt: skip


class FakeSparsity(Module):
    """A mask on a parameter: a parametrization that multiplies. Change the mask's content, never the mask itself."""

    mask: Tensor

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        if self.mask.shape != x.shape:
            raise AssertionError(f"mask shape ({self.mask.shape}) must match x shape ({x.shape})")
        return self.mask * x

    def state_dict(self, *args: Any, **kwargs: Any) -> dict:
        """Return an empty state: masks are in the state of the sparsifier, not in the model's."""
        return {}


def module_contains_param(module: Module, parametrization: type) -> bool:
    """Return whether a parameter of the module has a parametrization of this class."""
    if not is_parametrized(module):
        return False
    return any(isinstance(p, parametrization) for ones in module.parametrizations.values() for p in ones)


def swap_module(mod: Module, mapping: dict[type, Any]) -> Module:
    """Return `mapping`'s class for a module, made by `from_dense`, with its hooks and on its device; unmapped modules unchanged."""
    kind = type_before_parametrizations(mod)
    if kind not in mapping:
        return mod
    made = mapping[kind].from_dense(mod)
    for before in mod._forward_pre_hooks.values():
        made.register_forward_pre_hook(before)
    for after in mod._forward_hooks.values():
        made.register_forward_hook(after)
    devices = {t.device for t in chain(mod.parameters(), mod.buffers())}
    if len(devices) > 1:
        raise AssertionError(f"swap_module only works with modules on one device, but got devices {devices}")
    return made.to(devices.pop()) if devices else made


def module_to_fqn(model: Module, module: Module, prefix: str = "") -> str | None:
    """Return the full name of a module inside a model, or None."""
    for name, one in model.named_modules():
        if one is module:
            return prefix + name if name else name
    return None


def fqn_to_module(model: Any, path: str) -> Any:
    """Return the module or tensor with this full name, or None."""
    for name in path.split(".") if path else ():
        model = getattr(model, name, None)
    return model


def get_arg_info_from_tensor_fqn(model: Module, tensor_fqn: str) -> dict[str, Any]:
    """Return the module that holds a tensor, the names of both, and the full name."""
    module_fqn, _, tensor_name = tensor_fqn.rpartition(".")
    return {
        "module_fqn": module_fqn,
        "module": fqn_to_module(model, module_fqn),
        "tensor_name": tensor_name,
        "tensor_fqn": tensor_fqn,
    }
