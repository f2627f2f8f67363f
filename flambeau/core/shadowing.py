"""Overrides of attributes and plain methods, besides operators, by a subclass of Tensor with a `__torch_function__`.

`shape`, `grad`, `size()` and the like are read directly from a tensor's header, without an operator that could call the override. Such a
class gets descriptors for them; other tensors pay nothing."""

from __future__ import annotations

import functools
from types import FunctionType
from typing import Any

from .naming import PACKAGE
from .overrides import asks_arguments, call_override

PROTOCOL = (
    "__len__", "__bool__", "__int__", "__float__", "__complex__", "__index__", "__contains__", "__iter__", "__repr__",
    "__format__", "__array__", "__deepcopy__", "__reduce_ex__",
)  # fmt: skip
# A header's own slots: reading them can be overridden; only the library writes them.
_HEADER = ("shape", "dtype", "device")


class Asked:
    """Descriptor for an attribute or method of Tensor that calls the class's override."""

    def __init__(self, given: Any, settable: bool) -> None:
        self.given, self.settable = given, settable

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self.given
        if not asks_arguments():
            return self.given.__get__(instance, owner)
        if isinstance(self.given, FunctionType):
            return functools.partial(_ask, self.given, instance)
        return _ask(self.given.__get__, instance)

    def __set__(self, instance: Any, value: Any) -> None:
        if self.settable and asks_arguments():
            _ask(self.given.__set__, instance, value)
        else:
            self.given.__set__(instance, value)


def _ask(function: Any, instance: Any, *args: Any, **kwargs: Any) -> Any:
    return call_override(function, (instance, *args), kwargs, [instance])


def _is_ours(function: FunctionType) -> bool:
    """Return whether a method was defined by this library. A user's method on Tensor is no operator: it runs, and the operators it calls are
    overridden."""
    return function.__globals__.get("__name__", "").partition(".")[0] == PACKAGE


def shadow(cls: type, tensor_class: type) -> None:
    """Install `Asked` over the attributes that `cls` inherits from Tensor and that are no operators."""
    for name, given in tensor_class.__dict__.items():
        if name.startswith("_") and name not in PROTOCOL:
            continue
        is_method = isinstance(given, FunctionType) and not hasattr(given, "op") and _is_ours(given)
        is_attribute = isinstance(given, property) or name in _HEADER
        if (is_method or is_attribute) and getattr(cls, name) is getattr(tensor_class, name):
            setattr(cls, name, Asked(given, is_attribute and name not in _HEADER))
