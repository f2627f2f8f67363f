"""TorchScript's types under their names in PyTorch's compiled part."""

from __future__ import annotations

from typing import Any

from ....jit.types import (
    INFERRED,
    NAMED,
    ClassType,
    DictType,
    EnumType,
    FutureType,
    InterfaceType,
    ListType,
    OptionalType,
    TensorType,
    TupleType,
    Type,
    UnionType,
)


class _Single:
    """A type without type parameters, under PyTorch's name for its class: `torch._C.IntType.get()`."""

    def __init__(self, type: Type):
        self._type = type

    def get(self) -> Type:
        """Return the type."""
        return self._type

    def __or__(self, other: Any) -> Any:
        """Return Any: programs write such names into annotations."""
        return Any

    __ror__ = __or__

    def getInferred(self) -> Type:  # noqa: N802  PyTorch's name
        """Return the type of values without annotation."""
        return INFERRED if isinstance(self._type, TensorType) else self._type


def exposed(name: str) -> Any:
    """Return the entry `name` of `torch._C`: a class of parametrised types, or the holder of another type; None if there is none."""
    parts = {c.__name__: c for c in (ListType, DictType, TupleType, OptionalType, FutureType, UnionType, ClassType, EnumType, InterfaceType)}  # fmt: skip
    if name in parts:
        return parts[name]
    singles = {t.kind(): t for t in NAMED.values()}
    return _Single(singles[name]) if name in singles else None
