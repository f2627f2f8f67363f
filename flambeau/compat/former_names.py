"""Further names of modules: one table, and the finder that serves it.

PyTorch moves its modules and keeps the former names; programs import both. Its private modules, which programs import, too, are in
`compat.private`. The finder answers for names under this package alone.
"""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..core import naming

if TYPE_CHECKING:
    from importlib.abc import Loader, MetaPathFinder
else:  # what `importlib.abc` itself imports in Python 3.11, tempfile and 15 more, is not needed for them
    Loader = MetaPathFinder = object


# Modules and packages, with all that is in them, by the further name: both names give one module object.
MOVED = naming.table("moved_names")
# Modules that only gather names of others: "home: name name, home: further=name".
GATHERED = naming.table("gathered_names")

# Modules of PyTorch that are one here, with the classes that each defines, by the home of all: "module: class class, module: class".
TOGETHER = naming.table("joined_names")


def _parts(home: str, entry: str) -> dict[str, list[str]]:
    split = (part.partition(":") for part in entry.split(","))
    return {f"{home.rpartition('.')[0]}.{name.strip()}": kinds.split() for name, _, kinds in split}


# By home, then by PyTorch's module: the classes that are defined there.
PARTS = {home: _parts(home, entry) for home, entry in TOGETHER.items()}
MOVED |= {part: home for home, parts in PARTS.items() for part in parts}


def settle(module: str) -> None:
    """Set the modules of the names that a module of `TOGETHER` defines to PyTorch's, for messages and pickles, and add the parts to the
    packages.

    Called at the end of the module: `settle(__name__)`."""
    here = sys.modules[module]
    for part, names in PARTS[module[len(naming.PACKAGE) + 1 :]].items():
        package, _, last = f"{naming.PACKAGE}.{part}".rpartition(".")
        vars(sys.modules[package]).setdefault(last, here)
        for name in names:
            getattr(here, name).__module__ = f"{package}.{last}"


class AliasLoader(Loader):
    """Loader of a module of this package, unchanged, under a second name."""

    def __init__(self, real_name: str):
        self.real_name = real_name

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = naming.load(self.real_name)
        self.real_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.real_spec  # the import system has just replaced it by the alias's

    def get_code(self, fullname: str) -> Any:
        """Return the module's code, for `python -m second.name`."""
        real = importlib.util.find_spec(self.real_name)
        return real.loader.get_code(self.real_name) if real is not None else None  # type: ignore[union-attr]


class _Gatherer(Loader):
    """Loader that makes a module of names from others."""

    def __init__(self, entry: str):
        self.entry = entry

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Return None: Python makes the module."""

    def exec_module(self, module: ModuleType) -> None:
        gathered: dict[str, Any] = {}
        for part in self.entry.split(",") if self.entry else ():
            home, _, names = part.partition(":")
            found = naming.load(f"{naming.PACKAGE}.{home.strip()}".rstrip("."))
            for name in names.split():
                here, _, there = name.partition("=")
                gathered[here] = getattr(found, there or here)
        about = "Where PyTorch has " + ", ".join(f"`{name}`" for name in gathered) + "."
        below = functools.partial(naming.submodule, module.__name__)
        vars(module).update(gathered, __all__=list(gathered), __doc__=about, __getattr__=below)


def spec_of(fullname: str) -> importlib.machinery.ModuleSpec | None:
    """Return the import system's spec of the module of a further name; None for other names."""
    name = fullname[len(naming.PACKAGE) + 1 :]
    if name in GATHERED:  # a package, so that others can be gathered below it
        return importlib.machinery.ModuleSpec(
            fullname, _Gatherer(GATHERED[name]), origin=naming.PACKAGE, is_package=True
        )
    head, rest = name, ""
    while head and head not in MOVED:
        head, _, last = head.rpartition(".")
        rest = f".{last}{rest}"
    if not head:
        return None
    real_name = f"{naming.PACKAGE}.{MOVED[head]}{rest}"
    try:
        if real_name not in sys.modules and importlib.util.find_spec(real_name) is None:
            return None
    except ModuleNotFoundError as error:  # of a package around it
        if not real_name.startswith(f"{error.name}."):
            raise
        return None
    return importlib.machinery.ModuleSpec(fullname, AliasLoader(real_name), origin=naming.PACKAGE)


class FormerNames(MetaPathFinder):
    """Finder of modules by their further names. It precedes the finder of files, which would load the parts of a package a second time under
    its second name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return spec_of(fullname) if fullname.startswith(f"{naming.PACKAGE}.") else None


def install() -> None:
    """Install the finder that imports the modules of the table."""
    if not any(isinstance(finder, FormerNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, FormerNames())
