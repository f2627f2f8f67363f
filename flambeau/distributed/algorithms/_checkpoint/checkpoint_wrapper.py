"""Layers that run forward again in the backward pass instead of keeping what it needs (see `flambeau.utils.checkpoint`).

>>> model = flambeau.nn.Sequential(flambeau.nn.Linear(2, 2), flambeau.nn.ReLU())
>>> apply_activation_checkpointing(model, check_fn=lambda layer: isinstance(layer, flambeau.nn.Linear))
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import Any

from ....autograd.graph import save_on_cpu
from ....core.backend import has_backend
from ....core.device import device
from ....core.tensor import Tensor
from ....nn import Module
from ....utils.checkpoint import checkpoint
from ...fsdp.wrap import _construct_wrap_fn, _Policy, _post_order_apply, _recursive_wrap, lambda_auto_wrap_policy

_CHECKPOINT_WRAPPED_MODULE = "_checkpoint_wrapped_module"
_CHECKPOINT_PREFIX = _CHECKPOINT_WRAPPED_MODULE + "."


class CheckpointImpl(Enum):
    """Kind of activation checkpointing: reentrant or not."""

    REENTRANT = auto()
    NO_REENTRANT = auto()


class ActivationWrapper(Module):
    """Base of wrappers of a layer; names in state dicts do not change."""

    def __init__(self, mod: Module):
        super().__init__()
        self._checkpoint_wrapped_module = mod
        self._register_state_dict_hook(self._without_prefix)
        self.register_load_state_dict_pre_hook(self._with_prefix)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._checkpoint_wrapped_module, name)

    def __getitem__(self, key: int) -> Any:
        return self._checkpoint_wrapped_module.__getitem__(key)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        for name, p in super().named_parameters(*args, **kwargs):
            yield name.replace(_CHECKPOINT_PREFIX, ""), p

    @staticmethod
    def _without_prefix(module: Module, state: dict[str, Tensor], prefix: str, *rest: Any) -> dict[str, Tensor]:
        for key in [k for k in state if k.startswith(prefix + _CHECKPOINT_PREFIX)]:
            state[prefix + key[len(prefix) + len(_CHECKPOINT_PREFIX) :]] = state.pop(key)
        return state

    @staticmethod
    def _with_prefix(module: Module, state: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        for key in [k for k in state if k.startswith(prefix)]:
            state[prefix + _CHECKPOINT_PREFIX + key[len(prefix) :]] = state.pop(key)


class CheckpointWrapper(ActivationWrapper):
    """Wrapper that runs a layer through `utils.checkpoint.checkpoint`."""

    def __init__(
        self,
        mod: Module,
        checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
        checkpoint_fn: Callable | None = None,
        **checkpoint_fn_kwargs: Any,
    ):
        super().__init__(mod)
        self.checkpoint_impl = checkpoint_impl
        default = functools.partial(checkpoint, use_reentrant=checkpoint_impl is CheckpointImpl.REENTRANT)
        self.checkpoint_fn = functools.partial(checkpoint_fn or default, **checkpoint_fn_kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self.checkpoint_impl is CheckpointImpl.REENTRANT and kwargs:  # which takes positional arguments only
            run = functools.partial(self._checkpoint_wrapped_module, **kwargs)
            return self.checkpoint_fn(run, *args)
        return self.checkpoint_fn(self._checkpoint_wrapped_module, *args, **kwargs)


def checkpoint_wrapper(
    module: Module,
    checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
    checkpoint_fn: Callable | None = None,
    **checkpoint_fn_kwargs: Any,
) -> Module:
    """Wrap a module so that its forward pass is checkpointed."""
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


class OffloadWrapper(ActivationWrapper):
    """Wrapper of a layer whose saved tensors are kept in host memory until the backward pass."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with save_on_cpu(pin_memory=has_backend(device("cuda"))):
            return self._checkpoint_wrapped_module(*args, **kwargs)


def offload_wrapper(module: Module) -> Module:
    """Wrap a layer so that activations saved for the backward pass are moved to host memory."""
    return OffloadWrapper(module)


def apply_activation_checkpointing(
    model: Module,
    checkpoint_wrapper_fn: Callable = checkpoint_wrapper,
    check_fn: Callable[[Module], bool] = lambda _: True,
    auto_wrap_policy: Any = None,
) -> None:
    """Wrap the layers of a model that `check_fn` (or a policy of `distributed.fsdp.wrap`) chooses, the inner ones first. The model itself
    is changed."""
    policy = auto_wrap_policy or functools.partial(lambda_auto_wrap_policy, lambda_fn=check_fn)
    if callable(policy):
        _recursive_wrap(model, policy, checkpoint_wrapper_fn, set(), set(), only_wrap_children=True)
        return
    if not isinstance(policy, _Policy):
        raise ValueError(f"Expected {policy} to be callable or be a pre-defined wrap policy")
    targets = policy._run_policy(model, ignored_modules=set(), root_kwargs={})
    _post_order_apply(model, _construct_wrap_fn(model, targets, checkpoint_wrapper_fn))
