"""Neural networks: modules, layers, losses and their functional forms.

>>> from flambeau import nn
>>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
"""

from typing import Any

from ..core import naming as _naming
from . import _reduction, attention, common_types, functional, grad, init, modules, parallel, parameter, utils
from .modules import *
from .parallel import DataParallel
from .parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter

functional.grad = grad  # it is made of functional itself

__all__ = [
    "Buffer", "DataParallel", "Parameter", "UninitializedBuffer", "UninitializedParameter", "_reduction",
    "attention", "common_types", "factory_kwargs", "functional", "grad", "init", "modules", "parallel", "parameter",
    "utils",
]  # fmt: skip
__all__ += modules.__all__


def factory_kwargs(kwargs: dict[str, Any] | None) -> dict[str, Any]:
    """Return the device, dtype and memory_format among a layer's arguments, given directly or under "factory_kwargs"."""
    if kwargs is None:
        return {}
    names = {"device", "dtype", "memory_format"}
    unexpected = set(kwargs) - names - {"factory_kwargs"}
    if unexpected:
        raise TypeError(f"unexpected kwargs {unexpected}")
    result = dict(kwargs.get("factory_kwargs", {}))
    for name in names & set(kwargs):
        if name in result:
            raise TypeError(f"{name} specified twice, in **kwargs and in factory_kwargs")
        result[name] = kwargs[name]
    return result


def __getattr__(name: str) -> Any:
    if name in ("intrinsic", "qat", "quantizable", "quantized"):  # former names of parts of `ao.nn`
        return _naming.submodule(__name__, name)
    raise _naming.no_attribute(__name__, name)
