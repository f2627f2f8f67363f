"""Importers, from which the classes and functions of a pickled object come: the interpreter's modules, or those of a package."""

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
    """A name for the modules of one package, which no other module has."""
    return f"<torch_package_{next(_numbers)}>"


def is_mangled(name: str) -> bool:
    """Return whether a module's name says that it is of a package."""
    return name.startswith("<torch_package_")


def demangle(name: str) -> str:
    """The name that a module has inside its package; other names are returned unchanged."""
    return name.partition(".")[2] if is_mangled(name) else name


class Importer(ABC):
    """Finds modules by name, and the name of an object in them."""

    @abstractmethod
    def import_module(self, module_name: str) -> ModuleType:
        """The module of this name."""

    def get_name(self, obj: Any, name: str | None = None) -> tuple[str, str]:
        """The module and the name under which this importer has an object; an error if it has none, or another."""
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
        """The name of the module that an object says it is from."""
        return getattr(obj, "__module__", None) or "__main__"


class _SysImporter(Importer):
    """The modules that `import` finds."""

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
