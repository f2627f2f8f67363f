"""`replicate`: gradients averaged over ranks, as DistributedDataParallel does it, without a wrapper."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...core.device import device as Device
from ...nn import Module, ParameterList
from ...nn.parallel import DistributedDataParallel
from .._composable_state import _State
from .contract import _get_registry, contract


class _ReplicateState(_State):
    """State that averages the gradients of a module; initialised when the module first runs."""

    def __init__(self) -> None:
        self._ddp: Any = None
        self._no_sync = False
        self._comm_hooks: list[tuple[tuple, dict]] = []

    def prepare(self, module: Module, ignored: set[Module], options: dict[str, Any]) -> None:
        self.module, self._ignored, self._options = module, ignored, options

    def _start(self) -> None:
        left_out = {id(p) for m in self._ignored for p in m.parameters()}
        self._param_names: list[str] = []
        self._param_list = ParameterList()
        self._collect(self.module, left_out, "")
        options = dict(self._options)
        where = options.pop("device_id", None)
        if where is not None:
            options["device_ids"] = None if isinstance(where, Device) and where.type == "cpu" else [where]
        self._ddp = DistributedDataParallel(self._param_list, **options)
        for args, kwargs in self._comm_hooks:
            self._ddp.register_comm_hook(*args, **kwargs)

    def _collect(self, module: Module, left_out: set[int], prefix: str) -> None:
        """Collect the parameters that are neither ignored nor sharded."""
        if module in self._ignored or _is_fully_sharded(module):
            return
        for name, param in module.named_parameters(recurse=False):
            if id(param) not in left_out:
                self._param_list.append(param)
                self._param_names.append(prefix + name)
        for name, child in module.named_children():
            self._collect(child, left_out, f"{prefix}{name}.")

    def before(self, module: Module, args: tuple, kwargs: dict) -> None:
        if self._ddp is None:
            self._start()
        self._ddp.require_backward_grad_sync = not self._no_sync
        DistributedDataParallel._active_ddp_module = self._ddp
        self._ddp._pre_forward()

    def after(self, module: Module, input: Any, output: Any) -> None:
        DistributedDataParallel._active_ddp_module = None
        self._ddp._post_forward(output)


class DDP:
    """Methods that a module gets by `replicate`."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        original = cls.__mro__[2]
        return original.__new__(original)  # type: ignore[call-overload]

    def set_requires_gradient_sync(self, requires_gradient_sync: bool) -> None:
        """Set whether backward passes average gradients."""
        replicate.state(self)._no_sync = not requires_gradient_sync

    def register_comm_hook(self, *args: Any, **kwargs: Any) -> None:
        """Register a communication hook, as DistributedDataParallel's method does."""
        replicate.state(self)._comm_hooks.append((args, kwargs))


def _no_deepcopy(*args: Any, **kwargs: Any) -> Any:
    raise AssertionError("DDP does not support deepcopy. Please use state dict for serialization.")


@contract(state_cls=_ReplicateState)
def replicate(module: Module, ignored_modules: Iterable[Module] | None = None, **kwargs: Any) -> Module:
    """Average the gradients of a module over the ranks in every backward pass; returns the same module.

    >>> replicate(model)
    """
    if "device_id" in kwargs and not isinstance(kwargs["device_id"], (int, Device)):
        raise RuntimeError(f"Expected device_id to be int or torch.device, but got {type(kwargs['device_id'])}")
    if _is_fully_sharded(module):
        raise RuntimeError("Cannot apply `replicate()` on a Module already managed by `fully_shard`")
    state = replicate.state(module)
    state.prepare(module, set(ignored_modules or ()), kwargs)
    module.register_forward_pre_hook(state.before, with_kwargs=True)
    module.register_forward_hook(state.after)
    cls = type(module)
    module.__class__ = type(f"DDP{cls.__name__}", (DDP, cls), {"__deepcopy__": _no_deepcopy})
    return module


def _is_fully_sharded(module: Module) -> bool:
    registry = _get_registry(module)
    return registry is not None and "fully_shard" in registry
