"""Modules whose shapes are inferred by their first forward."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from ...autograd.grad_mode import no_grad
from ..parameter import is_lazy

__all__ = ["LazyModuleMixin"]


class LazyModuleMixin:
    """Mixin before a Module whose parameters may be `UninitializedParameter`s.

    The subclass implements `initialize_parameters(self, *args, **kwargs)`, which gets the arguments of the first forward and gives every
    parameter its shape; afterwards the module becomes an instance of `cls_to_become`.

    >>> layer = nn.LazyLinear(2)
    >>> layer(flambeau.ones(3, 5)).shape
    torch.Size([3, 2])
    """

    if TYPE_CHECKING:  # those of the Module it is mixed into

        def __getattr__(self, name: str) -> Any: ...

    cls_to_become: type | None = None

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(self._infer_parameters, with_kwargs=True)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        # Uninitialized tensors have no data to detach: they are saved as they are.
        for name, parameter in self._parameters.items():
            if parameter is not None:
                destination[prefix + name] = parameter if is_lazy(parameter) or keep_vars else parameter.detach()
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = buffer if is_lazy(buffer) or keep_vars else buffer.detach()

    def _lazy_load_hook(self, state_dict: dict, prefix: str, *unused: Any) -> None:
        for name, own in itertools.chain(self._parameters.items(), self._buffers.items()):
            saved = state_dict.get(prefix + name)
            if own is not None and saved is not None and is_lazy(own) and not is_lazy(saved):
                with no_grad():
                    own.materialize(saved.shape)

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Initialise all parameters, with shapes from the arguments of forward."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self) -> bool:
        """Return whether some parameter or buffer still has no shape."""
        return any(is_lazy(t) for t in itertools.chain(self._parameters.values(), self._buffers.values()))

    def _infer_parameters(self, module: Any, args: tuple, kwargs: dict | None = None) -> None:
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise RuntimeError(f"module {self._get_name()} has not been fully initialized")
        module._initialize_hook.remove()
        module._load_hook.remove()
        delattr(module, "_initialize_hook")
        delattr(module, "_load_hook")
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become

    def _replicate_for_data_parallel(self) -> Any:
        raise RuntimeError(
            "Modules with uninitialized parameters can't be used with `DataParallel`. Run a dummy forward pass to"
            " correctly initialize the modules"
        )
