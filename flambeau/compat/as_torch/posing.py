"""Flambeau in place of PyTorch: after `install_as_torch()`, `import torch` returns this package.

>>> import flambeau
>>> flambeau.install_as_torch()
>>> import torch.nn.functional as F      # the same module object as flambeau.nn.functional
>>> import torchvision                   # flambeau.vision

`python -m flambeau script.py` does this for a whole program. Processes started by `multiprocessing` (data loader workers
too) are prepared in the same way, whatever the start method; activation.py says how other programs are.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import multiprocessing
import multiprocessing.spawn
import os
import sys
from collections.abc import Callable, Sequence
from types import CodeType, ModuleType
from typing import Any

from ...core import locks, naming
from ...serialization import names as file_names
from ...torch_version import OWN_VERSION, TORCH_VERSION, TORCHVISION_VERSION
from ...torch_version import TorchVersion as _TorchVersion
from ..former_names import MOVED, AliasLoader, spec_of
from . import serving_names

_NAMES = ("torch", "torchvision", "horovod", "functorch")


def _folder() -> str:
    """Return the folder of this package."""
    return os.path.abspath(sys.modules[naming.PACKAGE].__path__[0])


class _AliasFinder(importlib.abc.MetaPathFinder):
    """Finder of `torch.x.y` as `flambeau.x.y`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in _NAMES:
            return None
        return alias_of(fullname, path)


def alias_of(fullname: str, path: Sequence[str] | None = None) -> importlib.machinery.ModuleSpec | None:
    """Return the import system's spec of this package's module for a name of PyTorch or torchvision."""
    real_name = naming.own_name(fullname)
    loaded = sys.modules.get(real_name)
    search = path or sys.modules[naming.PACKAGE].__path__  # torchvision and horovod are in it, too
    real = (
        loaded.__spec__ if loaded else spec_of(real_name) or importlib.machinery.PathFinder.find_spec(real_name, search)
    )
    if real is None:
        return None
    spec = importlib.machinery.ModuleSpec(fullname, AliasLoader(real_name), origin=real.origin)
    spec.submodule_search_locations = real.submodule_search_locations
    return spec


class _OwnFinder(importlib.abc.MetaPathFinder):
    """Finder of this package's modules that also registers them under their second names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(f"{naming.PACKAGE}."):
            return None
        spec = spec_of(fullname) or importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            load = spec.loader.exec_module

            def load_and_present(module: ModuleType) -> None:
                load(module)
                _rename_module(module)

            spec.loader.exec_module = load_and_present  # type: ignore[method-assign]
        return spec


def _rename_module(module: ModuleType) -> None:
    """Present a loaded module of this package as PyTorch's or torchvision's, for programs and for `inspect`."""
    sys.modules.setdefault(naming.torch_name(module.__name__), module)
    _explain_missing_names(module)
    _rename_classes(module)
    if module.__name__ == f"{naming.PACKAGE}.vision":
        _set_version(module, TORCHVISION_VERSION)


def _rename_classes(module: ModuleType) -> None:
    """Set the `__module__` of classes to PyTorch's modules: programs print them, compare their names and pickle them by name."""
    here = module.__name__
    for value in list(vars(module).values()):
        if isinstance(value, type) and here in (
            value.__module__,
            f"{naming.PACKAGE}.{MOVED.get(value.__module__.partition('.')[2])}",
        ):
            value.__module__ = (file_names.written_name(value) or (value.__module__, ""))[0]


class _MxnetFinder(importlib.abc.MetaPathFinder):
    """Finder of `mxnet`, if it is not installed, for code that uses its record files; other code only tests whether it exists."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in ("mxnet", "mxnet.recordio") or not _has_name_with(_importing_code(), "recordio"):
            return None
        real_name = f"{naming.PACKAGE}.utils.{fullname.rpartition('.')[2]}"
        return importlib.machinery.ModuleSpec(fullname, AliasLoader(real_name), origin=naming.PACKAGE)


class _LastFinder(importlib.abc.MetaPathFinder):
    """Last finder: if `from torch import x` finds no `flambeau.x`, raise an error that names `torch.x`, as the program's author knows it."""

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        if fullname.partition(".")[0] in (naming.PACKAGE, *_NAMES) and not _called_by_find_spec():
            name = naming.torch_name(fullname)
            raise ModuleNotFoundError(naming.not_there(name), name=name)


