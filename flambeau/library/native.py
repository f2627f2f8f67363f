"""C++ libraries with operators and classes (TORCH_LIBRARY), loaded by `torch.ops.load_library`, found under `torch.ops` and `torch.classes`."""

from __future__ import annotations

import ctypes
import os
from types import ModuleType
from typing import Any

from ..core import naming
from ..core.native_class import PREFIX, CustomClass
from ..ops.quantizing.packed import KINDS
from . import absent
from .operator import absent_namespace  # noqa: F401  `torch.ops` asks for it here

loaded_libraries: set[str] = set()
_TORCHAUDIO = "torchaudio"  # which cannot be imported unless its library answers


def load_library(path: str | os.PathLike) -> None:
    """Load a shared library, once; it registers its operators. One that is linked against PyTorch's own libraries is skipped with a warning:
    its operators raise an error when they are called."""
    full = os.path.realpath(path)
    if not os.path.exists(full):
        raise OSError(f"{path}: cannot open shared object file: No such file or directory")
    if full in loaded_libraries:
        return
    needs = absent.needs_pytorch(full)
    if needs is None:
        ctypes.PyDLL(full)  # keeps the interpreter's lock: the library registers itself while it loads
    else:
        absent.leave_out(full, needs)
        if _TORCHAUDIO in os.path.basename(full):
            naming.above("library.torchaudio")
    loaded_libraries.add(full)


class _ClassNamespaces(ModuleType):
    """`torch.classes`, with a namespace for each library's classes."""

    __path__: Any = ()  # no files, for programs that search the files of every module

    loaded_libraries = loaded_libraries
    load_library = staticmethod(load_library)

    def __getattr__(self, name: str) -> ModuleType:
        if name.startswith("__"):
            raise AttributeError(name)
        found = ClassNamespace(f"torch.classes.{name}")
        setattr(self, name, found)
        return found


class ClassNamespace(ModuleType):
    """The classes of one library."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        kind = self.__name__.rpartition(".")[2]
        if kind in ("quantized", "rnn"):  # which are there from the beginning, and loaded when they are first used
            naming.above("ops.quantizing.operators")
            if f"{PREFIX}{kind}.{name}" in KINDS:
                return KINDS[f"{PREFIX}{kind}.{name}"]
        raise RuntimeError(
            f"Class {kind}.{name} is not registered: tried to instantiate class '{kind}.{name}', but it does not exist! Ensure that it"
            " is registered via torch::class_"
        )


classes: Any = _ClassNamespaces("torch.classes")


def add_class(namespace: str, name: str) -> type:
    """Add a C++ class under `torch.classes`, and return it; its methods are added one by one."""
    place = getattr(classes, namespace)
    if name in vars(place):
        raise RuntimeError(f"Custom class with name {namespace}.{name} is already registered.")
    made = type(name, (CustomClass,), {"__module__": f"{PREFIX}{namespace}", "schemas": {}})
    setattr(place, name, made)
    return made
