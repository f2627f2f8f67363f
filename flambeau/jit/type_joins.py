"""Common supertypes, and types without shapes, names or None."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import types as T

if TYPE_CHECKING:
    pass


def without_none(t: T.Type) -> T.Type:
    if isinstance(t, T.OptionalType):
        return t.element
    if isinstance(t, T.UnionType):
        return T.union_of([m for m in t.members if m is not T.NONE])
    return t


def unshaped(t: T.Type) -> T.Type:
    """Return a type without the shapes and dtypes of tensors that tracing recorded."""
    if isinstance(t, T.ShapedTensor):
        return T.TENSOR
    parts = t.contained()
    return t.with_contained([unshaped(p) for p in parts]) if parts and any(_has_shape(p) for p in parts) else t


def unnamed(t: T.Type) -> T.Type:
    """Return a type with its NamedTuples as plain tuples."""
    parts = [unnamed(p) for p in t.contained()]
    if isinstance(t, T.TupleType):
        return T.TupleType(parts)
    return t.with_contained(parts) if parts else t


def _has_shape(t: T.Type) -> bool:
    return isinstance(t, T.ShapedTensor) or any(map(_has_shape, t.contained()))


def unify(a: T.Type, b: T.Type, to_union: bool = False) -> T.Type | None:
    """Return the smallest type that contains both, or None."""
    if a == b:
        return a
    if T.is_subtype(a, b):
        return unshaped(b) if isinstance(b, T.TensorType) else b
    if T.is_subtype(b, a):
        return unshaped(a) if isinstance(a, T.TensorType) else a
    if isinstance(a, T.TensorType) and isinstance(b, T.TensorType):
        return T.TENSOR
    if a is T.NONE:
        return T.optional_of(b)
    if b is T.NONE:
        return T.optional_of(a)
    for x, y in ((a, b), (b, a)):
        if isinstance(x, T.OptionalType):
            inner = unify(x.element, without_none(y))
            if inner is not None:
                return T.optional_of(inner)
    if isinstance(a, T.ListType) and isinstance(b, T.ListType) and T.same_element(a.element, b.element):
        return unshaped(a)
    if isinstance(a, T.TupleType) and isinstance(b, T.TupleType) and len(a.elements) == len(b.elements):
        parts = [unify(x, y) for x, y in zip(a.elements, b.elements)]
        if all(p is not None for p in parts):
            return T.TupleType([p for p in parts if p is not None])
    if isinstance(a, T.FutureType) and isinstance(b, T.FutureType):
        inner = unify(a.element, b.element)
        return None if inner is None else T.FutureType(inner)
    if isinstance(a, T.DictType) and isinstance(b, T.DictType) and a.key == b.key and T.same_element(a.value, b.value):
        return unshaped(a)
    return T.union_of([a, b]) if to_union else None


def unify_all(types: Sequence[T.Type], to_union: bool = False) -> T.Type | None:
    joined: T.Type | None = types[0] if types else None
    for t in types[1:]:
        joined = None if joined is None else unify(joined, t, to_union)
    return joined