def _importing_code() -> CodeType:
    """Return the code that imports or looks for a module."""
    frame = sys._getframe(1)
    while "importlib" in frame.f_code.co_filename or frame.f_globals is globals():
        frame = frame.f_back  # type: ignore[assignment]
    return frame.f_code


def _has_name_with(code: CodeType, name: str) -> bool:
    """Return whether code, or that of a function inside it, has a name that contains `name`."""
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    return any(name in known for known in code.co_names) or any(_has_name_with(each, name) for each in inner)


def _called_by_find_spec() -> bool:
    """Return whether `importlib.util.find_spec` is looking for the module: programs test this way whether it exists, and the answer is None,
    not an error."""
    frame = sys._getframe(1)
    while (frame := frame.f_back) is not None and "importlib" in frame.f_code.co_filename:  # type: ignore[assignment]
        if frame.f_code is importlib.util.find_spec.__code__:
            return True
    return False


def _explain_missing_names(module: ModuleType) -> None:
    if "__getattr__" not in vars(module):

        def missing(name: str) -> Any:
            raise naming.no_attribute(module.__name__, name)

        module.__getattr__ = missing  # type: ignore[method-assign]


def _set_version(module: ModuleType, version: str) -> None:
    module.__version__ = _TorchVersion(f"{version}+flambeau.{OWN_VERSION}")  # type: ignore[attr-defined]


class _Distribution(importlib.metadata.Distribution):
    """Metadata of the distribution "torch", as `importlib.metadata.version("torch")` reads it."""

    def __init__(self, name: str):
        self.name_asked = name

    def read_text(self, filename: str) -> str | None:
        if filename != "METADATA":
            return None
        version = importlib.import_module(self.name_asked).__version__
        return f"Metadata-Version: 2.1\nName: {self.name_asked}\nVersion: {version}\n"

    def locate_file(self, path: Any) -> Any:
        return os.path.join(_folder(), path)


class _DistributionFinder(importlib.metadata.DistributionFinder):
    """Finder of the distribution "torch", before that of installed packages, where the real PyTorch may be."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        return None

    def find_distributions(self, context: Any = None) -> list[importlib.metadata.Distribution]:
        return distributions(context)


def distributions(context: Any) -> list[importlib.metadata.Distribution]:
    """Return the distributions for the name in `context`."""
    return [_Distribution(context.name)] if context is not None and context.name in _NAMES else []


# -- other processes ----------------------------------------------------------------------------------------------------------


class _InstallOnArrival:
    """Object that is sent to a new process with its preparation data, and installs Flambeau as torch when it is unpickled: the main module is
    imported right after, and may import torch."""

    def __reduce__(self) -> tuple:
        root = os.path.dirname(_folder())
        code = f"import sys; sys.path.append({root!r}); import flambeau; flambeau.install_as_torch(); sys.path.pop()"
        return exec, (code,)


def _prepare_new_processes() -> None:
    original: Callable[[str], dict] = multiprocessing.spawn.get_preparation_data

    def get_preparation_data(name: str) -> dict:
        return {"flambeau": _InstallOnArrival(), **original(name)}

    multiprocessing.spawn.get_preparation_data = get_preparation_data
    # A fork server would import the main module before it gets any data.
    multiprocessing.set_forkserver_preload([naming.PACKAGE])


_installing = locks.new_lock()


def install_as_torch() -> None:
    """Make `import torch` and `import torchvision` return Flambeau in this process and those it starts through `multiprocessing`;
    `torch.__version__` is the version of PyTorch that Flambeau follows."""
    with _installing:  # who comes while another thread does it waits until the names are there
        if not naming.is_posing():
            _install()


def _install() -> None:
    package = sys.modules[naming.PACKAGE]
    for name in _NAMES:
        if name in sys.modules:
            raise RuntimeError(
                f"install_as_torch() must come before the first `import {name}`: the real one is already loaded in this"
                " process, and objects of the two do not mix"
            )
    # The finders first: from the moment that the names are PyTorch's, other threads import by them.
    sys.meta_path[:0] = [_AliasFinder(), _OwnFinder(), _DistributionFinder()]
    sys.meta_path += [_MxnetFinder(), _LastFinder()]
    naming.start_posing()
    package.__name__ = "torch"  # programs that replace parts of PyTorch compare it
    _set_version(package, TORCH_VERSION)
    for module in [m for n, m in sys.modules.items() if n.startswith(f"{naming.PACKAGE}.")]:
        if isinstance(module, ModuleType):
            _rename_module(module)
    serving_names.install(first=False)
    _prepare_new_processes()
