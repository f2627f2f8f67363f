"""Devices on which kernels run: `cpu`, and devices that are added with `register`; and the switches of `torch.backends`."""

from typing import Any

from ..core import naming as _naming
from ..core.backend import Backend as Backend
from ..core.backend import register as register


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise _naming.no_attribute(__name__, name)
    return _naming.submodule(__name__, name)
