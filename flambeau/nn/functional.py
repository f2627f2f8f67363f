"""Functional forms of the layers: every operator declared in the namespace "nn.functional"."""

from typing import TYPE_CHECKING, Any

from .. import ops

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

if TYPE_CHECKING:  # names that are put here when the module is imported

    def __getattr__(name: str) -> Any: ...
