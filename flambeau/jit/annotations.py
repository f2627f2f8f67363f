"""Annotations of functions as types of TorchScript: `BroadcastingList2[int]` is a list of ints that may be given as a single int, repeated;
the functions classify annotations."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable
from typing import Any, Dict, List, Optional, Tuple, Union  # noqa: F401, UP035  found here in PyTorch, too

from ..nn import Module as Module
from . import types as kinds
from .signatures import UnknownType, python_type
from .source import Range
from .types import INFERRED, NAMED, Type

DictType, ListType, TensorType, TupleType = kinds.DictType, kinds.ListType, kinds.TensorType, kinds.TupleType
AnyType, ComplexType, FloatType, IntType, StringType = (
    type(NAMED[n]) for n in ("Any", "complex", "float", "int", "str")
)


class _BroadcastingList:
    def __init__(self, size: int = 0):
        self.size = size

    def __getitem__(self, kind: Any) -> Any:
        return list[kind]


BroadcastingList1 = _BroadcastingList(1)
BroadcastingList2 = _BroadcastingList(2)
BroadcastingList3 = _BroadcastingList(3)
BroadcastingList4 = _BroadcastingList(4)
BroadcastingList5 = _BroadcastingList(5)
BroadcastingList6 = _BroadcastingList(6)


def _origin(ann: Any) -> Any:
    """Return the generic class of an annotation (`list` of `list[int]`); raise if its element type is missing."""
    found = typing.get_origin(ann)
    if ann in (Union, Optional) or (found in (list, dict, tuple) and getattr(ann, "__args__", None) is None):
        name = getattr(ann, "_name", str(ann))
        raise RuntimeError(
            f"Attempted to use {name} without a contained type. Please add a contained type, e.g. {name}[int]"
        )
    return found


def is_list(ann: Any) -> bool:
    """Return whether an annotation is a list of something."""
    return _origin(ann) is list


def is_dict(ann: Any) -> bool:
    """Return whether an annotation is a dictionary of something."""
    return _origin(ann) is dict


def is_tuple(ann: Any) -> bool:
    """Return whether an annotation is a tuple of something."""
    return _origin(ann) is tuple


def is_union(ann: Any) -> bool:
    """Return whether an annotation is a union; `Optional` counts as one."""
    return _origin(ann) in (Union, types.UnionType)


def is_optional(ann: Any) -> bool:
    """Return whether an annotation is `Optional[T]`."""
    inside = typing.get_args(ann)
    return _origin(ann) in (Union, types.UnionType) and len(inside) == 2 and type(None) in inside


def try_ann_to_type(ann: Any, loc: Range | None, rcb: Any = None) -> Type | None:
    """Return the TorchScript type of an annotation, or None if it has none. No annotation means a tensor."""
    if ann is inspect.Signature.empty:
        return INFERRED
    if ann is None:
        return NAMED["NoneType"]
    try:
        return python_type(ann)
    except UnknownType:
        return None


def ann_to_type(ann: Any, loc: Range | None, rcb: Any = None) -> Type:
    """Return the TorchScript type of an annotation; raises if it has none."""
    found = try_ann_to_type(ann, loc, rcb)
    if found is None:
        raise ValueError(f"Unknown type annotation: '{ann}' at {loc}")
    return found


def try_real_annotations(fn: Callable, loc: Range | None) -> tuple[list[Type], Type] | None:
    """Return the types of a function's arguments and of its result from its annotations, or None if it has no annotations."""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return None
    given = [p.annotation for p in signature.parameters.values()]
    if all(a is inspect.Signature.empty for a in (*given, signature.return_annotation)):
        return None
    return [ann_to_type(a, loc) for a in given], ann_to_type(signature.return_annotation, loc)


def get_signature(fn: Callable, rcb: Any, loc: Range | None, is_method: bool) -> tuple[list[Type], Type] | None:
    """Return the types of a function's arguments (without a method's `self`) and of its result, or None if it has no annotations."""
    found = try_real_annotations(fn, loc)
    return (found[0][1:], found[1]) if found and is_method and not inspect.ismethod(fn) else found


def get_param_names(fn: Any, n_args: int) -> list[str]:
    """Return the names of a function's parameters, or numbers if they cannot be inspected."""
    call = fn if inspect.isroutine(fn) else type(fn).__call__
    if inspect.isfunction(call) or inspect.ismethod(call):
        return inspect.getfullargspec(call).args
    return [str(i) for i in range(n_args)]


def check_fn(fn: Any, loc: Range | None) -> None:
    """Raise an error if a class is given instead of a function."""
    if inspect.isclass(fn):
        raise RuntimeError(f"Cannot instantiate class '{fn.__name__}' in a script function")


def get_type_line(source: str) -> str | None:
    """Return the type comment of a function's source text, or None."""
    found = re.findall(r"#\s*type:\s*(?!\s*ignore)(.*)", source)
    return f"# type: {found[-1].strip()}" if found else None


def split_type_line(type_line: str) -> tuple[str, str]:
    """Split a type comment into the types of the arguments and of the result."""
    arguments, arrow, result = type_line.removeprefix("# type:").partition("->")
    if not arrow:
        raise RuntimeError("Syntax error in type annotation (couldn't find `->`)")
    return arguments.strip(), result.strip()
