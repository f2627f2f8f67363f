"""Operators of libraries that cannot be loaded, because they are linked against PyTorch's own libraries.

Such a file belongs to a package whose Python parts may well work, so loading it is no error: its operators are absent, and raise the reason
when one is called. The operators are found by names in the file; none of its code runs."""

from __future__ import annotations

import mmap
import re
import warnings
from typing import Any, NamedTuple, NoReturn

_PYTORCH = re.compile(rb"\0(lib(?:c10|torch|torch_cpu|torch_python)\.(?:so|dylib)(?:\.[\d.]+)?)\0")


class AbsentLibrary(NamedTuple):
    """A file that was not loaded, and the library that it needs."""

    path: str
    needs: str


class AbsentOperator:
    """An operator of a library that was not loaded. Calling it raises an error that says so."""

    def __init__(self, name: str, library: AbsentLibrary):
        self.name, self.library = name, library

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(
            f"{self.name} is not available: {self.library.path} was not loaded, because it is linked against PyTorch's"
            f" {self.library.needs}, which Flambeau does not have. Build the extension from its source against Flambeau"
            " (flambeau.utils.cpp_extension), or use the package's Python form of this operator, if it has one"
        )

    def __getattr__(self, name: str) -> AbsentOperator:
        if name.startswith("__"):
            raise AttributeError(name)
        return AbsentOperator(f"{self.name}.{name}", self.library)  # an overload

    def __repr__(self) -> str:
        return f"<operator {self.name}, of a library that was not loaded: {self.library.path}>"


_libraries: list[AbsentLibrary] = []


def needs_pytorch(path: str) -> str | None:
    """Return the library of PyTorch that a shared library is linked against, or None."""
    found = _search(path, _PYTORCH)
    return None if found is None else found[1].decode()


def leave_out(path: str, needs: str) -> None:
    """Register a library that is not loaded, and warn."""
    _libraries.append(AbsentLibrary(path, needs))
    warnings.warn(
        f"{path} is not loaded, because it is linked against PyTorch's {needs}: its operators are not available",
        UserWarning,
        stacklevel=3,
    )


def names_namespace(name: str) -> bool:
    """Return whether a library that was not loaded may have operators in this namespace."""
    pattern = re.compile(rb"\0" + re.escape(name.encode()) + rb"(?:\0|::)")
    return any(_search(library.path, pattern) for library in _libraries)


def find(namespace: str, name: str) -> AbsentOperator | None:
    """Return the operator of this name, if a library that was not loaded names it; else None."""
    space, own = re.escape(namespace.encode()), re.escape(name.encode())
    here = re.compile(rb"\0" + space + rb"(?:\0|::)")
    operator = re.compile(rb"\0(?:" + space + rb"::)?" + own + rb"(?:\.\w+)?(?:\0|\()")
    for library in _libraries:
        if _search(library.path, here) and _search(library.path, operator):
            return AbsentOperator(f"{namespace}::{name}", library)
    return None


def _search(path: str, pattern: re.Pattern[bytes]) -> re.Match[bytes] | None:
    with open(path, "rb") as file:
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                found = pattern.search(data)
                return None if found is None else pattern.match(found[0])
        except ValueError:  # an empty file
            return None
