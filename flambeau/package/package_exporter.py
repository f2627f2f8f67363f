"""Writing of packages: objects, texts, and the source of the modules that they need."""

from __future__ import annotations

import importlib.util
import io
import pickletools
import platform
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from ..core.storage import UntypedStorage
from ..serialization import archive
from ..serialization.names import written_name
from ..serialization.writer import StoragePickler
from .dependencies import Dependencies, PackagingErrorReason, imported_by
from .glob_group import GlobGroup
from .importer import Importer, OrderedImporter, demangle, is_mangled, sys_importer

__all__ = ["EmptyMatchError", "PackageExporter", "PackagingError", "PackagingErrorReason"]

_NEVER_LEFT_OUT = ("io", "sys")  # which give a package's code the machine: they have to be named
_MOCK = '''"""Stands for modules that were left out of this package: everything in them is a name, and using one raises an error."""


class MockedObject:
    _name: str

    def __new__(cls, *args, **kwargs):
        if not kwargs.get("_suppress_err"):
            raise NotImplementedError(
                f"Object '{cls._name}' was mocked out during packaging but it is being used in '__new__'"
            )
        return super().__new__(cls)

    def __init__(self, name: str, _suppress_err: bool = False):
        self.__dict__["_name"] = name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return MockedObject(f"{self._name}.{name}", _suppress_err=True)

    def __call__(self, *args, **kwargs):
        raise NotImplementedError(f"Object '{self._name}' was mocked out during packaging but it is being used in __call__")
'''
_MOCKED = """from _mock import MockedObject


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return MockedObject(f"{__name__}.{name}", _suppress_err=True)
"""


class EmptyMatchError(Exception):
    """Raised when a pattern with allow_empty=False matched no module."""


class PackagingError(Exception):
    """Raised when a package cannot be written: its message says which modules, and why."""

    def __init__(self, dependency_graph: Dependencies, debug: bool = False):
        self.dependency_graph = dependency_graph
        text = "".join(
            f"\n* {reason.value}\n" + "".join(f"    {name}\n" for name in names)
            for reason, names in dependency_graph.problems().items()
        )
        super().__init__(text + (f"\n{dependency_graph.to_dot()}\n" if debug else ""))


