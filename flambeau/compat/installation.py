"""Facts about the installation: the package's folder, what it was built with, and the module of each device type."""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any

from ..core import naming
from ..core.device import default_device
from ..core.device import device as Device


def get_file_path(*path_components: str) -> str:
    """Return a path next to the installed package."""
    return os.path.join(os.path.dirname(sys.modules[naming.PACKAGE].__path__[0]), *path_components)


def get_device_module(device: Any = None) -> ModuleType:
    """Return the module of a device: `flambeau.cpu` for "cpu", `flambeau.cuda` for "cuda:0"."""
    kind = default_device().type if device is None else Device(device).type
    return naming.above(kind)


def compiled_with_cxx11_abi() -> bool:
    """Return whether C++ extensions use the C++11 ABI, as PyTorch's do today; there is no C++ here."""
    return True
