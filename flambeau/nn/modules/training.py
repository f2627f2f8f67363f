"""Operations on a whole tree of modules during training: modes, gradients, sharing, compiling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ...core.compile_options import check_compile_options

_Self = TypeVar("_Self", bound="Training")


class Training:
    """The methods of Module that training calls."""

    training: bool
    children: Callable[[], Any]
    parameters: Callable[[], Any]
    _apply: Callable[..., Any]

    def train(self: _Self, mode: bool = True) -> _Self:
        """Switch this module and all below it to training (or evaluation) behaviour."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for child in self.children():
            child.train(mode)
        return self

    def eval(self: _Self) -> _Self:
        return self.train(False)

    def requires_grad_(self: _Self, requires_grad: bool = True) -> _Self:
        """Switch recording on or off for all parameters."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop (or zero) the gradients of all parameters."""
        for p in self.parameters():
            if p.grad is None:
                continue
            if set_to_none:
                p.grad = None
            else:
                if p.grad.grad_fn is not None:
                    p.grad.detach_()
                else:
                    p.grad.requires_grad_(False)
                p.grad.zero_()

    def apply(self, fn: Callable[[Any], None]) -> Any:
        """Call fn on every submodule, then on this one."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def share_memory(self) -> Any:
        return self._apply(lambda t: t.share_memory_())

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Check the options of `flambeau.compile`; `Module.compile` overrides this."""
        check_compile_options(*args, **kwargs)
