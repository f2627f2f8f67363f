"""Analysis of packages: which objects come from one, what a function uses, why an export failed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from .importer import is_mangled


def is_from_package(obj: Any) -> bool:
    """Return whether a module, or the class of an object, was made from the code of a package."""
    if isinstance(obj, ModuleType):
        return is_mangled(obj.__name__)
    return is_mangled((obj if isinstance(obj, type) else type(obj)).__module__)


def trace_dependencies(callable: Callable[[Any], Any], inputs: Iterable[tuple[Any, ...]]) -> list[str]:
    """Return the names of the modules whose functions are called when `callable` runs on these inputs."""
    used: set[str] = set()

    def note(frame: Any, event: str, arg: Any) -> None:
        name = frame.f_globals.get("__name__") if event == "call" else getattr(arg, "__module__", None)
        if event in ("call", "c_call") and name:
            used.add(name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        for args in inputs:
            callable(*args)
    finally:
        sys.setprofile(before)
    return list(used)


def find_first_use_of_broken_modules(exc: Any) -> dict[str, list[str]]:
    """Return, for each module that could not be packaged, the shortest dependency path to it from a saved object."""
    graph = exc.dependency_graph
    return {name: graph.first_path(name) for name in graph.broken()}
