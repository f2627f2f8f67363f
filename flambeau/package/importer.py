"""Importers, which find the classes and functions of a pickled object: in the interpreter's modules, or those of a package."""

from __future__ import annotations

import importlib
import sys
from abc import ABC, abstractmethod
from itertools import count
from types import ModuleType
from typing import Any

_numbers = count()


class ObjNotFoundError(Exception):
    """Raised when an importer has no object of a name."""


class ObjMismatchError(Exception):
    """Raised when an importer has another object of the same name."""


def new_mangle() -> str:
    """Return a unique name prefix for the modules of one package."""
    return f"<torch_package_{next(_numbers)}>"


def is_mangled(name: str) -> bool:
    """Return whether a module's name marks it as part of a package."""
    return name.startswith("<torch_package_")


def demangle(name: str) -> str:
    """Return the name that a module has inside its package; other names unchanged."""
    return name.partition(".")[2] if is_mangled(name) else name


class Importer(ABC):
    """Base of importers: find modules by name, and the name of an object in them."""

    @abstractmethod
    def import_module(self, module_name: str) -> ModuleType:
        """Return the module of this name."""

    def get_name(self, obj: Any, name: str | None = None) -> tuple[str, str]:
        """Return the module and name under which this importer has an object; raises if it has none, or another."""
        name = name or getattr(obj, "__qualname__", None) or obj.__name__
        module = demangle(self.whichmodule(obj, name))
        try:
            found: Any = self.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
        except (ImportError, KeyError, AttributeError) as problem:
            raise ObjNotFoundError(f"{obj} was not found as {module}.{name}") from problem
        if found is not obj:
            raise ObjMismatchError(
                f"Tried to find the location of {obj}, but {module}.{name} is {found}, another object; it comes from"
                f" {getattr(obj, '__module__', None)}. Is the importer of the package that it comes from among the exporter's?"
            )
        return module, name

    def whichmodule(self, obj: Any, name: str) -> str:
        """Return the name of the module that an object declares as its own."""
        return getattr(obj, "__module__", None) or "__main__"


class _SysImporter(Importer):
    """Importer of the modules that `import` finds."""

    modules = sys.modules

    def import_module(self, module_name: str) -> ModuleType:
        return importlib.import_module(module_name)

    def whichmodule(self, obj: Any, name: str) -> str:
        module = super().whichmodule(obj, name)
        if is_mangled(module):
            raise ObjNotFoundError(f"{obj} is of a package: give its importer to the exporter")
        return module


sys_importer = _SysImporter()


class OrderedImporter(Importer):
    """Importer that tries several importers in order."""

    def __init__(self, *args: Importer):
        self._importers = list(args)

    def import_module(self, module_name: str) -> ModuleType:
        problem: ModuleNotFoundError | None = None
        for importer in self._importers:
            try:
                return importer.import_module(module_name)
            except ModuleNotFoundError as missing:
                problem = missing
        raise problem or ModuleNotFoundError(module_name)

    def get_name(self, obj: Any, name: str | None = None) -> tuple[str, str]:
        problem: Exception | None = None
        for importer in self._importers:
            try:
                return importer.get_name(obj, name)
            except (ObjNotFoundError, ObjMismatchError) as missing:
                problem = missing
        raise problem or ObjNotFoundError(str(obj))
