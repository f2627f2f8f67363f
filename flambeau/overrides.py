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

import functools
import inspect
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
from .library.operator import Operator
from .ops import namespace

__all__ = [
    "BaseTorchFunctionMode",
    "DisableTorchFunctionSubclass",
    "TorchFunctionMode",
    "disabled_torch_function",
    "get_overridable_functions",
    "handle_torch_function",
    "has_torch_function",
    "is_tensor_like",
    "is_tensor_method_or_property",
    "register_subclass",
    "resolve_name",
    "wrap_torch_function",
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
    """Whether the function is a method of Tensor, or reads or sets one of its properties."""
    return func in _tensor_functions()


@functools.cache
def _tensor_functions() -> dict[Any, str]:
    """Methods of Tensor and the getters and setters of its properties, with their names."""
    found: dict[Any, str] = {}
    for name in dir(Tensor):
        value = inspect.getattr_static(Tensor, name)
        if isinstance(value, property) or inspect.ismemberdescriptor(value):
            found[value.__get__] = f"torch.Tensor.{name}.__get__"
            found[value.__set__] = f"torch.Tensor.{name}.__set__"
        elif callable(value):
            found.setdefault(value, f"torch.Tensor.{name}")
    return found


_NAMESPACES = (
    ("torch", "torch"),
    ("torch.nn.functional", "nn.functional"),
    ("torch.linalg", "linalg"),
    ("torch.fft", "fft"),
    ("torch.special", "special"),
)


@functools.cache
def _function_names() -> dict[int, str]:
    names: dict[int, str] = {}
    for prefix, which in _NAMESPACES:
        for name, function in namespace(which).items():
            names.setdefault(id(function), f"{prefix}.{name}")
    return names


def get_overridable_functions() -> dict[Any, list[Callable]]:
    """Which functions `__torch_function__` is asked about, by the namespace they are in."""
    found: dict[Any, list[Callable]] = {prefix: list(namespace(which).values()) for prefix, which in _NAMESPACES}
    found[Tensor] = list(_tensor_functions())
    return found


def resolve_name(f: Any) -> str | None:
    """The public name of an operator, such as "torch.add"; None for what is none."""
    if isinstance(f, Operator):
        return str(f)
    try:
        known = _tensor_functions().get(f)
    except TypeError:  # not hashable: no operator
        return None
    return _function_names().get(id(f)) or known


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[[Callable], Callable]:
    """Decorator: a function of the user's own asks its arguments' `__torch_function__` first, as operators do. The dispatcher
    gets the same arguments and returns those to ask."""

    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = tuple(dispatcher(*args, **kwargs))
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return wrapped

    return decorate
