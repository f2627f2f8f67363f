"""`torch.ops.quantized`: the operators of quantized tensors by name. Loaded when it is first used."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from ..machinery.binding import namespace
from . import conv, elementwise, embedding, forms, layers, linear, plain_bytes, recurrent  # noqa: F401  declare the operators


class _Namespace(ModuleType):
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"'_OpNamespace' '{self.__name__.rpartition('.')[2]}' object has no attribute '{name}'")


def make_namespace(name: str) -> Any:
    """Return the operators of a namespace, in the form of `torch.ops`."""
    place = _Namespace(f"torch.ops.{name}")
    for key, function in namespace(name).items():
        function.__module__ = place.__name__
        function.overloadpacket = function.default = function
        setattr(place, key, function)
    return place


quantized, _quantized, onednn = make_namespace("quantized"), make_namespace("_quantized"), make_namespace("onednn")
for _function in (onednn.qadd, onednn.qadd_relu, onednn.qmul):
    _function.tensor = _function
