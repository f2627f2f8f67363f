"""Saving and loading of modules: state_dict and load_state_dict."""

from __future__ import annotations

import itertools
import warnings
import weakref
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Mapping
from typing import Any

from ...core.exchange import swap_tensors
from ...core.graph import grad_mode
from ...core.hook_tables import RemovableHandle, register
from ...core.overrides import refuse_real_tensors
from ...core.tensor import Tensor
from ..parameter import Parameter, is_lazy
from .conversion import ConversionFlags

_EXTRA_STATE_KEY = "_extra_state"


class IncompatibleKeys(namedtuple("_IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """The keys that load_state_dict could not match."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__().replace(type(self).__name__, "_IncompatibleKeys", 1)

    __str__ = __repr__


class State:
    """The saving and loading methods of Module."""

    _modules: dict[str, Any]
    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _non_persistent_buffers_set: set
    _state_dict_hooks: OrderedDict
    _state_dict_pre_hooks: OrderedDict
    _load_state_dict_pre_hooks: OrderedDict
    _load_state_dict_post_hooks: OrderedDict
    _version: int

    # -- saving -------------------------------------------------------------------------------------------------------
    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """Return all parameters and persistent buffers by dotted name; the tensors are shared with the module."""
        if args:
            destination = args[0]
            prefix = args[1] if len(args) > 1 else prefix
            keep_vars = args[2] if len(args) > 2 else keep_vars
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        local_metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            result = hook(self, destination, prefix, local_metadata)
            if not getattr(hook, "_from_public_api", False):
                if result is not None:
                    destination = result
            elif result is not None:
                raise RuntimeError("state_dict post-hook must return None")
        return destination

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        for name, parameter in self._parameters.items():
            if parameter is not None:
                destination[prefix + name] = parameter if keep_vars else parameter.detach()
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = buffer if keep_vars else buffer.detach()
        if self._has_extra_state("get_extra_state"):
            destination[prefix + _EXTRA_STATE_KEY] = self.get_extra_state()  # type: ignore[attr-defined]

    def _has_extra_state(self, method: str) -> bool:
        return not getattr(getattr(type(self), method), "__qualname__", "").startswith("Traversal.")

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        hook._from_public_api = True  # type: ignore[attr-defined]
        return register(self._state_dict_hooks, hook)

    def _register_state_dict_hook(self, hook: Callable) -> RemovableHandle:
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError(
                "Cannot register the same function as the state dict post hook that was previously registered via"
                " register_state_dict_post_hook"
            )
        return register(self._state_dict_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        return register(self._state_dict_pre_hooks, hook)

    # -- loading ------------------------------------------------------------------------------------------------------
    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Copy (or assign) tensors into parameters and buffers by name; strict: names must match exactly."""
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing: list[str] = []
        unexpected: list[str] = []
        errors: list[str] = []
        metadata = getattr(state_dict, "_metadata", None)
        state = OrderedDict(state_dict)
        if metadata is not None:
            state._metadata = metadata  # type: ignore[attr-defined]
        _load(self, state, "", metadata, strict, assign, missing, unexpected, errors)
        if strict:
            if unexpected:
                errors.insert(
                    0, "Unexpected key(s) in state_dict: {}. ".format(", ".join(f'"{k}"' for k in unexpected))
                )
            if missing:
                errors.insert(0, "Missing key(s) in state_dict: {}. ".format(", ".join(f'"{k}"' for k in missing)))
        if errors:
            raise RuntimeError(
                "Error(s) in loading state_dict for {}:\n\t{}".format(type(self).__name__, "\n\t".join(errors))
            )
        return IncompatibleKeys(missing, unexpected)

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: dict,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        for hook in self._load_state_dict_pre_hooks.values():
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        persistent = {k: v for k, v in self._buffers.items() if k not in self._non_persistent_buffers_set}
        own = {k: v for k, v in itertools.chain(self._parameters.items(), persistent.items()) if v is not None}
        assign = local_metadata.get("assign_to_params_buffers", False)
        for name, target in own.items():
            key = prefix + name
            if key in state_dict:
                self._load_one(name, key, target, state_dict[key], assign, error_msgs)
            elif strict:
                missing_keys.append(key)
        extra_key = prefix + _EXTRA_STATE_KEY
        if self._has_extra_state("set_extra_state"):
            if extra_key in state_dict:
                self.set_extra_state(state_dict[extra_key])  # type: ignore[attr-defined]
            elif strict:
                missing_keys.append(extra_key)
        elif strict and extra_key in state_dict:
            unexpected_keys.append(extra_key)
        if strict:
            for key in state_dict:
                if key.startswith(prefix) and key != extra_key:
                    rest = key[len(prefix) :].split(".", 1)
                    if len(rest) > 1:
                        if rest[0] not in self._modules:
                            unexpected_keys.append(key)
                    elif rest[0] not in own:
                        unexpected_keys.append(key)

    def _load_one(self, name: str, key: str, target: Any, value: Any, assign: bool, errors: list[str]) -> None:
        if not isinstance(value, Tensor):
            refuse_real_tensors([value])
            errors.append(
                f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like object from'
                f" checkpoint but received {type(value)}"
            )
            return
        if is_lazy(target):
            if is_lazy(value):
                return  # neither has values yet
            target.materialize(value.shape)
        if target.dim() == 0 and tuple(value.shape) == (1,):
            value = value[0]  # very old checkpoints kept scalars as vectors
        if tuple(value.shape) != tuple(target.shape):
            errors.append(
                f"size mismatch for {key}: copying a param with shape {value.shape} from checkpoint, the shape in"
                f" current model is {target.shape}."
            )
            return
        if target.is_meta and not value.is_meta and not assign:
            warnings.warn(
                f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter in the current"
                " model, which is a no-op. (Did you mean to pass `assign=True` to assign items in the state dictionary"
                " to their corresponding key in the module instead of copying them in place?)",
                stacklevel=2,
            )
        before, grad_mode.enabled = grad_mode.enabled, False
        try:
            if ConversionFlags.swap:
                _swap_in(target, value, assign)
            elif assign:
                if isinstance(target, Parameter):
                    value = _as_parameter(value, target.requires_grad)
                setattr(self, name, value)
            else:
                target.copy_(value)
        except Exception as error:  # reported with all other mismatches, as one error
            action = "swapping" if ConversionFlags.swap else "copying"
            errors.append(
                f'While {action} the parameter named "{key}", whose dimensions in the model are {target.shape} and'
                f" whose dimensions in the checkpoint are {value.shape}, an exception occurred : {error.args}."
            )
        finally:
            grad_mode.enabled = before

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(self, hook: Callable, with_module: bool = False) -> RemovableHandle:
        return register(self._load_state_dict_pre_hooks, _WithModule(hook, self) if with_module else hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        return register(self._load_state_dict_post_hooks, hook)


class _WithModule:
    """A load hook that also takes the module, which it does not keep alive."""

    def __init__(self, hook: Callable, module: Any):
        self.hook, self.module = hook, weakref.ref(module)

    def __call__(self, *args: Any) -> Any:
        module = self.module()
        if module is None:
            raise RuntimeError("You are trying to call the hook of a dead Module!")
        return self.hook(module, *args)

    def __reduce__(self) -> tuple:
        return type(self), (self.hook, self.module())


def _as_parameter(value: Tensor, requires_grad: bool) -> Parameter:
    if isinstance(value, Parameter):
        value.requires_grad_(requires_grad)
        return value
    return Parameter(value, requires_grad=requires_grad)


def _swap_in(target: Tensor, value: Tensor, assign: bool) -> None:
    """Load by swapping this tensor for another, which subclasses choose in `module_load`."""
    fresh = target.module_load(value, assign=assign)
    if fresh is target or fresh is value:
        raise RuntimeError(
            "module_load returned one of self or other, please .detach() the result if returning one of the inputs in"
            " module_load"
        )
    if isinstance(target, Parameter):
        fresh = _as_parameter(fresh, target.requires_grad)
    swap_tensors(target, fresh)


def _load(
    module: Any,
    state: Any,
    prefix: str,
    metadata: Any,
    strict: bool,
    assign: bool,
    missing: list,
    unexpected: list,
    errors: list,
) -> None:
    local = {} if metadata is None else dict(metadata.get(prefix[:-1], {}))
    if assign:
        local["assign_to_params_buffers"] = assign
    module._load_from_state_dict(state, prefix, local, True, missing, unexpected, errors)
    for name, child in module._modules.items():
        if child is not None:
            path = f"{prefix}{name}."
            part = OrderedDict((k, v) for k, v in state.items() if k.startswith(path))
            _load(child, part, path, metadata, strict, assign, missing, unexpected, errors)
    incompatible = IncompatibleKeys(missing, unexpected)
    for hook in module._load_state_dict_post_hooks.values():
        if hook(module, incompatible) is not None:
            raise AssertionError(
                "Hooks registered with ``register_load_state_dict_post_hook`` are not expected to return new values,"
                " if incompatible_keys need to be modified, it should be done inplace."
            )
