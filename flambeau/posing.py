"""Flambeau in the place of PyTorch: after `install_as_torch()`, `import torch` gives this package.

>>> import flambeau
>>> flambeau.install_as_torch()
>>> import torch.nn.functional as F      # the same module object as flambeau.nn.functional
>>> import torchvision                   # flambeau.vision

`python -m flambeau script.py` does this for a whole program. Processes started by `multiprocessing` (data loader workers
too) are prepared in the same way, whatever the start method.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import multiprocessing
import multiprocessing.spawn
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from .core import naming
from .torch_version import TORCH_VERSION, TORCHVISION_VERSION
from .torch_version import TorchVersion as _TorchVersion

__all__ = ["install_as_torch"]

_NAMES = ("torch", "torchvision")


class _AliasLoader(importlib.abc.Loader):
    """Hands out a module of this package, untouched, under a second name."""

    def __init__(self, real_name: str):
        self.real_name = real_name

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(self.real_name)
        self.real_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.real_spec  # the import system has just replaced it by the alias's
        _explain_missing_names(module)
        if self.real_name == "flambeau.vision":
            _set_version(module, TORCHVISION_VERSION)


class _AliasFinder(importlib.abc.MetaPathFinder):
    """Finds `torch.x.y` as `flambeau.x.y`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in _NAMES:
            return None
        real_name = naming.own_name(fullname)
        real = importlib.util.find_spec(real_name)
        assert real is not None  # else _LastFinder has raised
        spec = importlib.machinery.ModuleSpec(fullname, _AliasLoader(real_name), origin=real.origin)
        spec.submodule_search_locations = real.submodule_search_locations
        return spec


class _LastFinder(importlib.abc.MetaPathFinder):
    """Asked when nobody has found a module: `from torch import x` looks for `flambeau.x`, and the program's author knows it
    as `torch.x`."""

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        if fullname.startswith(f"{naming.PACKAGE}."):
            name = naming.torch_name(fullname)
            raise ModuleNotFoundError(naming.not_there(name), name=name)


def _explain_missing_names(module: ModuleType) -> None:
    if "__getattr__" not in vars(module):

        def missing(name: str) -> Any:
            raise naming.no_attribute(module.__name__, name)

        module.__getattr__ = missing  # type: ignore[method-assign]


def _set_version(module: ModuleType, version: str) -> None:
    own = getattr(module, "__version__", None) or importlib.import_module(naming.PACKAGE).__version__
    module.__version__ = _TorchVersion(f"{version}+flambeau.{own}")


# -- other processes ----------------------------------------------------------------------------------------------------------


class _InstallOnArrival:
    """Travels to a new process with what prepares it there, and takes PyTorch's place as it is unpickled: the main
    module is imported right after, and may import torch."""

    def __reduce__(self) -> tuple:
        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        code = f"import sys; sys.path.append({root!r}); import flambeau; flambeau.install_as_torch(); sys.path.pop()"
        return exec, (code,)


def _prepare_new_processes() -> None:
    original: Callable[[str], dict] = multiprocessing.spawn.get_preparation_data

    def get_preparation_data(name: str) -> dict:
        return {"flambeau": _InstallOnArrival(), **original(name)}

    multiprocessing.spawn.get_preparation_data = get_preparation_data
    # A fork server would import the main module before it is told anything.
    multiprocessing.set_forkserver_preload([naming.PACKAGE])


def install_as_torch() -> None:
    """From now on, `import torch` and `import torchvision` give Flambeau in this process and those it starts through
    `multiprocessing`; `torch.__version__` is the version of PyTorch that Flambeau follows."""
    if naming.is_posing():
        return
    package = importlib.import_module(naming.PACKAGE)
    for name in _NAMES:
        if name in sys.modules:
            raise RuntimeError(
                f"install_as_torch() must come before the first `import {name}`: the real one is already loaded in this"
                " process, and objects of the two do not mix"
            )
    naming.start_posing()
    _set_version(package, TORCH_VERSION)
    for module in [m for n, m in sys.modules.items() if n.startswith(f"{naming.PACKAGE}.")]:
        if isinstance(module, ModuleType):
            _explain_missing_names(module)
    sys.meta_path.insert(0, _AliasFinder())
    sys.meta_path.append(_LastFinder())
    _prepare_new_processes()