class PackageExporter:
    """A package being written; `close`, or the end of a `with` block, finishes it."""

    def __init__(self, f: Any, importer: Importer | Sequence[Importer] = sys_importer, debug: bool = False):
        self._file = f if hasattr(f, "write") else Path(f).open("wb")  # noqa: SIM115  closed with the package
        self._owns_file = self._file is not f
        self.buffer, self.debug = f, debug
        self.importer = importer if isinstance(importer, Importer) else OrderedImporter(*importer)
        self.archive = archive.ArchiveWriter(self._file, "archive" if hasattr(f, "write") else Path(f).stem)
        self.dependency_graph = Dependencies()
        self._patterns: list[tuple[str, GlobGroup, bool]] = []
        self._matched: set[int] = set()
        self._hooks: dict[str, list[Callable]] = {"extern": [], "mock": [], "intern": []}
        self._storages: dict[str, UntypedStorage] = {}
        self._keys: dict[tuple[int, int], str] = {}
        self._written: set[str] = set()
        self._unique = 0

    # -- what happens to which modules ------------------------------------------------------------------------------------

    def intern(
        self, include: str | Iterable[str], *, exclude: str | Iterable[str] = (), allow_empty: bool = True
    ) -> None:
        """Write the source of modules of these names into the package."""
        self._patterns.append(("intern", GlobGroup(include, exclude=exclude), allow_empty))

    def extern(
        self, include: str | Iterable[str], *, exclude: str | Iterable[str] = (), allow_empty: bool = True
    ) -> None:
        """Omit modules of these names: they are imported where the package is used."""
        self._patterns.append(("extern", GlobGroup(include, exclude=exclude), allow_empty))

    def mock(
        self, include: str | Iterable[str], *, exclude: str | Iterable[str] = (), allow_empty: bool = True
    ) -> None:
        """Omit modules of these names, and replace them by stubs that raise an error when they are used."""
        self._patterns.append(("mock", GlobGroup(include, exclude=exclude), allow_empty))

    def deny(self, include: str | Iterable[str], *, exclude: str | Iterable[str] = ()) -> None:
        """Refuse to write a package that needs modules of these names."""
        self._patterns.append(("deny", GlobGroup(include, exclude=exclude), True))

    def register_extern_hook(self, hook: Callable) -> None:
        """Call `hook(exporter, module_name)` for each module that is left out."""
        self._hooks["extern"].append(hook)

    def register_mock_hook(self, hook: Callable) -> None:
        """Call `hook(exporter, module_name)` for each module that is replaced."""
        self._hooks["mock"].append(hook)

    def register_intern_hook(self, hook: Callable) -> None:
        """Call `hook(exporter, module_name)` for each module whose source is written."""
        self._hooks["intern"].append(hook)

    def _names_with_action(self, action: str) -> list[str]:
        return [name for name, done in self.dependency_graph.actions.items() if done == action]

    def externed_modules(self) -> list[str]:
        """Return the modules that were omitted so far."""
        return self._names_with_action("extern")

    def interned_modules(self) -> list[str]:
        """Return the modules whose source was written so far."""
        return self._names_with_action("intern")

    def mocked_modules(self) -> list[str]:
        """Return the modules that were replaced so far."""
        return self._names_with_action("mock")

    def denied_modules(self) -> list[str]:
        """Return the modules that were refused so far."""
        return self._names_with_action("deny")

    def get_rdeps(self, module_name: str) -> list[str]:
        """Return the modules that need a module."""
        return self.dependency_graph.users_of(module_name)

    def dependency_graph_string(self) -> str:
        """Return the dependency graph in the language of Graphviz."""
        return self.dependency_graph.to_dot()

    def get_unique_id(self) -> str:
        """Return a number that is used once."""
        self._unique += 1
        return str(self._unique - 1)

    def add_dependency(self, module_name: str, dependencies: bool = True) -> None:
        """Handle a module as the first pattern that matches its name requires: intern, extern, mock or deny."""
        if module_name in self.dependency_graph.actions:
            return
        for number, (action, group, _) in enumerate(self._patterns):
            if group.matches(module_name):
                self._matched.add(number)
                self._apply_action(action, module_name, dependencies)
                return
        top = module_name.partition(".")[0]
        if top in ("torch", "flambeau") or (top in sys.stdlib_module_names and top not in _NEVER_LEFT_OUT):
            self._apply_action("extern", module_name, dependencies)
        else:
            self.dependency_graph.fail(module_name, PackagingErrorReason.NO_ACTION)

    def _apply_action(self, action: str, name: str, dependencies: bool) -> None:
        self.dependency_graph.actions[name] = action
        for hook in self._hooks.get(action, ()):
            hook(self, name)
        if action == "deny":
            self.dependency_graph.fail(name, PackagingErrorReason.DENIED)
        elif action == "mock":
            self._write("_mock.py", _MOCK)
            self._write(f"{name.replace('.', '/')}{'/__init__' * self._is_package(name)}.py", _MOCKED)
        elif action == "intern":
            self._intern(name, dependencies)

    def _is_package(self, name: str) -> bool:
        try:
            return hasattr(self.importer.import_module(name), "__path__")
        except ImportError:
            return False

    def _intern(self, name: str, dependencies: bool) -> None:
        try:
            module = self.importer.import_module(name)
        except ImportError:
            self.dependency_graph.fail(name, PackagingErrorReason.DEPENDENCY_RESOLUTION_FAILED)
            return
        source = self._source_of(name, module)
        if source is not None:
            self.save_source_string(name, source, hasattr(module, "__path__"), dependencies)

    def _source_of(self, name: str, module: types.ModuleType) -> str | None:
        loader: Any = getattr(module, "__loader__", None)
        if is_mangled(module.__name__):
            return loader.get_source(name)
        file = getattr(module, "__file__", None)
        if file is None:
            if hasattr(module, "__path__"):
                return ""  # a folder without a source
            self.dependency_graph.fail(name, PackagingErrorReason.NO_DUNDER_FILE)
        elif Path(file).suffix in (".so", ".pyd"):
            self.dependency_graph.fail(name, PackagingErrorReason.IS_EXTENSION_MODULE)
        elif not Path(file).exists():
            self.dependency_graph.fail(name, PackagingErrorReason.SOURCE_FILE_NOT_FOUND)
        else:
            return Path(file).read_text(encoding="utf-8")
        return None

    # -- what is written --------------------------------------------------------------------------------------------------

    def save_source_string(
        self, module_name: str, src: str, is_package: bool = False, dependencies: bool = True
    ) -> None:
        """Write the source of a module, and what it imports if `dependencies`."""
        self.dependency_graph.actions[module_name] = "intern"
        self._write(f"{module_name.replace('.', '/')}{'/__init__' * is_package}.py", src)
        if dependencies:
            package = module_name if is_package else module_name.rpartition(".")[0]
            for name, part in imported_by(src, package):
                self._add_dependency(module_name, name, part)

    def _add_dependency(self, user: str, name: str, part: str | None) -> None:
        """Add the dependencies of an import: a module, and a part of it if that is a module."""
        whole = f"{name}.{part}" if part else name
        if part and not self._is_module(whole):
            whole = name
        self.dependency_graph.needs(user, whole)
        self.add_dependency(whole)

    def _is_module(self, name: str) -> bool:
        if name in self.dependency_graph.actions:
            return True
        try:
            return importlib.util.find_spec(name) is not None
        except (ImportError, AttributeError, ValueError):
            return False

    def save_source_file(self, module_name: str, file_or_directory: str, dependencies: bool = True) -> None:
        """Write the source file of a module, or all those of a folder."""
        path = Path(file_or_directory)
        if not path.is_dir():
            self.save_source_string(
                module_name, path.read_text(encoding="utf-8"), path.name == "__init__.py", dependencies
            )
            return
        for file in sorted(path.rglob("*.py")):
            parts = file.relative_to(path).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            name = ".".join((module_name, *(parts[:-1] if is_package else parts)))
            self.save_source_string(name, file.read_text(encoding="utf-8"), is_package, dependencies)

    def save_module(self, module_name: str, dependencies: bool = True) -> None:
        """Write the source of a module that the importer finds."""
        if not isinstance(module_name, str):
            raise TypeError("save_module() expects a string input, did you perhaps mean to pass `__name__`?")
        self._apply_action("intern", module_name, dependencies)

    def save_text(self, package: str, resource: str, text: str) -> None:
        """Write a text into the folder of `package`."""
        self.save_binary(package, resource, text.encode())

    def save_binary(self, package: str, resource: str, binary: bytes) -> None:
        """Write bytes into the folder of `package`."""
        if "/" in resource or not resource:
            raise ValueError(f"{resource!r} must be only a file name")
        self._write(f"{package.replace('.', '/')}/{resource}", binary)

    def save_pickle(
        self, package: str, resource: str, obj: Any, dependencies: bool = True, pickle_protocol: int = 3
    ) -> None:
        """Write an object, and the modules of its classes if `dependencies`."""
        if pickle_protocol not in (2, 3):
            raise NotImplementedError(f"save_pickle: protocols 2 and 3 name modules in one way; got {pickle_protocol}")
        body = io.BytesIO()
        _PackagePickler(body, pickle_protocol, self).dump(obj)
        where = f"<{package}.{resource}>"
        if dependencies:
            named = (str(arg) for code, arg, _ in pickletools.genops(body.getvalue()) if code.name == "GLOBAL")
            for module in dict.fromkeys(name.partition(" ")[0] for name in named):
                self.dependency_graph.needs(where, module)
                self.add_dependency(module)
                if self.dependency_graph.actions.get(module) == "mock":
                    self.dependency_graph.fail(module, PackagingErrorReason.MOCKED_BUT_STILL_USED)
        self.save_binary(package, resource, body.getvalue())

    def _write(self, path: str, data: str | bytes | UntypedStorage) -> None:
        if path not in self._written:
            self._written.add(path)
            self.archive.write_record(path, data)

    def close(self) -> None:
        """Finish the file; raises if a required module cannot be in it."""
        for number, (_, group, allow_empty) in enumerate(self._patterns):
            if not allow_empty and number not in self._matched:
                raise EmptyMatchError(
                    f"Exporter did not match any modules to {group}, which was marked as allow_empty=False"
                )
        if self.dependency_graph.broken():
            raise PackagingError(self.dependency_graph, self.debug)
        for key, storage in self._storages.items():
            self._write(f".data/{key}.storage", storage)
        self._write(".data/extern_modules", "".join(f"{name}\n" for name in self.externed_modules()))
        self._write(".data/python_version", platform.python_version())
        self._write("byteorder", sys.byteorder)
        self.archive.write_end_of_file()
        self._release()

    def _release(self) -> None:
        if self._owns_file:
            self._file.close()

    def __enter__(self) -> PackageExporter:
        return self

    def __exit__(self, kind: Any, *exc: Any) -> None:
        if kind is None:
            self.close()
        else:
            self._release()


