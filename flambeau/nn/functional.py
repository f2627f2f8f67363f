"""Functional forms of the layers: every operator declared in the namespace "nn.functional"."""

from typing import Any

from .. import ops
from ..core import naming

_functions = ops.namespace("nn.functional")


def _name(functions: dict[str, Any], elsewhere: dict[str, Any]) -> None:
    """Functions that only this module has are known as its own, so that models that keep one can be pickled."""
    for name, function in functions.items():
        if elsewhere.get(function.__name__) is function:
            continue
        if functions.get(function.__name__) is not function:
            function.__name__ = function.__qualname__ = name
        function.__module__ = __name__


_name(_functions, ops.namespace("torch"))
globals().update(_functions)


def __getattr__(name: str) -> Any:
    """Programs also find the questions about overriding arguments here, as PyTorch's own functions do."""
    if name in ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"):
        return getattr(naming.above("overrides"), name)
    if name in ("ScalingType", "SwizzleType", "scaled_grouped_mm", "scaled_mm"):
        return getattr(naming.above("nn.scaling"), name)
    raise naming.no_attribute(__name__, name)
