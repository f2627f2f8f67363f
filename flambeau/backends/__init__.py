"""Devices on which kernels run: `cpu`, and devices that are added with `register`; and the switches of `torch.backends`."""

import contextlib
from typing import Any

from ..core import naming as _naming
from ..core.backend import Backend as Backend
from ..core.backend import register as register
from ..core.settings import matmul_switches as _matmul_switches

fp32_precision: str


def __getattr__(name: str) -> Any:
    if name == "fp32_precision":
        return "none" if _matmul_switches.precision == "highest" else "tf32"
    if name == "__allow_nonbracketed_mutation":
        return contextlib.nullcontext  # switches are always set by a plain assignment here
    if name.startswith("_"):
        raise _naming.no_attribute(__name__, name)
    return _naming.submodule(__name__, name)
