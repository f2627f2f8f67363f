"""Origins of code, classes and modules: this library, Python's, or a user. Decided by files and identity, not by names, which can be reused."""

from __future__ import annotations

import collections
import functools
import os
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np

from . import c_functions

LIBRARY, USER, SHARED = range(3)  # shared code counts as part of its caller
_PACKAGE = __name__.partition(".")[0]
# Rooms that use files and other processes. Other messages of `distributed` pass the door, or are reported to watchers.
_ROOMS = (
    *(f"distributed/{room}" for room in ("autograd", "checkpoint", "elastic", "launch", "mailbox", "nn/api", "rendezvous", "rpc", "run", "store", "tcp_store")),
    "horovod", "serialization", "serve",
)  # fmt: skip
_HOME = str(Path((lambda: None).__code__.co_filename).parents[2]) + os.sep  # the folder of the whole library
_OUTSIDE = tuple(_HOME + room.replace("/", os.sep) for room in _ROOMS)
_OUTSIDE_NAMES = tuple(f"{_PACKAGE}.{room}".replace("/", ".") for room in _ROOMS)
_PACKAGES = os.path.dirname(os.path.dirname(np.__file__)) + os.sep
_PYTHON = os.path.dirname(os.path.abspath(types.__file__)) + os.sep
# Folders of packages that this library calls itself.
called_by_us = [os.path.join(_PACKAGES, name) + os.sep for name in ("numpy", "llvmlite", "scipy", "cuda", "mpi4py")]
# The globals that the code of a named tuple sees.
_NAMED_TUPLE = set(collections.namedtuple("Sample", "")().__new__.__globals__)
_BASES = (object, *c_functions.CONTAINERS, types.SimpleNamespace, type, types.ModuleType, int, float, complex, str, bytes)  # fmt: skip
_METHODS_IN_C = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
HEAP_TYPE = 1 << 9  # a flag of classes that are made at run time: those of Python, and some of C


def kind_of(code: types.CodeType, space: dict) -> int:
    """Return whose code it is (LIBRARY, SHARED or USER), given the globals that it sees."""
    file = code.co_filename
    if is_library_file(file):
        return LIBRARY
    if file.startswith("<frozen ") or file.startswith(tuple(called_by_us)):
        return SHARED
    if file.startswith(_PYTHON) and "-packages" not in file:
        return SHARED
    if not file.startswith("<"):
        return USER
    if set(space) <= _NAMED_TUPLE:
        return SHARED
    return LIBRARY if _is_own_space(space) else USER


def is_library_file(file: str) -> bool:
    """Return whether all code of a file is this library's."""
    return file.startswith(_HOME)


def _is_own_space(space: dict) -> bool:
    """Return whether these are the globals of a module of this library: code generated there has no file."""
    name = space.get("__name__")
    known = sys.modules.get(name) if isinstance(name, str) and name.startswith(f"{_PACKAGE}.") else None
    return known is not None and vars(known) is space


def is_library(code: types.CodeType, space: dict) -> bool:
    """Return whether code is this library's own, whatever the name of its function."""
    return kind_of(code, space) == LIBRARY


def is_users(code: types.CodeType, space: dict) -> bool:
    """Return whether code is neither this library's nor Python's."""
    return kind_of(code, space) == USER


def reaches_outside(code: types.CodeType) -> bool:
    """Return whether code of this library does more than compute: it uses files or other processes."""
    return code.co_filename.startswith(_OUTSIDE)


def is_outside(module: str) -> bool:
    """Return whether a module of this library does more than compute."""
    return module.startswith(_OUTSIDE_NAMES)


def is_known_by_identity(cls: type) -> bool:
    """Return whether the contents of a class's objects do not decide which operators run: a class of this library, or derived from one, that
    sets `KNOWN_BY_IDENTITY`. Such an object is guarded by its holder."""
    return any(c.__dict__.get("KNOWN_BY_IDENTITY") and is_library_class(c) for c in cls.__mro__)


@functools.lru_cache(4096)
def is_library_class(cls: type) -> bool:
    """Return whether a class is this library's own: its module has it under its name. PyTorch's name of a module may be known to the package
    only, until somebody imports it."""
    if cls.__module__.partition(".")[0] != _PACKAGE:
        return False
    package, _, last = cls.__module__.rpartition(".")
    place: Any = sys.modules.get(cls.__module__) or getattr(sys.modules.get(package), "__dict__", {}).get(last)
    for name in cls.__qualname__.split("."):
        place = getattr(place, "__dict__", {}).get(name)
    return place is cls or "<locals>" in cls.__qualname__


def is_put_there(value: Any) -> bool:
    """Return whether a function, method or callable object found in this library was put there by other code."""
    if isinstance(value, types.FunctionType):
        return not is_library(value.__code__, value.__globals__)
    if isinstance(value, types.MethodType):
        return is_put_there(value.__func__)
    if isinstance(value, (staticmethod, classmethod)):
        return is_put_there(value.__func__)
    if isinstance(value, property):
        return any(map(is_put_there, (value.fget, value.fset)))
    cls = value if isinstance(value, type) else type(value)
    return (
        is_pythons(cls)
        and not is_library_class(cls)
        and cls.__module__.partition(".")[0] not in sys.stdlib_module_names
    )


def is_library_module(module: types.ModuleType) -> bool:
    name = module.__name__
    return name.partition(".")[0] == _PACKAGE and sys.modules.get(name) is module


def is_shared_module(module: types.ModuleType) -> bool:
    """Return whether a module is this library's, Python's or NumPy's, which is too large to guard as a whole."""
    name = module.__name__.partition(".")[0]
    return is_library_module(module) or name in sys.stdlib_module_names or name == "numpy"


@functools.lru_cache(4096)
def shows_its_state(cls: type) -> bool:
    """Return whether a class hides nothing in C: its state is in its dict and slots, and its methods are Python functions."""
    return is_pythons(cls) or cls in _BASES or is_library_class(cls) or issubclass(cls, BaseException)


@functools.lru_cache(4096)
def is_pythons(cls: type) -> bool:
    """Return whether a class was made by a `class` statement: one made in C has methods in C."""
    if not cls.__flags__ & HEAP_TYPE or cls.__module__ in sys.builtin_module_names:
        return False
    file = getattr(sys.modules.get(cls.__module__), "__dict__", {}).get("__file__")
    in_c = any(isinstance(v, _METHODS_IN_C) and v.__objclass__ is cls for v in cls.__dict__.values())
    return not in_c and (file is None or file.endswith((".py", ".pyc")))
