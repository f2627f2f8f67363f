"""The types of Python values."""

from __future__ import annotations

import collections
import enum
from typing import Any

import flambeau as torch

from ..core.native_class import CustomClass
from ..core.tensor import Tensor
from . import types as T
from .objects import to_script
from .signatures import class_type
from .type_joins import unify_all


def inferred(value: Any) -> T.Type | None:
    """Return the type of a Python value, or None if it has none."""
    if isinstance(value, Tensor):
        return T.TENSOR
    known = T.OF_PYTHON.get(type(value))
    if known is not None:
        return known
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format, torch.qscheme)):
        return T.INT
    if isinstance(value, torch.device):
        return T.DEVICE
    if isinstance(value, torch.Generator):
        return T.GENERATOR
    if isinstance(value, enum.Enum):
        return class_type(type(value))
    if isinstance(value, tuple):
        if hasattr(value, "_fields"):
            return _inferred_fields(value)
        parts = [inferred(v) for v in value]
        return None if None in parts else T.TupleType([p for p in parts if p is not None])
    if isinstance(value, list):
        return _inferred_list(value)
    if isinstance(value, (dict, collections.OrderedDict)):
        return _inferred_dict(value)
    if isinstance(value, CustomClass):
        return class_type(type(value))
    script_type = getattr(value, "script_type", None)
    return script_type if isinstance(script_type, (T.ClassType, T.InterfaceType)) else None


def _inferred_fields(value: tuple) -> T.Type | None:
    """Return the type of a NamedTuple instance, if its fields hold values of the declared types."""
    kind = class_type(type(value))
    try:
        to_script(value, kind)
    except TypeError:
        return None
    return kind


def _inferred_list(value: list) -> T.Type | None:
    if not value:
        return None
    parts = [inferred(v) for v in value]
    if None in parts:
        return None
    joined = unify_all([p for p in parts if p is not None])
    return None if joined is None else T.ListType(joined)


def _inferred_dict(value: dict) -> T.Type | None:
    if not value:
        return None
    keys, values = [inferred(k) for k in value], [inferred(v) for v in value.values()]
    if None in keys or None in values:
        return None
    key, item = unify_all([k for k in keys if k is not None]), unify_all([v for v in values if v is not None])
    return None if key is None or item is None else T.DictType(key, item)
