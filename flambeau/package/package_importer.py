"""Reading of packages: their texts and bytes and, on request, their modules and pickled objects."""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import io
import linecache
import os
import pickle
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from ..core import naming
from ..core.dtype import dtype
from ..core.storage import UntypedStorage
from ..serialization.archive import PyTorchFileReader
from ..serialization.places import restore
from ..serialization.unpickler import Unpickler
from .file_structure_representation import Directory, tree
from .importer import Importer, demangle, new_mangle

# Modules that pickles of arrays name, though no exporter lists them.
_ALWAYS_EXTERNAL = frozenset(("builtins", "numpy", "numpy.core", "numpy.core._multiarray_umath"))
_IMPORTER_NAME = "torch_package_importer"  # what code of a package imports to read the files beside it


class PackageImporter(Importer):
    """An open package. `module_allowed` decides which modules outside of it its code may import."""

    def __init__(self, file_or_buffer: Any, module_allowed: Callable[[str], bool] = lambda name: True):
        self.zip_reader = (
            file_or_buffer if isinstance(file_or_buffer, PyTorchFileReader) else PyTorchFileReader(file_or_buffer)
        )
        named = isinstance(file_or_buffer, (str, os.PathLike))
        self.filename = os.fspath(file_or_buffer) if named else "<binary>"
        self._files = frozenset(self.zip_reader.get_all_records())
        self.extern_modules = (
            self._text(".data/extern_modules").split() if ".data/extern_modules" in self._files else []
        )
        for name in self.extern_modules:
            if not module_allowed(name):
                raise ImportError(
                    f"package '{self.filename}' needs the external module '{name}' but that module has been disallowed by the"
                    " module_allowed filter."
                )
        self._mangle = new_mangle()
        self.modules: dict[str, ModuleType] = {}
        self.patched_builtins = {**vars(builtins), "__import__": self.__import__}

    def __repr__(self) -> str:
        return f"PackageImporter({self.filename!r})"

    def id(self) -> str:
        """Return the prefix that distinguishes this package's modules."""
        return self._mangle

    def python_version(self) -> str | None:
        """Return the version of Python that wrote the package; None if it is not recorded."""
        return self._text(".data/python_version").strip() if ".data/python_version" in self._files else None

    def file_structure(self, *, include: str | Iterable[str] = "**", exclude: str | Iterable[str] = ()) -> Directory:
        """Return the files of the package as a tree."""
        return tree(self.filename, sorted(self._files), include, exclude)

    def load_binary(self, package: str, resource: str) -> bytes:
        """Return the bytes of a file in the folder of `package`."""
        return self.zip_reader.get_record(_path(package, resource))

    def load_text(self, package: str, resource: str, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the text of a file in the folder of `package`."""
        return self.load_binary(package, resource).decode(encoding, errors)

    def _text(self, path: str) -> str:
        return self.zip_reader.get_record(path).decode()

    # -- code of the package, run because it was asked for ---------------------------------------------------------------

    def load_pickle(self, package: str, resource: str, map_location: Any = None) -> Any:
        """Load an object that was saved with `save_pickle`. Its classes are imported from the package, which runs its code."""
        return _PackageUnpickler(self, io.BytesIO(self.load_binary(package, resource)), map_location).load()

    def import_module(self, name: str, package: str | None = None) -> ModuleType:
        """Import a module of the package, which runs its code; or one outside of it that the exporter omitted."""
        name = importlib.util.resolve_name(name, package) if name.startswith(".") else name
        known = self.modules.get(name)
        if known is not None:
            return known
        outer, _, last = name.rpartition(".")
        if self._source_of(name) is None:
            return self._import_external(name)
        parent = self.import_module(outer) if outer else None
        if name in self.modules:  # the parent has imported it
            return self.modules[name]
        module = self._run(name)
        if parent is not None:
            setattr(parent, last, module)
        return module

    def _source_of(self, name: str) -> str | None:
        """Return the path of a module's source; "" for a folder without one, None if the package has no such module."""
        path = name.replace(".", "/")
        for candidate in (f"{path}/__init__.py", f"{path}.py"):
            if candidate in self._files:
                return candidate
        return "" if any(file.startswith(f"{path}/") for file in self._files) and not self._is_extern(name) else None

    def _is_extern(self, name: str) -> bool:
        return any(name == known or name.startswith(f"{known}.") for known in self.extern_modules)

    def _import_external(self, name: str) -> ModuleType:
        if name == _IMPORTER_NAME:
            itself: Any = self  # code of the package uses it like a module
            return itself
        if not self._is_extern(name) and name not in _ALWAYS_EXTERNAL:
            raise ModuleNotFoundError(
                f"No module named '{name}' in self-contained archive '{self.filename}' and the module is also not in the list of"
                f" allowed external modules: {self.extern_modules}",
                name=name,
            )
        return importlib.import_module(name if naming.is_posing() else naming.own_name(name))

    def _run(self, name: str) -> ModuleType:
        path = self._source_of(name) or ""
        module = ModuleType(f"{self._mangle}.{name}")
        is_package = not path or path.endswith("__init__.py")
        shown = f"{self._mangle}.{path or name}"
        vars(module).update(
            __file__=shown, __builtins__=self.patched_builtins, __torch_package__=True, __loader__=self,
            __package__=f"{self._mangle}.{name if is_package else name.rpartition('.')[0]}".rstrip("."),
        )  # fmt: skip
        if is_package:
            module.__path__ = [shown]
        self.modules[name] = module
        if path:
            source = self._text(path)
            linecache.cache[shown] = (len(source), None, source.splitlines(keepends=True), shown)  # for tracebacks
            try:
                exec(compile(source, shown, "exec", dont_inherit=True), vars(module))
            except BaseException:
                del self.modules[name]
                raise
        return module

    def __import__(
        self, name: str, globals: Any = None, locals: Any = None, fromlist: Iterable[str] = (), level: int = 0
    ) -> ModuleType:
        """Import a module for the statement `import` in code of the package."""
        if level:
            name = importlib.util.resolve_name("." * level + name, demangle((globals or {})["__package__"]))
        module = self.import_module(name)
        if not fromlist:
            return self.import_module(name.partition(".")[0])
        for part in fromlist:
            if not hasattr(module, part) and self._source_of(f"{name}.{part}") is not None:
                self.import_module(f"{name}.{part}")
        return module

    def get_source(self, module_name: str) -> str:
        """Return the source of a module."""
        path = self._source_of(demangle(module_name))
        if not path:
            raise ImportError(f"package '{self.filename}' has no source of '{module_name}'", name=module_name)
        return self._text(path)


def _path(package: str, resource: str) -> str:
    if "/" in resource or not resource:
        raise ValueError(f"{resource!r} must be only a file name")
    return f"{package.replace('.', '/')}/{resource}"


class _PackageUnpickler(Unpickler):
    """Unpickler of a package's objects: classes come from the package, storages from separate records."""

    def __init__(self, package: PackageImporter, file: Any, map_location: Any):
        super().__init__(file, self._load_storage)
        self.package, self.map_location = package, map_location
        self._stored: dict[str, UntypedStorage] = {}
        self._reduced: dict[Any, Any] = {}

    def find_class(self, module: str, name: str) -> Any:
        if self.package._source_of(module) is None:
            if module != "torch" and not self.package._is_extern(module) and module not in _ALWAYS_EXTERNAL:
                self.package._import_external(module)  # says what is missing
            return super().find_class(module, name)
        found: Any = self.package.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        return found

    def persistent_load(self, identity: Any) -> Any:
        if isinstance(identity, tuple) and identity and identity[0] == "reduce_package":
            _, key, function, args = identity
            if key not in self._reduced:
                self._reduced[key] = function(self.package, *args)
            return self._reduced[key]
        if isinstance(identity, tuple) and len(identity) == 5 and type(identity[2]) is int:
            identity = (*identity[:2], str(identity[2]), *identity[3:])
        return super().persistent_load(identity)

    def _load_storage(self, key: str, nbytes: int, location: str, d: dtype) -> UntypedStorage:
        if key not in self._stored:
            data = self.package.zip_reader.get_record(f".data/{key}.storage")
            if len(data) != nbytes:
                raise pickle.UnpicklingError(f"corrupt package: storage {key} has {len(data)} bytes, not {nbytes}")
            storage = UntypedStorage.from_buffer(data, "native", dtype=d) if data else UntypedStorage(0)
            self._stored[key] = restore(storage, location, self.map_location)
        return self._stored[key]