_Base: Any = StoragePickler


class _PackagePickler(_Base):
    """Pickler that writes classes under their names in the exporter's importer, and storages once for all objects of a package."""

    def __init__(self, file: Any, protocol: int, exporter: PackageExporter):
        super().__init__(file, protocol)
        self.exporter = exporter
        self.storages, self._keys = exporter._storages, exporter._keys
        self._reduced: dict[int, tuple] = {}

    def persistent_id(self, obj: Any) -> Any:
        if hasattr(obj, "__reduce_package__") and not isinstance(obj, type):
            if id(obj) not in self._reduced:
                self._reduced[id(obj)] = ("reduce_package", id(obj), *obj.__reduce_package__(self.exporter))
            return self._reduced[id(obj)]
        return super().persistent_id(obj)

    def save_named(self, obj: Any) -> None:
        """Write a class or function by its name."""
        plain = obj in (type(None), type(NotImplemented), type(...)) or written_name(obj) is not None
        if plain:
            StoragePickler.dispatch[type](self, obj)
        else:
            self._write_global(*self.exporter.importer.get_name(obj), obj)

    dispatch: ClassVar[Any] = {**StoragePickler.dispatch, type: save_named, types.FunctionType: save_named}

    def save_global(self, obj: Any, name: str | None = None) -> None:
        if is_mangled(getattr(obj, "__module__", None) or ""):
            self._write_global(demangle(obj.__module__), name or obj.__qualname__, obj)
        else:
            super().save_global(obj, name)
