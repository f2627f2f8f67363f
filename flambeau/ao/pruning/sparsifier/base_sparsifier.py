"""Base of all sparsifiers: put masks on parameters, update them, and finally write the zeros into the parameters."""

from __future__ import annotations

import abc
import copy
from collections import defaultdict
from typing import Any

from .... import ones, ones_like
from ....autograd.grad_mode import no_grad
from ....nn.modules.linear import Linear
from ....nn.modules.module import Module
from ....nn.utils import parametrize
from ....nn.utils.parametrize import type_before_parametrizations
from .utils import FakeSparsity, get_arg_info_from_tensor_fqn, module_contains_param, module_to_fqn, swap_module

__all__ = ["BaseSparsifier"]

SUPPORTED_MODULES: set[type] = {Linear}
KEYS_NOT_IN_STATE_DICT = ["module", "module_fqn", "tensor_name"]


class BaseSparsifier(abc.ABC):
    """Base of sparsifiers: subclasses compute the new mask of a tensor in `update_mask(module, tensor_name, **settings)`.

    `defaults` are settings for tensors whose own configuration does not name them. `groups` has a dict for each tensor (its name,
    module and settings), `state` the masks by the tensors' full names."""

    model: Module
    config: Any

    def __init__(self, defaults: dict[str, Any] | None = None) -> None:
        self.defaults: dict[str, Any] = defaults or {}
        self.state: dict[str, dict] = defaultdict(dict)
        self.groups: list[dict[str, Any]] = []
        self.enable_mask_update = True

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "groups": self.groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        text = f"{type(self).__name__} ("
        for number, group in enumerate(self.groups):
            settings = "".join(f"\t    {key}: {group[key]}\n" for key in sorted(group) if key != "module")
            text += f"\n\tGroup {number}\n\t    module: {group['module']}\n{settings}"
        return text + ")"

    def state_dict(self) -> dict[str, Any]:
        """Return the masks, and the settings of each tensor without its module."""
        kept = [{k: v for k, v in group.items() if k not in KEYS_NOT_IN_STATE_DICT} for group in self.groups]
        return {"state": self.state, "groups": kept}

    def load_state_dict(self, state_dict: dict[str, Any], strict: bool = True) -> None:
        """Apply the masks of `state_dict` to the prepared model; with `strict` a tensor it does not have is an error."""
        groups = copy.deepcopy(state_dict["groups"])
        for name, state in state_dict["state"].items():
            found = get_arg_info_from_tensor_fqn(self.model, name)
            module, tensor_name = found["module"], found["tensor_name"]
            if strict and module is None:
                raise RuntimeError(f"Error loading {name} into the model")
            masks = [p for p in module.parametrizations[tensor_name] if isinstance(p, FakeSparsity)]
            if not masks:
                masks = [FakeSparsity(ones(getattr(module, tensor_name).shape))]
                parametrize.register_parametrization(module, tensor_name, masks[0])
            mask = state.pop("mask", None)
            if mask is not None:
                masks[0].mask = mask
            for group in groups:
                if group["tensor_fqn"] == name:
                    group.update(found)
        self.__setstate__({"state": state_dict["state"], "groups": groups})

    def make_config_from_model(self, model: Module, SUPPORTED_MODULES: set[type] = SUPPORTED_MODULES) -> None:
        """Configure the weights of all linear layers."""
        self.config = []
        waiting = [model]
        while waiting:
            for child in waiting.pop().children():
                if type(child) in SUPPORTED_MODULES:
                    self.config.append({"tensor_fqn": f"{module_to_fqn(model, child)}.weight"})
                else:
                    waiting.append(child)

    def prepare(self, model: Module, config: Any) -> None:
        """Add masks of ones to tensors of the model, in place. `config` is a list of dicts, each with the full name `tensor_fqn` and
        settings; None chooses the weights of all linear layers."""
        self.model = model
        self.config = config
        if config is None:
            self.make_config_from_model(model)
        for given in self.config:
            if not isinstance(given, dict):
                raise AssertionError(
                    "config elements should be dicts not modules i.e.:[{`tensor_fqn`: `foo.bar.weight`}, {`tensor_fqn`: ... }, ...]"
                )
            self.groups.append(self._settings(model, given))
        self._prepare()

    def _settings(self, model: Module, given: dict[str, Any]) -> dict[str, Any]:
        """Return the settings of one tensor: defaults, overridden by the given ones, and its module and name."""
        settings = {**copy.deepcopy(self.defaults), **given}
        name = settings.get("tensor_fqn")
        if name is None:
            raise AssertionError(
                "tensor_fqn is a required argument in the sparsity config which replaces previous `module` and"
                " [module]`fqn` arguments"
            )
        found = get_arg_info_from_tensor_fqn(model, name)
        for key, value in found.items():
            if (
                key in settings
                and settings[key] != value
                and not (key == "tensor_fqn" and settings[key] == "." + value)
            ):
                raise AssertionError(
                    f"Given both `{key}` and `tensor_fqn` in the config, it is expected them to agree!"
                )
        return {**settings, **found}

    def _prepare(self, *args: Any, **kwargs: Any) -> None:
        for group in self.groups:
            module, tensor_name = group["module"], group["tensor_name"]
            mask = group["mask"] if "mask" in group else ones_like(getattr(module, tensor_name))
            self.state[group["tensor_fqn"]]["mask"] = mask
            kind = group.get("parametrization", FakeSparsity)
            parametrize.register_parametrization(module, tensor_name, kind(mask))

    def squash_mask(
        self,
        params_to_keep: tuple[str, ...] | None = None,
        params_to_keep_per_layer: dict[str, tuple[str, ...]] | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """Write the zeros into the parameters and remove the masks. Settings named in `params_to_keep`, or for a module in
        `params_to_keep_per_layer`, are stored in the module's dict `sparse_params`."""
        for group in self.groups:
            module = group["module"]
            parametrize.remove_parametrizations(module, group["tensor_name"], leave_parametrized=True)
            names = (*(params_to_keep or ()), *(params_to_keep_per_layer or {}).get(group["module_fqn"], ()))
            if names:
                module.sparse_params = {name: group[name] for name in names}

    def convert(
        self,
        module: Module,
        mapping: dict[type, Any] | None = None,
        inplace: bool = False,
        parameterization: type = FakeSparsity,
    ) -> Module:
        """Return the model with its masked layers replaced by the classes that `mapping` has for theirs (made by `from_dense`)."""
        if mapping is None:
            raise NotImplementedError("Need to auto generate mapping: pass mapping={class: class with from_dense}")
        if not inplace:
            module = copy.deepcopy(module)
        for name, child in list(module.named_children()):
            if module_contains_param(child, parameterization) and type_before_parametrizations(child) in mapping:
                module._modules[name] = swap_module(child, mapping)
            else:
                module._modules[name] = self.convert(child, mapping, True, parameterization)
        return module

    def step(self, use_path: bool = True) -> None:
        """Update the masks of all layers."""
        if not self.enable_mask_update:
            return
        with no_grad():
            for group in self.groups:
                self.update_mask(**group)

    @abc.abstractmethod
    def update_mask(self, module: Module, tensor_name: str, **kwargs: Any) -> None:
        """Change the content of the mask on `module`'s tensor."""
