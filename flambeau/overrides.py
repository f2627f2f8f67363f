"""Changing what operators do: for one class of tensors (`__torch_function__`), or for a while (`TorchFunctionMode`).

>>> class Count(TorchFunctionMode):
...     calls = 0
...     def __torch_function__(self, func, types, args=(), kwargs=None):
...         self.calls += 1
...         return func(*args, **(kwargs or {}))
>>> with Count() as count:
...     y = flambeau.ones(2) + 1
>>> count.calls
2
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .core import modes
from .core.overrides import (
    DisableTorchFunctionSubclass,
    call_override,
    disabled_torch_function,
    overriding_types,
    register_subclass,
)
from .core.tensor import Tensor

__all__ = [
    "BaseTorchFunctionMode",
    "DisableTorchFunctionSubclass",
    "TorchFunctionMode",
    "disabled_torch_function",
    "handle_torch_function",
    "has_torch_function",
    "is_tensor_like",
    "is_tensor_method_or_property",
    "register_subclass",
    "resolve_name",
]


class TorchFunctionMode(modes.Mode):
    """Inside a `with` block, every operator called goes through `__torch_function__` of the mode."""

    def handle(self, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
        return self.__torch_function__(function, tuple(overriding_types(args, kwargs)), args, kwargs)

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __torch_function__")


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that changes nothing."""

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return func(*args, **(kwargs or {}))


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether any of the arguments overrides operators."""
    return bool(overriding_types(tuple(relevant_args), {}))


def handle_torch_function(public_api: Callable, relevant_args: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
    """Let the arguments that override operators decide what `public_api(*args, **kwargs)` is."""
    types = overriding_types(tuple(relevant_args), {})
    if not types:
        raise TypeError(f"none of the arguments of {resolve_name(public_api)} overrides operators")
    return call_override(public_api, types, args, kwargs)


def is_tensor_like(inp: Any) -> bool:
    """Whether the object is a tensor or overrides operators as one."""
    return isinstance(inp, Tensor) or hasattr(type(inp), "__torch_function__")


def is_tensor_method_or_property(func: Callable) -> bool:
    """Whether the function is (also) a method of Tensor."""
    return getattr(Tensor, getattr(func, "__name__", ""), None) is func


def resolve_name(f: Callable) -> str:
    """A readable name of an operator."""
    return f"torch.{getattr(f, '__name__', repr(f))}"
