"""`Variable`: the former name of a tensor with a gradient, which old programs still use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.tensor import Tensor
from .engine import running


class _TensorLike(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor)


VariableMeta = _TensorLike


class Engine:
    """The engine that PyTorch calls `Variable._execution_engine`."""

    @staticmethod
    def queue_callback(callback: Callable[[], None]) -> None:
        """Call `callback` at the end of the backward pass that is running now."""
        if running.current is None:
            raise RuntimeError("Final callbacks can only be installed during backward pass.")
        running.current.callbacks.append(callback)


class Variable(metaclass=_TensorLike):
    """Former name of a tensor with a gradient: `Variable(tensor)` shares its memory, with `requires_grad` set as asked."""

    _execution_engine = Engine()

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = False, volatile: bool | None = None) -> Any:
        if data is None:
            return Tensor()
        if not isinstance(data, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
        return data.detach().requires_grad_(requires_grad)


__all__ = ["Variable"]
