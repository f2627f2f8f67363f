"""onnxscript's translations of aten operators, read without `torch`.

The function modules of onnxscript import `torch`, for a version and two limits. They are run here under private module names, with an
import statement that gives them Flambeau for `torch` and our opset for ONNX's operators. Nothing of that is visible to others:
`sys.modules` gets no `torch`, and a real PyTorch in the same process, with its own copy of these modules, is not disturbed."""

from __future__ import annotations

import builtins
import functools
import importlib
import os
import re
import types
from collections.abc import Callable
from importlib.machinery import PathFinder
from typing import Any

import flambeau

from .opset import OPSET, REWRITTEN
from .schemas import first_version

_HOME = "onnxscript.function_libs.torch_lib"
_MODULES = ("core", "nn", "linalg", "special")
_PRIVATE = (f"{_HOME}.ops", "onnxscript._internal")  # packages whose modules import torch, or modules that do
Function = Callable[..., Any]


class _Reader:
    """Runs torchlib's modules and collects the functions that they declare."""

    def __init__(self) -> None:
        self.modules: dict[str, types.ModuleType] = {}
        self.functions: dict[str, Function] = {}
        self.builtins = {**vars(builtins), "__import__": self._import}
        plain = {"opset18": OPSET, "opset19": OPSET, "script": _as_it_is, "graph": _as_it_is}
        own = _module("onnxscript", **{**vars(importlib.import_module("onnxscript")), **plain})
        self.given = {
            "torch": flambeau,
            "onnxscript": own,
            "onnxscript.values": own,  # import onnxscript.values
            "onnxscript.onnx_opset": own,
            f"{_HOME}.registration": _module("registration", torch_op=self._torch_op),
        }

    def run(self, name: str) -> types.ModuleType:
        """Run a module of torchlib with our objects in place of those it imports, and return it."""
        if name not in self.modules:
            package, _, own = name.rpartition(".")
            found = PathFinder.find_spec(own, self._folder(package))
            if found is None or found.loader is None:
                raise ModuleNotFoundError(f"this version of onnxscript cannot be used: it has no module {name}")
            code = found.loader.get_code(own)  # type: ignore[attr-defined]
            module = self.modules[name] = types.ModuleType(f"{__name__}.{name.rpartition('.')[2]}")
            vars(module).update(__builtins__=self.builtins, __file__=found.origin)
            exec(code, vars(module))
        return self.modules[name]

    def _folder(self, package: str) -> list[str]:
        """Return the folders of a package's files, without running the package."""
        outer, _, own = package.rpartition(".")
        return [os.path.join(folder, own) for folder in importlib.import_module(outer).__path__]

    def _import(self, name: str, names: Any = None, local: Any = None, wanted: Any = (), level: int = 0) -> Any:
        """Return the module that an import statement in torchlib gets; torchlib's own modules are run under private names."""
        if name in self.given:
            return self.given[name]
        if name in _PRIVATE:
            return _module(name, **{part: self.run(f"{name}.{part}") for part in wanted})
        return builtins.__import__(name, names, local, wanted or (), level)

    def _torch_op(
        self, name: str | tuple[str, ...], *, private: bool = False, complex: bool = False, **how: Any
    ) -> Any:
        """Stand in for torchlib's decorator `torch_op`: keep the Python function, and register it under its overloads' names."""

        def declare(function: Function) -> Function:
            if not private and not complex:
                for one in (name,) if isinstance(name, str) else name:
                    self.functions.setdefault(one, function)
            return function

        return declare


def _as_it_is(*how: Any, **more: Any) -> Callable[[Function], Function]:
    """Stand in for onnxscript's compilers: return a decorator that leaves the Python function as it is."""
    return lambda function: function


def _module(name: str, **names: Any) -> types.ModuleType:
    made = types.ModuleType(name)
    vars(made).update(names)
    return made


@functools.cache
def functions() -> dict[str, Function]:
    """Return torchlib's functions, with keys such as "aten::add.Tensor"."""
    try:
        importlib.import_module("onnxscript")
    except ImportError as error:
        raise ModuleNotFoundError(
            "Exporting to ONNX needs the package onnxscript, whose functions translate operators: pip install 'flambeau[onnx]'"
        ) from error
    reader = _Reader()
    for part in _MODULES:
        reader.run(f"{_HOME}.ops.{part}")
    return reader.functions


@functools.cache
def names() -> frozenset[str]:
    """Return the operators that torchlib has functions for, without overloads: "aten::add"."""
    return frozenset(name.partition(".")[0] for name in functions())


def names_of(name: str, record: Any) -> tuple[str, ...]:
    """Return the names under which torchlib may have an operator: its own, that of the record ("aten::clamp" for `clip`), and for Python's
    operators on bits that of the function ("aten::bitwise_and" for `__and__`)."""
    of_record = f"aten::{getattr(record, 'key', '').removeprefix('nn.functional.').replace('.', '_')}"
    return name, of_record, re.sub(r"::__(\w+)__$", r"::bitwise_\1", name)


@functools.cache
def since(name: str) -> int:
    """Return the first opset version that has all operators which torchlib's functions for an operator write."""
    held = [f for key, f in functions().items() if key.partition(".")[0] == name]
    words = {word for f in held for word in f.__code__.co_names} - REWRITTEN
    return max(map(first_version, words), default=0)
