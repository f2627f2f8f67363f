"""Functional forms of the layers: every operator declared in the namespace "nn.functional"."""

from typing import Any

from .. import ops
from ..core import naming

_functions = ops.namespace("nn.functional")


def _name(functions: dict[str, Any], elsewhere: dict[str, Any]) -> None:
    """Set `__module__` of functions that only this module has, so that models that hold one can be pickled."""
    for name, function in functions.items():
        if elsewhere.get(function.__name__) is function:
            continue
        if functions.get(function.__name__) is not function:
            function.__name__ = function.__qualname__ = name
        function.__module__ = __name__


_name(_functions, ops.namespace("torch"))
globals().update(_functions)


def __getattr__(name: str) -> Any:
    """Return the functions of `overrides` (`has_torch_function` and so on), which PyTorch's module offers too."""
    if name in ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"):
        return getattr(naming.above("overrides"), name)
    if name in ("ScalingType", "SwizzleType", "scaled_grouped_mm", "scaled_mm"):
        return getattr(naming.above("nn.scaling"), name)
    raise naming.no_attribute(__name__, name)
