"""Types that two types have in common, and types without shapes, names or None."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .types import (
    NONE,
    TENSOR,
    DictType,
    FutureType,
    ListType,
    OptionalType,
    ShapedTensor,
    TensorType,
    TupleType,
    Type,
    UnionType,
    is_subtype,
    optional_of,
    same_element,
    union_of,
)

if TYPE_CHECKING:
    pass


def without_none(t: Type) -> Type:
    if isinstance(t, OptionalType):
        return t.element
    if isinstance(t, UnionType):
        return union_of([m for m in t.members if m is not NONE])
    return t


def unshaped(t: Type) -> Type:
    """The type without what tracing saw of tensors."""
    if isinstance(t, ShapedTensor):
        return TENSOR
    parts = t.contained()
    return t.with_contained([unshaped(p) for p in parts]) if parts and any(_has_shape(p) for p in parts) else t


def unnamed(t: Type) -> Type:
    """The type with its NamedTuples as plain tuples."""
    parts = [unnamed(p) for p in t.contained()]
    if isinstance(t, TupleType):
        return TupleType(parts)
    return t.with_contained(parts) if parts else t


def _has_shape(t: Type) -> bool:
    return isinstance(t, ShapedTensor) or any(map(_has_shape, t.contained()))


def unify(a: Type, b: Type, to_union: bool = False) -> Type | None:
    """The smallest type that holds values of both, or None."""
    if a == b:
        return a
    if is_subtype(a, b):
        return unshaped(b) if isinstance(b, TensorType) else b
    if is_subtype(b, a):
        return unshaped(a) if isinstance(a, TensorType) else a
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        return TENSOR
    if a is NONE:
        return optional_of(b)
    if b is NONE:
        return optional_of(a)
    for x, y in ((a, b), (b, a)):
        if isinstance(x, OptionalType):
            inner = unify(x.element, without_none(y))
            if inner is not None:
                return optional_of(inner)
    if isinstance(a, ListType) and isinstance(b, ListType) and same_element(a.element, b.element):
        return unshaped(a)
    if isinstance(a, TupleType) and isinstance(b, TupleType) and len(a.elements) == len(b.elements):
        parts = [unify(x, y) for x, y in zip(a.elements, b.elements)]
        if all(p is not None for p in parts):
            return TupleType([p for p in parts if p is not None])
    if isinstance(a, FutureType) and isinstance(b, FutureType):
        inner = unify(a.element, b.element)
        return None if inner is None else FutureType(inner)
    if isinstance(a, DictType) and isinstance(b, DictType) and a.key == b.key and same_element(a.value, b.value):
        return unshaped(a)
    return union_of([a, b]) if to_union else None


def unify_all(types: Sequence[Type], to_union: bool = False) -> Type | None:
    joined: Type | None = types[0] if types else None
    for t in types[1:]:
        joined = None if joined is None else unify(joined, t, to_union)
    return joined
